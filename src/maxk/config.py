"""The one configuration schema: every value a user may change, validated once before any work.

A config file is an overlay on the defaults of `config/config.yaml`. Sections merge key by key, except those that name
a set of things (`base`, `datasets`, `objectives`, `experiments`): an overlay replaces these whole, and with
`objectives` go the experiments on them. What is unknown, out of range or contradictory is refused with the key, what
was got and what is allowed. No torch here: this is imported by every command and by the Snakefile.

    python -m maxk.config > config/README.md      # the reference of all keys, generated from this file
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from maxk import objective_types
from maxk.errors import UserError
from maxk.paths import BASE, Layout, policy_name

DEFAULTS = Path(__file__).parents[2] / "config" / "config.yaml"
RESERVED = (
    "benchmarks",
    "cache",
    "data",
    "experiments",
    "logs",
    "mlartifacts",
    "policies",
    "report",
    "samples",
    "scores",
    "verdicts",
)
REPLACED_WHOLE = ("base", "datasets", "objectives", "experiments")

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
# Readings (most popular, second, rare) of an operation that its statement leaves open, as probabilities.
Popularity = tuple[Fraction, Fraction, Fraction]


class Section(BaseModel):
    """A part of the configuration: immutable, and no key beyond those named."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


# --------------------------------------------------------------------------------------------- base policy and data
class Corpus(Section):
    """Programs that the pocket base model is pretrained on: what its "authors" write, bugs and misreadings included."""

    size: Count = Field(76_800, description="Number of (statement, program) pairs.")
    transforms: tuple[Count, ...] = Field((1, 2, 2, 3), description="Transforms a statement, drawn evenly.")
    rare: Fraction = Field(0.25, description="Share of rare phrases for an operation.")
    readings: Popularity = Field((0.86, 0.12, 0.02), description="Popularity of the readings of an open operation.")
    bug: Fraction = Field(0.10, description="Chance of a bug in one operation.")
    input_bug: Fraction = Field(0.08, description="Chance of a bug in reading the input.")
    misread: Fraction = Field(1.0, description="Scale of the chance that an explicit qualifier is misread.")


class Architecture(Section):
    """A small Llama-style decoder."""

    hidden_size: Count = 64
    layers: Count = 2
    heads: Count = 4
    intermediate_size: Count = 192
    vocabulary: Count = Field(320, description="Size of the byte-pair vocabulary, learned line by line.")

    @model_validator(mode="after")
    def _heads_divide(self) -> Architecture:
        if self.hidden_size % self.heads:
            raise ValueError(f"heads={self.heads} must divide hidden_size={self.hidden_size}")
        return self


class PretrainedBase(Section):
    """Base policy made inside the pipeline: no hub is needed."""

    source: Literal["pretrain"]
    corpus: Corpus = Corpus()
    architecture: Architecture = Architecture()
    steps: Count = Field(600, description="Pretraining steps.")
    batch_size: Count = Field(128, description="Sequences a step.")
    learning_rate: Positive = Field(4e-3, description="Peak learning rate (AdamW, linear warm-up, cosine decay).")
    seed: int = 0


class HubBase(Section):
    """Base policy taken from the Hugging Face hub or a local folder."""

    source: Literal["hub"]
    model: str = Field(description="Hub id or path of a local folder.")
    revision: str | None = Field(None, description="Commit of the hub repository; pin it.")
    parameters: Positive = Field(8, description="At most so many billions of parameters: memory that jobs ask for.")


Base = Annotated[PretrainedBase | HubBase, Field(discriminator="source")]


class DatasetSection(Section):
    """What every source has in common: how many problems each split gets."""

    def has(self, split: str) -> bool:
        """Whether the dataset gives problems of this split ("train" or "test")."""
        return bool(getattr(self, split))


class PocketDataset(DatasetSection):
    """A family of generated tasks (synthetic, exact tests)."""

    source: Literal["pocket"]
    transforms: tuple[Count, ...] = Field(description="Transforms a statement, drawn evenly.")
    open_operations: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        description="Operations without a qualifier: the statement leaves them open and the hidden tests decide."
    )
    rare: Fraction = Field(description="Share of rare phrases for an operation.")
    readings: Popularity = Field(description="How often hidden tests ask for each reading of an open operation.")
    train: int = Field(0, ge=0, description="Training problems.")
    test: int = Field(0, ge=0, description="Evaluation problems.")
    tests: Count = Field(8, description="Tests a problem: the number of reward levels above zero.")
    seed: int = 0
    paper: str | None = Field(None, description="The paper's dataset whose role this one plays in the tables.")


Size = Annotated[int, Field(ge=0)] | Literal["all"]


