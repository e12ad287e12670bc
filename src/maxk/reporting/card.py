"""The model card of a policy: what it was trained for and on, what it scores, and how that was measured.

All numbers are those of this one trained policy: intervals are over problems, and say nothing about the method.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from maxk.artifacts.paths import BASE, command
from maxk.artifacts.records import Policy
from maxk.config import Config, HubBase
from maxk.errors import UserError, counted
from maxk.reporting import estimates, markdown
from maxk.reporting.load import Scores

PAPER = "https://arxiv.org/abs/2510.23393"


def text(config: Config, policy: Policy, base: Policy, scores: Scores) -> str:
    """The card of a policy that was trained from `base`; `scores` are those of its seed alone.

    Raises UserError if the policy has no scores.
    """
    objective = policy.name.partition("/seed")[0]
    if not any((objective, dataset) in scores.cells for dataset in scores.datasets):
        made = command(config.layout, *config.scores([policy.name]))
        raise UserError(f"{policy.name}: no scores yet; make them: `{made}`")
    lines = [
        f"# {markdown.escape(policy.name)}, trained with the objective `{objective}`",
        "",
        f"Trained by maxk, after [The Best of N Worlds]({PAPER}), from {_base(config, base)}.",
        "",
        *_facts(config, policy, base, scores),
        "",
        "## Scores",
        "",
        *_table(config, scores, objective),
        "",
        *_method(config, scores),
        "",
        "## Training settings",
        "",
        "```json",
        json.dumps(policy.lineage["settings"], indent=2, ensure_ascii=False),
        "```",
    ]
    return f"---\n{_metadata(config, base, objective)}\n---\n\n" + "\n".join(lines) + "\n"


def _metadata(config: Config, base: Policy, objective: str) -> str:
    """The card's YAML header, which the hub reads."""
    from huggingface_hub import ModelCardData

    return ModelCardData(
        base_model=_hub_id(base),
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["maxk", "grpo", "reinforcement-learning", config.every_objective[objective].type],
    ).to_yaml()


def _hub_id(base: Policy) -> str | None:
    """The base model on the hub, which has a commit; a folder of this machine has none and is named nowhere."""
    return None if base.revision is None else base.model


def _base(config: Config, base: Policy) -> str:
    if isinstance(config.base, HubBase):
        return f"`{hub_id}`" if (hub_id := _hub_id(base)) else "a local model"
    return "a model that the experiment pretrained"


def _facts(config: Config, policy: Policy, base: Policy, scores: Scores) -> Iterator[str]:
    objective, _, seed = policy.name.partition("/seed")
    training, one = config.training_of(objective), config.every_objective[objective]
    yield from markdown.head(["", ""], words=2)
    yield markdown.row(["objective", f"`{json.dumps({'type': one.type, **one.objective.keys}, default=str)}`"])
    yield markdown.row(["base policy", f"{_base(config, base)}, digest `{policy.lineage['base']}`"])
    for dataset in training.datasets:
        yield markdown.row(["trained on", f"`{dataset}`, digest `{policy.lineage['data'][dataset]}`"])
    yield markdown.row(["completions per problem in training (n)", str(training.num_generations)])
    yield markdown.row(["seed of this policy", seed])
    yield markdown.row(["seeds that the experiment configures", ", ".join(map(str, config.seeds))])
    yield markdown.row(["sandbox of the training rewards", str(policy.environment.get("sandbox"))])
    yield markdown.row(["sandbox of the scores", str(scores.sandbox)])
    versions = {k: v for k, v in policy.environment.items() if k not in ("sandbox", "source")}
    yield markdown.row(["versions", ", ".join(f"{name} {version}" for name, version in versions.items())])


def _table(config: Config, scores: Scores, objective: str) -> Iterator[str]:
    """max@k of this policy and of the base policy on every dataset."""
    means = estimates.records(estimates.means(scores, config).query("metric == 'max'"))
    found = {(row["dataset"], row["policy"], row["k"]): row for row in means}
    yield from markdown.head(["dataset", "policy", *(f"max@{k}" for k in scores.ks)], words=2)
    for dataset in scores.datasets:
        for policy, label in ((objective, "this one"), (BASE, "base")):
            if (policy, dataset) in scores.cells:
                rows = [found[dataset, policy, k] for k in scores.ks]
                cells = [markdown.with_ends(row["mean"], row["low"], row["high"]) for row in rows]
                yield markdown.row([markdown.escape(dataset), label, *cells])


def _method(config: Config, scores: Scores) -> Iterator[str]:
    sizes = ", ".join(f"{scores.problems(one)} of {markdown.escape(one)}" for one in scores.datasets)
    yield (
        f"Unbiased estimates from {counted(scores.n, 'completion')} per problem at temperature "
        f"{config.sampling.temperature:g}, top-p {config.sampling.top_p:g}; the reward is the fraction of tests "
        f"passed. Problems: {sizes}. In brackets: {markdown.percent(config.report.confidence)} intervals over "
        "problems, for this trained policy and not for the method."
    )
