"""The whole experiment: its sections, the checks across them, and the queries that stages make."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from pydantic import Field, ValidationError, model_validator

from maxk.artifacts.paths import BASE, Layout, policy_name, trained
from maxk.config.base import Base, PretrainedBase
from maxk.config.messages import brief, explain, together
from maxk.config.objectives import AnyObjective, Experiment, Objective
from maxk.config.report import Report, Tracking
from maxk.config.sampling import Sampling
from maxk.config.training import Training
from maxk.config.verification import Verification
from maxk.data import Dataset
from maxk.data.prompts import Prompt
from maxk.errors import UserError, lookup, suggest
from maxk.schema import Name, Section, Seed

BASE_LABEL = "Base model"
CLOSING_FENCE = "\n```\n"  # of a code block; an opening fence names a language
RESERVED = frozenset(
    "benchmarks cache data drawn experiments logs mlartifacts policies samples scores verdicts wandb".split()
)


class Config(Section):
    """An experiment."""

    name: Name = Field("default", description="`default` writes results/, any other name results/{name}/.")
    seeds: tuple[Seed, ...] = Field(
        (0,), min_length=1, description="Training seeds; every objective is trained once for each."
    )
    base: Base
    datasets: Mapping[Name, Dataset]
    prompt: Prompt = Prompt()
    objectives: Mapping[Name, AnyObjective]
    experiments: Mapping[Name, Experiment] = {}
    training: Training
    sampling: Sampling = Sampling()
    verification: Verification = Verification()
    report: Report = Report()
    tracking: Tracking = Tracking()
    gpus: int = Field(
        0,
        ge=0,
        description="GPUs of the machine (on a cluster: of a node) that jobs share; 0: CPU only. A training job holds "
        "`training.processes` of them (divided by its `nodes`), a sampling job as many as its engine spans.",
    )

    @model_validator(mode="before")
    @classmethod
    def _stop_at_the_closing_fence(cls, content: Any) -> Any:
        """Chat models write programs in fences, and often explain them afterwards until the token limit."""
        if not isinstance(content, Mapping):
            return content
        prompt, changed = content.get("prompt"), dict(content)
        default = [CLOSING_FENCE] if isinstance(prompt, Mapping) and prompt.get("chat") is True else []
        for name in ("sampling", "training"):
            section = content.get(name, {})
            if isinstance(section, Mapping) and section.get("stop") is None:
                changed[name] = {**section, "stop": default}
        return changed

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        problems = list(self._contradictions())
        if problems:
            raise ValueError(together(problems))
        return self

    def _contradictions(self) -> Iterator[str]:
        if len(set(self.seeds)) != len(self.seeds):
            yield f"seeds={list(self.seeds)} contains a seed twice"
        if self.name in RESERVED:
            yield f"name={self.name!r} is a folder of the default experiment; choose another"
        if self.prompt.chat and isinstance(self.base, PretrainedBase):
            yield "prompt.chat: true needs a chat model, but base.source: pretrain makes none"
        if isinstance(self.base, PretrainedBase):
            yield from self._unreadable_datasets(self.base.corpus.family)
        if BASE in self.every_objective:
            yield f"objectives.{BASE}: the name is taken by the base policy"
        if max(self.report.ks) > self.sampling.n:
            yield f"report.ks contains k={max(self.report.ks)}, more than sampling.n={self.sampling.n}; k ≤ n is needed"
        if 0 < self.gpus < self.sampling.gpus:
            yield f"sampling.vllm.tensor_parallel={self.sampling.gpus} is more than gpus={self.gpus}"
        for key in _with_secrets(self.model_dump(mode="json")):
            yield f"{key} contains a password or token; pass it through the environment (SECURITY.md)"
        if not self.evaluated:
            yield "datasets: none has test problems; set `test` of at least one above 0"
        if self.every_objective:
            yield from self._dataset_contradictions(self.training.datasets, "training.datasets")
        for name in self.every_objective:
            yield from self._objective_contradictions(name)
        yield from self._experiment_contradictions()

    def _unreadable_datasets(self, family: str) -> Iterator[str]:
        """A pretrained model knows the words of its corpus and nothing else."""
        if names := [name for name, dataset in self.datasets.items() if not dataset.synthetic]:
            yield (
                f"base.source: pretrain makes a model that reads {family} tasks only, but these datasets are in "
                f"natural language: {', '.join(names)}; "
                "set base to a code model: {source: hub, model: HUB_ID_OR_FOLDER}"
            )
        if names := [name for name, dataset in self.datasets.items() if dataset.family not in (None, family)]:
            yield (
                f"base.corpus: a model of the {family} corpus cannot read these datasets: {', '.join(names)}; "
                "set base.corpus to that of their family"
            )

    def _experiment_contradictions(self) -> Iterator[str]:
        owners = dict.fromkeys(self.objectives, "objectives")
        for name, experiment in self.experiments.items():
            for policy in experiment.objectives:
                if owners.setdefault(policy, f"experiments.{name}") != f"experiments.{name}":
                    yield f"experiments.{name}.objectives.{policy}: the name is taken by {owners[policy]}"
        for name, experiment in self.experiments.items():
            for policy in experiment.rows:
                if policy not in owners:
                    yield f"experiments.{name}.policies: no objective {policy!r}{suggest(policy, owners)}"
                elif experiment.against == "k" and self.every_objective[policy].has_schedule:
                    yield f"experiments.{name}: the k of {policy!r} is a schedule, which `against: k` cannot plot"
            yield from self._rule_contradictions(name, experiment)
            yield from self._milestone_contradictions(name, experiment)
        for policy in owners:
            if len(counts := self._milestones(policy)) > 1:
                numbers = " and ".join(map(str, sorted(counts)))
                yield f"experiments keep {numbers} milestones of {policy!r}; choose one number"
            if counts and self.every_objective[policy].training.get("lora", self.training.lora):
                yield f"{self._where(policy)}: milestones save whole models, but training.lora trains adapters only"

    def _milestone_contradictions(self, name: str, experiment: Experiment) -> Iterator[str]:
        """Checked again by the training job, which knows how many problems `all` and the filters leave."""
        batches = {policy: self._generation_batches(policy) for policy in experiment.rows}
        policy, fewest = min(batches.items(), key=lambda item: item[1], default=("", inf))
        if (count := experiment.milestones or 0) > fewest:
            yield (
                f"experiments.{name}.milestones={count}, but the training of {policy!r} has {fewest:.0f} generation "
                f"batches; set at most {fewest:.0f}, or no experiments (experiments: {{}})"
            )
        if experiment.milestones and (unmeasured := [row for row in experiment.rows if not self._logs_base_kl(row)]):
            yield (
                f"experiments.{name}.milestones: policies are compared at equal KL to the base model, which trainings "
                f"with kl_reference: old or kl_coefficient: 0 do not log ({', '.join(unmeasured)}); change those, or "
                "set no experiments (experiments: {})"
            )

    def _logs_base_kl(self, policy: str) -> bool:
        try:
            training = self.training_of(policy)
        except (ValidationError, UserError):  # named elsewhere
            return True
        return training.kl_reference == "base" and training.kl_coefficient > 0

    def _generation_batches(self, policy: str) -> float:
        """Of a training, as far as the configuration says; otherwise infinite."""
        try:
            training = self.training_of(policy)
            sections: list[Any] = [self.datasets[name] for name in training.datasets]
            return training.generation_batches(sum(section.train for section in sections))
        except (ValidationError, UserError, KeyError, TypeError):  # faults that are named elsewhere, and `train: all`
            return inf

    def _rule_contradictions(self, name: str, experiment: Experiment) -> Iterator[str]:
        if (experiment.vote or 0) > self.sampling.n:
            yield f"experiments.{name}.vote={experiment.vote} is more than sampling.n={self.sampling.n}"
        for rule in experiment.rules:
            if rule.k is not None and rule.k not in self.report.ks:
                yield f"experiments.{name}.rules: k={rule.k} is not in report.ks={list(self.report.ks)}"
            if rule.policy == (rule.reference or experiment.reference):
                yield f"experiments.{name}.rules: {rule.policy!r} is compared with itself"

    def _dataset_contradictions(self, names: Sequence[str], where: str) -> Iterator[str]:
        for name in names:
            if name not in self.datasets:
                yield f"{where} names {name!r}, which is not in datasets{suggest(name, self.datasets)}"
            elif not self.datasets[name].has("train"):
                yield f"{where} names {name!r}, which has train=0 problems"

    def _objective_contradictions(self, name: str) -> Iterator[str]:
        objective, where = self.every_objective[name], self._where(name)
        try:
            training = self.training_of(name)
        except ValidationError as error:
            yield "; ".join(explain(item, prefix=f"{where}.training.") for item in error.errors())
            return
        if 0 < self.gpus < training.processes_per_node:
            yield (
                f"{where}: training.processes={training.processes} on nodes={training.nodes} are more than "
                f"gpus={self.gpus} a node; each takes a GPU"
            )
        for k in objective.objective.ks:
            if k > training.num_generations:
                yield (
                    f"{where}: k={k} is more than training.num_generations={training.num_generations}; k ≤ n is needed"
                )
            if k == training.num_generations and objective.kind.zero_gradient_at_n:
                yield f"{where}: {objective.type} has no gradient at k = n = {k}; choose k < n"
        if objective.kind.off_policy and training.steps_per_batch < 2 and training.old_policy == "trainer":
            yield (
                f"{where}: {objective.type} corrects for off-policy samples, but there are none with iterations="
                f"{training.iterations}; set {where}.training.iterations (paper: 3) or minibatches to 2 or more"
            )
        if (followed := self.entropy_of(name)) is not None:
            yield from self._entropy_contradictions(training, followed, f"{where}.training.entropy_bonus.like")
        if "datasets" in objective.training:
            yield from self._dataset_contradictions(training.datasets, f"{where}.training.datasets")

    def _entropy_contradictions(self, training: Training, followed: str, where: str) -> Iterator[str]:
        if followed not in self.every_objective:
            yield f"{where}: no objective {followed!r}{suggest(followed, self.every_objective)}"
        elif self.entropy_of(followed) is not None:
            yield f"{where}: {followed!r} follows another training itself"
        else:
            yield from _fewer_batches(self.training_of(followed), training, f"{where}: {followed!r}")

    def _where(self, objective: str) -> str:
        owner = self.owner(objective)
        return f"objectives.{objective}" if owner is None else f"experiments.{owner}.objectives.{objective}"

    # ---- what the stages ask
    @property
    def every_objective(self) -> dict[str, Objective]:
        """The objectives of the main tables, then those of the experiments."""
        own = [experiment.objectives for experiment in self.experiments.values()]
        return {name: objective for part in (self.objectives, *own) for name, objective in part.items()}

    def owner(self, objective: str) -> str | None:
        """The experiment that trains a policy; None for one of the main tables."""
        return next((name for name, one in self.experiments.items() if objective in one.objectives), None)

    def restricted_to(self, experiment: str) -> Config:
        """This configuration with the experiment's policies as objectives; its reports are made from it.

        Raises UserError if there is no such experiment.
        """
        return self.only(lookup(self.experiments, experiment, "experiment").evaluated)

    def milestones(self, objective: str) -> int:
        """Evenly spaced points at which the objective's trainings keep their weights, the end included; at least 1."""
        return max(self._milestones(objective), default=1)

    def _milestones(self, objective: str) -> set[int]:
        return {one.milestones for one in self.experiments.values() if one.milestones and objective in one.rows}

    def only(self, rows: Sequence[str]) -> Config:
        """This configuration with these policies, from the main tables or from experiments, as objectives."""
        known = self.every_objective
        labelled = {name: known[trained(name)].model_copy(update={"label": self.label(name)}) for name in rows}
        return self.model_copy(update={"objectives": labelled, "experiments": {}})

    @property
    def layout(self) -> Layout:
        return Layout("results" if self.name == "default" else f"results/{self.name}")

    @property
    def evaluated(self) -> list[str]:
        """Datasets with test problems, in the order of the config."""
        return [name for name, dataset in self.datasets.items() if dataset.has("test")]

    @property
    def policies(self) -> list[str]:
        """All policies: the base, then every objective with every seed."""
        return [BASE, *(policy for objective in self.objectives for policy in self.seeded(objective))]

    @property
    def every_policy(self) -> list[str]:
        """`policies`, and those that only experiments have."""
        return [BASE, *(policy for objective in self.every_objective for policy in self.seeded(objective))]

    def require_policy(self, name: str) -> None:
        """Raises UserError for a name that no policy of this experiment, its further experiments included, can have."""
        objective, _, seed = name.partition("/")
        if name == BASE or (trained(objective) in self.every_objective and re.fullmatch(r"seed\d+", seed)):
            return
        known = self.every_policy
        raise UserError(
            f"no policy {name!r}{suggest(name, known)}; known: {', '.join(known[:4])}{', …' * (len(known) > 4)}"
        )

    def seeded(self, objective: str) -> list[str]:
        """The policies of one objective, one per seed."""
        return [policy_name(objective, seed) for seed in self.seeds]

    def scores(self, policies: Sequence[str]) -> list[str]:
        """Score files of policies, on every evaluated dataset."""
        return [self.layout.scores(policy, dataset) for policy in policies for dataset in self.evaluated]

    def label(self, objective: str) -> str:
        """Row name of an objective (or of the base) in tables; one of an experiment says how it differs."""
        if objective == BASE:
            return BASE_LABEL
        if trained(objective) != objective:
            return f"{self.label(trained(objective))}, milestone {objective.partition('@')[2]}"
        one = self.every_objective[objective]
        if one.label or objective in self.objectives:
            return one.label or one.kind.label
        differences = {**{key: value for key, value in one.spec.items() if key != "type"}, **one.training}
        if "k" in one.objective.keys:
            differences["k"] = one.objective.keys["k"]
        return f"{one.kind.label} ({brief(differences)})"

    def training_of(self, objective: str) -> Training:
        """`training` with the objective's own keys laid over it. Raises UserError for an unknown objective."""
        own = lookup(self.every_objective, trained(objective), "objective").training
        return Training.model_validate({**self.training.model_dump(), **own})

    def entropy_of(self, objective: str) -> str | None:
        """The objective whose entropy the training follows."""
        bonus = self.training_of(objective).entropy_bonus
        return bonus.like if bonus else None

    # ---- what decides a stage's result: these go into Snakemake's params and into every file's provenance
    def settings(self, stage: str, **of: Any) -> dict[str, Any]:
        """The part of the configuration that decides what `stage` writes, as plain JSON values.

        Execution details (workers, shards, checkpoint intervals) are left out: changing them reruns nothing.
        """
        parts: dict[str, Any]
        if stage == "prepare":
            dataset = self.datasets[of["dataset"]]
            parts = {"dataset": dataset.model_dump(exclude={"paper"})}
            if getattr(dataset, "check_solutions", 0):
                parts["verification"] = self.verification.semantics
        elif stage == "base":
            parts = {"base": self.base.model_dump(exclude={"parameters"}), "prompt": self.prompt.model_dump()}
        elif stage == "train":
            parts = {
                "objective": self.every_objective[trained(of["objective"])].spec,
                **self.every_objective[trained(of["objective"])].own_code,
                "training": self.training_of(of["objective"]).semantics,
                "prompt": self.prompt.model_dump(),
                "verification": self.verification.semantics,
            }
        elif stage == "sample":
            parts = {"sampling": self.sampling.semantics, "prompt": self.prompt.model_dump()}
        elif stage == "verify":
            parts = {"verification": self.verification.semantics}
        elif stage == "score":
            parts = {"n": self.sampling.n, "ks": self.report.ks}
        elif stage == "report":
            parts = {
                "report": self.report.model_dump(),
                "labels": {o: self.label(o) for o in [BASE, *self.objectives]},
                "paper": {name: dataset.paper for name, dataset in self.datasets.items()},
            }
        else:
            raise ValueError(f"no stage {stage!r}")
        return json.loads(json.dumps(parts))  # type: ignore[no-any-return]


def _fewer_batches(followed: Training, training: Training, which: str) -> Iterator[str]:
    """A training cannot follow, batch by batch, one that ends before it; other datasets are compared by the stage."""
    own, other = (one.epochs / one.prompts_per_step for one in (training, followed))
    if followed.datasets == training.datasets and other < own:
        yield (
            f"{which} ends first: it has epochs={followed.epochs:g}, prompts_per_step={followed.prompts_per_step}, "
            f"this training {training.epochs:g} and {training.prompts_per_step}"
        )


_SECRET = re.compile(r"://[^/\s]*:[^/\s]*@|\bhf_[A-Za-z0-9]{20,}")


def _with_secrets(value: Any, key: str = "") -> Iterator[str]:
    """Keys whose text looks like a secret: configurations are written to files and tracked."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _with_secrets(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _with_secrets(item, f"{key}.{number}")
    elif isinstance(value, str) and _SECRET.search(value):
        yield key