Location = Annotated[
    str, Field(description="Hub id, or a local folder or file (parquet, json, jsonl; also .gz) in its place.")
]
Revision = Annotated[str | None, Field(description="Commit of the hub repository; needed unless `location` is local.")]


class TokenLimit(Section):
    """Statements longer than this are left out; the tokenizer is named, so that every base policy gets the same."""

    tokens: Count = Field(512, description="Most tokens of a statement (paper: 512).")
    tokenizer: str = Field(description="Hub id or local folder of the tokenizer.")
    revision: str | None = Field(None, description="Commit of the tokenizer's hub repository; pin it.")


class Benchmark(DatasetSection):
    """What every benchmark taken from the hub or from files has in common."""

    location: Location
    revision: Revision = None
    train: Size = Field(0, description="Training problems, drawn by `seed`; `all` takes every one.")
    test: Size = Field("all", description="Evaluation problems, drawn by `seed`; `all` takes every one.")
    length: TokenLimit | None = Field(None, description="Leaves out long statements.")
    max_tests: Count | None = Field(None, description="Most tests a problem, the source's own order (official first).")
    distinct_outputs: Count = Field(1, description="Fewest distinct outputs among a problem's tests; below is trivial.")
    exclude: tuple[str, ...] = Field((), description="Upstream ids left out: known faults, say.")
    seed: int = Field(0, description="Draws the splits.")
    paper: str | None = Field(None, description="The paper's dataset that this is in the tables.")


class PooledBenchmark(Benchmark):
    """A benchmark whose rows have no split of their own: test is drawn first, train from the rest."""

    @model_validator(mode="after")
    def _one_takes_the_rest(self) -> PooledBenchmark:
        if self.train == self.test == "all":
            raise ValueError("train and test are both `all`, but the source has one pool of rows; give one a number")
        return self


CheckedWith = Annotated[
    int, Field(ge=0, description="Own right programs of a row that its tests are checked with; 0 checks nothing.")
]


class CodeContestsDataset(PooledBenchmark):
    """deepmind/code_contests."""

    source: Literal["code_contests"]
    location: Location = "deepmind/code_contests"
    upstream_splits: tuple[Literal["train", "valid", "test"], ...] = Field(
        ("train", "valid", "test"), min_length=1, description="Upstream splits that make up the pool."
    )
    difficulties: tuple[int, ...] = Field(
        (0, 1, 2, 3), description="Values of `difficulty` kept: 0 unknown, 1 easy, 2 medium, 3 hard, … (inferred)."
    )
    check_solutions: CheckedWith = 0


class CureDataset(PooledBenchmark):
    """A set of the CURE paper (Gen-Verse on the hub), each one JSON list."""

    source: Literal["cure"]


class LiveCodeBenchDataset(PooledBenchmark):
    """LiveCodeBench code generation (lite)."""

    source: Literal["livecodebench"]
    location: Location = "livecodebench/code_generation_lite"
    version: str = Field("release_v6", pattern=r"^(release_)?v[1-6]$", description="`release_v6` is v1 to v6 together.")
    functional: Literal["convert", "drop"] = Field("convert", description="Rows that call a function (LeetCode).")


class LiveBenchDataset(PooledBenchmark):
    """The coding tasks of LiveBench."""

    source: Literal["livebench"]
    location: Location = "livebench/coding"
    revision: Revision = "a958549fdd8aa57be0a3fafe7b205ffc160ed5f4"
    tasks: tuple[Literal["LCB_generation", "coding_completion"], ...] = Field(
        ("LCB_generation", "coding_completion"), min_length=1, description="Tasks kept."
    )
    functional: Literal["convert", "drop"] = Field("convert", description="Rows that call a function (LeetCode).")


class HubCopy(Section):
    """Where another benchmark is found."""

    location: Location
    revision: Revision = None


class CodeforcesDataset(Benchmark):
    """open-r1/codeforces; upstream's train and test splits stay apart."""

    source: Literal["codeforces"]
    location: Location = "open-r1/codeforces"
    subset: Literal["default", "verifiable"] = Field("default", description="Upstream's configuration.")
    complete_tests: bool = Field(True, description="Only problems whose official tests are not cut off.")
    without: HubCopy | None = Field(None, description="CodeContests, whose problems are left out.")


class MbppDataset(Benchmark):
    """MBPP, its asserts turned into stdin/stdout tests; upstream's test split stays apart, all others are train."""

    source: Literal["mbpp"]
    location: Location = "google-research-datasets/mbpp"
    form: Literal["flat", "literal"] = Field("flat", description="How values are read and printed (docs/datasets.md).")
    io_format: bool = Field(True, description="End the statement by a line that says how values are read and printed.")
    same_types: bool = Field(True, description="Only tasks whose asserts agree in the types of the arguments.")
    check_solutions: CheckedWith = 0


class AppsDataset(Benchmark):
    """The stdin/stdout rows of APPS: the hub's schema, or that of the 150 tasks selected by MapCoder."""

    source: Literal["apps"]
    location: Location = "codeparrot/apps"
    difficulties: tuple[Literal["introductory", "interview", "competition"], ...] = Field(
        ("introductory", "interview", "competition"), min_length=1, description="Difficulties kept."
    )
    check_solutions: CheckedWith = 0


Dataset = Annotated[
    PocketDataset
    | CodeContestsDataset
    | CureDataset
    | LiveCodeBenchDataset
    | LiveBenchDataset
    | CodeforcesDataset
    | MbppDataset
    | AppsDataset,
    Field(discriminator="source"),
]


class Prompt(Section):
    """How a statement becomes what the model reads."""

    template: str = Field("{statement}\n", description="Must hold `{statement}`.")
    chat: bool = Field(False, description="Wrap the prompt in the model's own chat template.")
    system: str | None = Field(None, description="System message; needs `chat: true`.")

    @model_validator(mode="after")
    def _placeholders(self) -> Prompt:
        if "{statement}" not in self.template:
            raise ValueError(f"template={self.template!r} lacks the placeholder {{statement}}")
        if self.system is not None and not self.chat:
            raise ValueError("system needs chat: true")
        return self


# ------------------------------------------------------------------------------------------------ training
class Lora(Section):
    """Low-rank adapters instead of all weights, without dropout; the saved policy has them merged."""

    rank: Count = 16
    alpha: Count = 32
    target_modules: str | tuple[str, ...] = Field("all-linear", description="Modules that get an adapter (peft).")


class Generator(Section):
    """What generates the training completions."""

    backend: Literal["transformers", "vllm"] = Field("transformers", description="`vllm`: see docs/sampling.md.")
    mode: Literal["colocate", "server"] = Field(
        "colocate", description="vLLM in the training processes, or a running `trl vllm-serve`."
    )
    url: str | None = Field(None, description="Base URL of the vLLM server; needs `mode: server`.")
    gpu_memory_utilization: float = Field(0.3, gt=0, le=1, description="Share of a GPU's memory for colocated vLLM.")
    tensor_parallel: Count = Field(1, description="GPUs that one colocated vLLM engine spans.")

    @model_validator(mode="after")
    def _url_for_servers(self) -> Generator:
        if (self.url is not None) != (self.backend == "vllm" and self.mode == "server"):
            raise ValueError("url goes with backend: vllm and mode: server, and only with them")
        return self


class Heldout(Section):
    """Evaluation while training, on problems of the train split that are kept out of training."""

    every: Count = Field(description="Generation batches between evaluations.")
    problems: Count = Field(description="Problems kept out; `completions` are drawn for each, max@k logged up to n.")


class Training(Section):
    """GRPO training (paper, Section 4.4); every objective shares it and may override keys under `training`."""

    datasets: tuple[Name, ...] = Field(min_length=1, description="Datasets whose train split is used.")
    epochs: Positive = Field(1.0, description="Passes over the training problems.")
    prompts_per_step: Count = Field(16, description="Problems in one generation batch, over all processes.")
    microbatch_completions: Count = Field(
        128,
        description="Completions that one forward/backward pass holds on one process. A multiple of `completions` "
        "keeps groups whole, so that off-policy ratios come from the pass that the loss makes anyway; else they cost "
        "one more forward pass an optimiser step.",
    )
    processes: Count = Field(
        1, description="Data-parallel processes: `torchrun`, or `accelerate launch` where `accelerate` is set."
    )
    accelerate: str | None = Field(None, description="An accelerate config file, such as config/accelerate/fsdp2.yaml.")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Of the forward and backward pass; `auto` is bfloat16 on a GPU, float32 on the CPU."
    )
    gradient_checkpointing: bool = Field(False, description="Recompute activations: less memory, a third more time.")
    lora: Lora | None = Field(None, description="Train low-rank adapters.")
    generator: Generator = Generator()
    completions: int = Field(8, ge=2, description="n: completions a problem (paper: 8).")
    max_tokens: Count = Field(256, description="Token limit of a completion (paper: 256).")
    temperature: Positive = Field(1.0, description="Sampling temperature (paper: 1.0).")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus sampling (paper: 1.0).")
    learning_rate: Positive = Field(5e-6, description="Adam learning rate (paper: 5e-6).")
    warmup_steps: int = Field(0, ge=0, description="Linear warm-up, in optimiser steps; constant afterwards.")
    kl_coefficient: float = Field(0.01, ge=0, description="β of the KL penalty to the base policy (paper: 0.01).")
    clip: Positive = Field(0.2, description="ε of PPO's clipping (paper: 0.2).")
    ratio: Literal["token", "sequence"] = Field(
        "token",
        description="PPO's ratio: of each token (TRL, GRPO), or of the whole completion, with which off-policy "
        "objectives are unbiased and loss and KL are sums over tokens (docs/objectives.md).",
    )
    max_grad_norm: Positive = Field(1.0, description="Gradient norm is clipped to this (not stated in the paper).")
    iterations: Count = Field(1, description="μ: PPO iterations a generation batch (paper: 3 where off-policy).")
    evaluation: Heldout | None = Field(None, description="Evaluate while training.")
    checkpoint_every: Count = Field(
        40, description="Generation batches between checkpoints; a killed job resumes from the last one."
    )

    @model_validator(mode="after")
    def _batches_divide(self) -> Training:
        batch, quantum = self.prompts_per_step * self.completions, self.processes * self.microbatch_completions
        if batch % quantum:
            raise ValueError(
                f"prompts_per_step × completions = {self.prompts_per_step} × {self.completions} = {batch} must be a "
                f"multiple of processes × microbatch_completions = {self.processes} × {self.microbatch_completions} = "
                f"{quantum}"
            )
        return self

    @model_validator(mode="after")
    def _launcher_for_several(self) -> Training:
        if self.accelerate is not None and self.processes == 1:
            raise ValueError("accelerate names how several processes share the work; set processes to 2 or more")
        if len(set(self.datasets)) != len(self.datasets):
            raise ValueError(f"datasets={list(self.datasets)} holds a dataset twice")
        return self

    @property
    def semantics(self) -> dict[str, Any]:
        """What can change the trained policy; where and how it is computed is left out."""
        execution = {"checkpoint_every", "accelerate", "gradient_checkpointing"}
        generator = {"url", "gpu_memory_utilization", "tensor_parallel"}
        return self.model_dump(exclude={**dict.fromkeys(execution, True), "generator": generator})

    @property
    def accumulation(self) -> int:
        """Micro-batches an optimiser step, on each process."""
        return self.prompts_per_step * self.completions // (self.processes * self.microbatch_completions)


class Objective(BaseModel):
    """One policy to train: the objective's `type` and parameters, and training keys that differ from `training`."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    type: str = Field(description="Objective type; see docs/objectives.md.")
    label: str | None = Field(None, description="Row name in tables; by default the paper's.")
    training: Mapping[str, Any] = Field({}, description="Keys of `training` that differ for this policy.")

    @model_validator(mode="before")
    @classmethod
    def _numbers(cls, content: Any) -> Any:
        """YAML 1.1 takes `5e-6` for text; elsewhere the declared types make it a number, here nothing does."""
        return _with_numbers(content)

    @model_validator(mode="after")
    def _parameters_known(self) -> Objective:
        objective_types.validate(self.spec)
        return self

    @property
    def spec(self) -> dict[str, Any]:
        """The mapping that `maxk.objectives.make` takes: type and parameters."""
        return {"type": self.type, **(self.__pydantic_extra__ or {})}

    @property
    def has_schedule(self) -> bool:
        """Whether its k moves during training."""
        return self.kind.uses_k and objective_types.schedule(self.spec).kind != "constant"

    @property
    def kind(self) -> objective_types.ObjectiveType:
        return objective_types.OBJECTIVE_TYPES[self.type]


class Experiment(Section):
    """A question put to some policies: `results/experiments/NAME.{csv,md,png,pdf}`, trained only when asked for."""

    question: str = Field(description="What the experiment is to answer; the heading of its table.")
    policies: tuple[Name, ...] = Field(
        (), description="Keys of `objectives`, of the top level or of another experiment, that take part."
    )
    objectives: Mapping[Name, Objective] = Field({}, description="Policies that are trained for this experiment.")
    reference: Name = Field(description="The policy that all others are compared with.")
    against: Literal["k", "iterations", "temperature", "learning_rate"] | None = Field(
        None, description="Draw the results against this parameter; by default against the k of max@k."
    )
    choose: Literal["learning_rate"] | None = Field(
        None,
        description="Policies that differ in this key alone are candidates: the one with the highest max@headline_k on "
        "one half of every dataset's problems is chosen, and all numbers are those of the other half.",
    )

    @model_validator(mode="after")
    def _rows_differ(self) -> Experiment:
        if self.reference not in self.rows:
            raise ValueError(f"reference={self.reference!r} is none of its policies: {', '.join(self.rows)}")
        if len(set(self.rows)) != len(self.rows):
            raise ValueError(f"a policy is named twice: {', '.join(self.rows)}")
        return self

    @property
    def rows(self) -> tuple[str, ...]:
        """All policies that take part, in order."""
        return (*self.policies, *self.objectives)


# ------------------------------------------------------------------------------------------------ evaluation
class Vllm(Section):
    """The vLLM backend's engine (docs/sampling.md). Several GPUs: `sampling.shards` jobs, or `tensor_parallel`."""

    tensor_parallel: Count = Field(1, description="GPUs that hold one copy of the model.")
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1, description="Share of a GPU's memory for weights and cache.")
    max_model_len: Count | None = Field(
        None, description="Longest prompt and completion together, in tokens; by default what the model states."
    )
    max_num_seqs: Count = Field(1024, description="Samples generated at once.")
    enforce_eager: bool = Field(False, description="Do not compile the model: starts sooner, samples slower.")
    entropy_top_k: Count = Field(
        20, description="Likeliest tokens that `entropy` tells apart; all others count as one (a lower bound)."
    )


class Sampling(Section):
    """Evaluation samples (paper, Appendix C.1)."""

    backend: Literal["transformers", "vllm"] = Field("transformers", description="`vllm`: see docs/sampling.md.")
    n: Count = Field(256, description="Completions a problem (paper: 256).")
    max_tokens: Count = Field(256, description="Token limit of a completion.")
    temperature: Positive = 1.0
    top_p: float = Field(1.0, gt=0, le=1)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Type of weights and activations; `auto`: bfloat16 on a GPU, float32 on the CPU."
    )
    stop_tokens: tuple[str, ...] = Field((), description="Tokens that end a completion beside the policy's own.")
    chunk: Count = Field(256, description="At most so many completions of one problem are generated under one seed.")
    batch_tokens: Count = Field(
        262_144, description="Tokens, prompts and completions, that the transformers backend generates at once."
    )
    entropy: bool = Field(True, description="Keep each completion's mean token entropy (Figure 2).")
    shards: Count = Field(1, description="Jobs a policy: each takes its share of every dataset's problems.")
    vllm: Vllm = Vllm()
    seed: int = 0

    @property
    def gpus(self) -> int:
        """GPUs that a sampling job spans, where the machine has any."""
        return self.vllm.tensor_parallel if self.backend == "vllm" else 1

    @property
    def semantics(self) -> dict[str, Any]:
        """What can change a sample: how many are generated at once, and on how many GPUs, is left out."""
        execution = set(Vllm.model_fields) - {"entropy_top_k"}
        return self.model_dump(exclude={"shards": True, "batch_tokens": True, "vllm": execution})


class Verification(Section):
    """The grader (docs/grader.md)."""

    sandbox: Literal["auto", "bubblewrap", "landlock", "seccomp", "off"] = Field(
        "auto",
        description="Isolation tier; `auto` takes the strongest that works, `off` is the explicit opt-out.",
    )
    mode: Literal["auto", "fork"] = Field(
        "auto",
        description="`fork` runs every test in a process of its own; `auto` shares one between the tests of a program "
        "proven state-free. Of rewards and evaluation; the same verdicts, so not part of a result's identity.",
    )
    cpu_s: Positive = Field(2.0, description="CPU seconds a test, unless the problem states its own.")
    memory_mb: Count = Field(512, description="Memory of a program, in MiB, unless the problem states its own.")
    output_bytes: Count = Field(1_000_000, description="Output of a test beyond this is `output_limit`.")
    workers: Count = Field(1, description="Grading processes a job; not part of a result's identity.")

    @property
    def semantics(self) -> dict[str, Any]:
        """What can change a verdict: everything but how the work is divided."""
        return self.model_dump(exclude={"mode", "workers"})


class Report(Section):
    """Tables, figures and statistics."""

    ks: tuple[Count, ...] = Field(
        (1, 2, 4, 8, 16, 32, 64, 128, 256), description="The k of max@k and pass@k that are scored and drawn."
    )
    headline_k: Count = Field(128, description="k of the headline tables 1, 2 and 4 (paper: 128).")
    confidence: float = Field(0.95, gt=0, lt=1, description="Level of bootstrap intervals.")
    resamples: Count = Field(10_000, description="Bootstrap resamples.")
    seed: int = 0

    @model_validator(mode="after")
    def _ks_ascend(self) -> Report:
        if list(self.ks) != sorted(set(self.ks)):
            raise ValueError(f"ks={list(self.ks)} must ascend without repeats")
        missing = [k for k in (1, self.headline_k) if k not in self.ks]
        if missing:
            raise ValueError(f"ks={list(self.ks)} lacks {missing}: tables 2 and 3 show max@headline_k and max@1")
        return self


class Tracking(Section):
    """MLflow. A server is named by the environment variable MLFLOW_TRACKING_URI, else SQLite under results/."""

    enabled: bool = Field(True, description="`false` tracks nothing.")


class Config(Section):
    """An experiment."""

    name: Name = Field("default", description="`default` writes results/, any other name results/{name}/.")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0,), min_length=1, description="Training seeds; every objective is trained once for each."
    )
    base: Base
    datasets: Mapping[Name, Dataset]
    prompt: Prompt = Prompt()
    objectives: Mapping[Name, Objective]
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
        "`training.processes` of them, a sampling job as many as its engine spans.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        problems = list(self._contradictions())
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _contradictions(self) -> Iterator[str]:
        if len(set(self.seeds)) != len(self.seeds):
            yield f"seeds={list(self.seeds)} holds a seed twice"
        if self.name in RESERVED:
            yield f"name={self.name!r} is a folder of the default experiment; choose another"
        if self.prompt.chat and isinstance(self.base, PretrainedBase):
            yield "prompt.chat: true needs a chat model, but base.source: pretrain makes none"
        if BASE in self.every_objective:
            yield f"objectives.{BASE}: the name is taken by the base policy"
        if max(self.report.ks) > self.sampling.n:
            yield f"report.ks holds k={max(self.report.ks)}, more than sampling.n={self.sampling.n}; k ≤ n is needed"
        if 0 < self.gpus < self.sampling.gpus:
            yield f"sampling.vllm.tensor_parallel={self.sampling.gpus} is more than gpus={self.gpus}"
        for key in _with_secrets(self.model_dump(mode="json")):
            yield f"{key} holds a password or a token; give it by the environment (SECURITY.md)"
        if not self.evaluated:
            yield "datasets: none has test problems; set `test` of one above 0"
        yield from self._dataset_contradictions(self.training.datasets, "training.datasets")
        for name in self.every_objective:
            yield from self._objective_contradictions(name)
        yield from self._experiment_contradictions()

    def _experiment_contradictions(self) -> Iterator[str]:
        owners = dict.fromkeys(self.objectives, "objectives")
        for name, experiment in self.experiments.items():
            for policy in experiment.objectives:
                if owners.setdefault(policy, f"experiments.{name}") != f"experiments.{name}":
                    yield f"experiments.{name}.objectives.{policy}: the name is taken by {owners[policy]}"
        for name, experiment in self.experiments.items():
            for policy in experiment.rows:
                if policy not in owners:
                    yield f"experiments.{name}.policies: no objective {policy!r}{_suggest(policy, owners)}"
                elif experiment.against == "k" and self.every_objective[policy].has_schedule:
                    yield f"experiments.{name}: the k of {policy!r} is a schedule, which `against: k` cannot draw"

    def _dataset_contradictions(self, names: Sequence[str], where: str) -> Iterator[str]:
        for name in names:
            if name not in self.datasets:
                yield f"{where} names {name!r}, which datasets does not hold{_suggest(name, self.datasets)}"
            elif not self.datasets[name].has("train"):
                yield f"{where} names {name!r}, which has train=0 problems"

    def _objective_contradictions(self, name: str) -> Iterator[str]:
        objective, where = self.every_objective[name], self._where(name)
        try:
            training = self.training_of(name)
        except ValidationError as error:
            yield "; ".join(_explain(item, Training, prefix=f"{where}.training.") for item in error.errors())
            return
        if 0 < self.gpus < training.processes:
            yield f"{where}: training.processes={training.processes} is more than gpus={self.gpus}; each takes a GPU"
        for k in objective_types.ks(objective.spec):
            if k > training.completions:
                yield f"{where}: k={k} is more than training.completions={training.completions}; k ≤ n is needed"
            if k == training.completions and objective.kind.flat_at_n:
                yield f"{where}: {objective.type} has no gradient at k = n = {k}; choose k < n"
        if objective.kind.off_policy and training.iterations < 2:
            yield (
                f"{where}: {objective.type} corrects for off-policy samples, but iterations={training.iterations} "
                f"makes none; set {where}.training.iterations to 2 or more (paper: 3)"
            )
        if "datasets" in objective.training:
            yield from self._dataset_contradictions(training.datasets, f"{where}.training.datasets")

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
        """The same configuration with the experiment's policies for objectives: what its reports are made from.

        Raises UserError where there is no such experiment.
        """
        if experiment not in self.experiments:
            known = ", ".join(self.experiments) or "none"
            raise UserError(f"no experiment {experiment!r}; this configuration has {known}")
        return self.only(self.experiments[experiment].rows)

    def only(self, rows: Sequence[str]) -> Config:
        """The same configuration with these policies, of the main tables or of experiments, for objectives."""
        known = self.every_objective
        labelled = {name: known[name].model_copy(update={"label": self.label(name)}) for name in rows}
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

    def seeded(self, objective: str) -> list[str]:
        """The policies of one objective, one a seed."""
        return [policy_name(objective, seed) for seed in self.seeds]

    def scores(self, policies: Sequence[str]) -> list[str]:
        """Score files of policies, on every evaluated dataset."""
        return [self.layout.scores(policy, dataset) for policy in policies for dataset in self.evaluated]

    def label(self, objective: str) -> str:
        """Row name of an objective (or of the base) in tables; one of an experiment says how it differs."""
        if objective == BASE:
            return objective_types.BASE_LABEL
        one = self.every_objective[objective]
        if one.label or objective in self.objectives:
            return one.label or one.kind.label
        differences = {**{key: value for key, value in one.spec.items() if key != "type"}, **one.training}
        if one.kind.uses_k:
            differences["k"] = objective_types.schedule(one.spec)
        return f"{one.kind.label} ({', '.join(f'{key} {_brief(value)}' for key, value in differences.items())})"

    def training_of(self, objective: str) -> Training:
        """`training` with the objective's own keys laid over it."""
        own = dict(self.every_objective[objective].training)
        return Training.model_validate({**self.training.model_dump(), **own})

    # ---- what decides a stage's result: these go into Snakemake's params and into every file's provenance
    def settings(self, stage: str, **of: Any) -> dict[str, Any]:
        """The part of the configuration that decides what `stage` writes, as plain JSON values.

        Execution details (workers, shards, checkpoint intervals) are left out: changing them repeats nothing.
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
                "objective": self.every_objective[of["objective"]].spec,
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


# ------------------------------------------------------------------------------------------------ loading
def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML file as a mapping. Raises UserError where it cannot be read."""
    try:
        with Path(path).open(encoding="utf-8") as handle:
            content = yaml.safe_load(handle)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"config {path}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        raise UserError(f"config {path}: not valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        raise UserError(f"config {path}: expected keys and values, got {type(content).__name__}")
    return content


def overlay(defaults: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` laid over `defaults` (see the module's docstring for what merges and what replaces)."""
    merged = dict(defaults)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = {**merged[key], **value} if both and key not in REPLACED_WHOLE else value
    if "objectives" in changes and "experiments" not in changes:
        merged.pop("experiments", None)  # they were put to policies that are no more
    return merged


def parse(content: Mapping[str, Any]) -> Config:
    """A validated configuration. Raises UserError naming every key at fault, in one line."""
    try:
        return Config.model_validate(content)
    except ValidationError as error:
        faults = "; ".join(_explain(item, Config) for item in error.errors())
        raise UserError(f"config: {faults}") from None


def experiment(path: str | Path | None) -> Config:
    """The experiment that a config file describes, laid over the default one; without a file, the default one.

    A resolved configuration (`results/NAME/config.json`) describes itself.
    """
    changes = read_yaml(path) if path is not None else {}
    return parse(overlay(read_yaml(DEFAULTS), changes))


def load(path: str | Path) -> Config:
    """A configuration from a file: the resolved one that the pipeline wrote (`results/config.json`), or YAML."""
    if not Path(path).exists():
        raise UserError(f"config {path}: no such file; name one by --config, or make it: `snakemake --cores all`")
    return parse(read_yaml(path))


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


_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


def _with_numbers(value: Any) -> Any:
    """The same with texts such as `5e-6` as numbers, in nested mappings too."""
    if isinstance(value, Mapping):
        return {key: _with_numbers(item) for key, item in value.items()}
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def _explain(error: ErrorDetails, model: type[BaseModel], prefix: str = "") -> str:
    """One pydantic error as `key: what is wrong, what was got`."""
    location, source = _without_source(error["loc"])
    key = prefix + ".".join(str(part) for part in location)
    if error["type"] == "extra_forbidden":
        allowed = _fields_at(model, location[:-1], source)
        return f"{key}: unknown key{_suggest(str(location[-1]), allowed)}; allowed: {', '.join(allowed)}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return f"{key}: {message}" if key else message
    if error["type"] == "missing":
        return f"{key}: missing"
    return f"{key}: {message[0].lower()}{message[1:]}, got {error['input']!r}"


def _without_source(location: Sequence[Any]) -> tuple[list[Any], str | None]:
    """A location without the `source` that pydantic adds to it (base.hub.model, datasets.NAME.mbpp.form)."""
    place = {"base": 1, "datasets": 2}.get(location[0] if location else "")
    parts = list(location)
    if place is None or len(parts) <= place:
        return parts, None
    return parts, str(parts.pop(place))


def _fields_at(model: type[BaseModel], location: Sequence[Any], source: str | None) -> list[str]:
    """Names of the keys allowed at `location`, found by walking the JSON schema."""
    schema = model.model_json_schema()
    candidates: list[dict[str, Any]] = [schema]
    for part in location:
        candidates = [c for node in candidates for c in _children(schema, node, part)]
    allowed = [_resolve(schema, node).get("properties", {}) for node in candidates]
    names = [name for one in allowed if one.get("source", {}).get("const", source) == source for name in one]
    return list(dict.fromkeys(names))


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
    return node


def _children(schema: dict[str, Any], node: dict[str, Any], part: Any) -> list[dict[str, Any]]:
    node = _resolve(schema, node)
    if part in node.get("properties", {}):
        child = node["properties"][part]
    else:
        child = node.get("additionalProperties") or next(iter(node.get("patternProperties", {}).values()), {})
    if not isinstance(child, dict):
        return []
    child = _resolve(schema, child)
    return child.get("oneOf") or child.get("anyOf") or [child]


def _brief(value: Any) -> str:
    """A parameter's value in a label: a flag as `yes`."""
    return str(value) if not isinstance(value, bool) else "yes" if value else "no"


def _suggest(got: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    nearest = difflib.get_close_matches(got, list(known), n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""


# ------------------------------------------------------------------------------------------------ reference
def reference() -> str:
    """config/README.md: every key with its type, default and meaning."""
    schema = Config.model_json_schema()
    lines = [_README_HEAD]
    sections = [("top level", Config.model_json_schema())]
    sections += [(name, node) for name, node in schema["$defs"].items()]
    for name, node in sections:
        title = "Top level" if name == "top level" else _section_title(name)
        lines += [f"## {title}", "", " ".join(node.get("description", "").split()), ""]
        lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
        required = node.get("required", [])
        for key, value in node["properties"].items():
            default = "required" if key in required else f"`{json.dumps(value.get('default'), ensure_ascii=False)}`"
            if "$ref" in value or "$ref" in str(value.get("default", "")):
                default = "see below"
            lines.append(f"| `{key}` | {_type_name(value)} | {default} | {value.get('description', '')} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


_README_HEAD = """# Configuration

<!-- Generated by `python -m maxk.config > config/README.md`; a test keeps it so. -->

`config.yaml` is the default experiment ("pocket"). `--configfile FILE` lays another file over it: sections merge key by
key, but `base`, `datasets`, `objectives` and `experiments` replace the default ones whole (and `experiments` go with
the `objectives` that they are put to). Single values can be given on the command line:
`snakemake --cores all --config 'training={epochs: 0.5}'`. A configuration with another `name` writes to
`results/{name}/`.

Everything is checked before any job starts; an unknown key is refused with the nearest known one.
"""


def _section_title(name: str) -> str:
    titles = {
        "PretrainedBase": "`base` with `source: pretrain`",
        "HubBase": "`base` with `source: hub`",
        "Corpus": "`base.corpus`",
        "Architecture": "`base.architecture`",
        "PocketDataset": "`datasets.NAME` with `source: pocket`",
        "CodeContestsDataset": "`datasets.NAME` with `source: code_contests`",
        "CureDataset": "`datasets.NAME` with `source: cure`",
        "LiveCodeBenchDataset": "`datasets.NAME` with `source: livecodebench`",
        "LiveBenchDataset": "`datasets.NAME` with `source: livebench`",
        "CodeforcesDataset": "`datasets.NAME` with `source: codeforces`",
        "MbppDataset": "`datasets.NAME` with `source: mbpp`",
        "AppsDataset": "`datasets.NAME` with `source: apps`",
        "TokenLimit": "`datasets.NAME.length`",
        "HubCopy": "`datasets.NAME.without`",
        "Objective": "`objectives.NAME`",
        "Experiment": "`experiments.NAME`",
        "Vllm": "`sampling.vllm`",
    }
    return titles.get(name, f"`{name.lower()}`")


def _type_name(value: Mapping[str, Any]) -> str:
    if "$ref" in value or "oneOf" in value or value.get("type") == "object":
        return "section"
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{item}`" for item in value["enum"])
    if "anyOf" in value:
        return " or ".join(_type_name(item) for item in value["anyOf"])
    if value.get("type") == "array":
        items = value.get("items") or (value.get("prefixItems") or [{}])[0]
        return f"list of {_type_name(items)}"
    return str(value.get("type", "any"))


if __name__ == "__main__":
    print(reference(), end="")
