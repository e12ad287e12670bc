"""The cost of an experiment, before it runs: jobs, samples, test runs, GPU time and disk, from its config and rates.

`config/rates.yaml` holds the rates, each with its unit and source, for a base model and a device. Problems are counted
in the prepared files if there are any, else assumed. GPU time is what a scheduler counts: a job holds its GPUs, or its
fraction of one (`training.gpu`, `sampling.gpu`), while it loads the model, and while a training step's programs are
graded (`maxk plan --config config/paper.yaml`). Jobs on one GPU slow each other down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from maxk.artifacts import files, records
from maxk.config import Config, HubBase, read_yaml
from maxk.errors import UserError, counted, suggest
from maxk.reporting import markdown, terminal
from maxk.resources import gpus, memory

SECONDS = 3600.0


class Rate(BaseModel):
    """A number with its unit and source."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    value: float = Field(gt=0)
    unit: str
    source: str = Field(alias="from")


_NO_GAIN = Rate.model_validate(
    {"value": 1, "unit": "of a job's time alone per other job on its GPU", "from": "assumed: sharing gains nothing"}
)


class Profile(BaseModel):
    """Rates of a base model on a device; a job uses `devices` GPUs (0: one CPU core).

    Speeds are those of a job alone on its GPU. Every other job there adds `training_neighbour` or `sampling_neighbour`
    times a job's time alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    bases: tuple[str, ...]
    devices: int = Field(ge=0)
    generated_tokens_per_s: Rate
    trained_tokens_per_s: Rate
    tests_per_s: Rate
    prompt_tokens: Rate
    completion_tokens: Rate
    bytes_per_token: Rate
    startup_s: Rate
    policy_gb: Rate
    checkpoint_gb: Rate
    training_neighbour: Rate = _NO_GAIN
    sampling_neighbour: Rate = _NO_GAIN


class Rates(BaseModel):
    """`config/rates.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    profiles: Mapping[str, Profile]


class Count(NamedTuple):
    """Problems of a split, and the sum of their tests."""

    problems: int
    tests: float
    prepared: bool


def read_rates(path: str) -> Rates:
    try:
        return Rates.model_validate(read_yaml(path))
    except ValidationError as error:
        fault = error.errors()[0]
        raise UserError(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}, got {fault['input']!r}") from None


def choose(rates: Rates, config: Config, name: str | None) -> str:
    """The named profile, or that of the base model."""
    base = config.base.model if isinstance(config.base, HubBase) else config.base.source
    found = [name] if name else [key for key, profile in rates.profiles.items() if base in profile.bases]
    if not found or found[0] not in rates.profiles:
        wanted = f"profile {name!r}{suggest(name, rates.profiles)}" if name else f"profile for the base model {base}"
        raise UserError(f"no {wanted}; name one by --profile ({', '.join(rates.profiles)}) or add it to the rates")
    return found[0]


def count(config: Config, name: str, split: str) -> Count:
    """Counts the prepared file; without one, takes the configuration and what its class assumes of the source."""
    path, dataset = config.layout.problems(name), config.datasets[name]
    if Path(path).exists():
        table = files.read_table(path, records.PROBLEM).select(["split", "tests"]).to_pylist()
        tests = [len(row["tests"]) for row in table if row["split"] == split]
        return Count(len(tests), sum(tests), True)
    wanted = getattr(dataset, split)
    problems = int(getattr(dataset.planned, split) if wanted == "all" else wanted)
    return Count(problems, problems * dataset.tests_per_problem, False)


def plan(config: Config, profile: Profile) -> pd.DataFrame:
    """One row per stage, and per objective for training, with the columns of `_SHOWN`; 0 where one does not apply.

    Jobs, samples, tests, GPU time, CPU time and disk are sums over jobs; GPUs, memory and time are those of each, which
    has as many jobs of its stage on its GPU as there are and fit.
    """
    counts = [count(config, name, "test") for name in config.evaluated]
    policies, n = len(config.policies), config.sampling.n
    samples = policies * n * sum(one.problems for one in counts)
    tests = policies * n * sum(one.tests for one in counts)
    jobs = policies * config.sampling.shards
    tokens = samples * profile.completion_tokens.value
    drawing = tokens / profile.generated_tokens_per_s.value / config.sampling.gpus / jobs
    others = _neighbours(config, profile, jobs, config.sampling.gpus, config.sampling.gpu)
    drawing *= 1 + others * profile.sampling_neighbour.value
    graded = tests / profile.tests_per_s.value / SECONDS
    rows: dict[str, dict[str, float]] = {
        "prepare": {
            "jobs": len(config.datasets),
            "memory_gb": max(memory.prepare(config, one) for one in config.datasets) / 1e3,
        },
        "base": {"jobs": 1},
        **{f"train {objective}": _training(config, objective, profile) for objective in config.objectives},
        "sample": {
            **_held(drawing + profile.startup_s.value, config.sampling.gpus, config.sampling.gpu, jobs, profile),
            "memory_gb": memory.sample(config) / 1e3,
            "samples": samples,
            "disk_gb": tokens * profile.bytes_per_token.value / 1e9,
        },
        "verify": {
            "jobs": jobs,
            "memory_gb": memory.verify(config) / 1e3,
            "hours": graded / config.verification.workers / jobs,
            "tests": tests,
            "core_hours": graded,
        },
        "score": {"jobs": policies},
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(_SHOWN), dtype=float).fillna(0)


def _training(config: Config, objective: str, profile: Profile) -> dict[str, float]:
    """The processes of a job share its tokens; all wait while programs run on the CPU."""
    training, seeds = config.training_of(objective), len(config.seeds)
    counts = [count(config, name, "train") for name in training.datasets]
    passes = training.epochs * training.num_generations
    samples = math.ceil(passes * sum(one.problems for one in counts))
    tests = passes * sum(one.tests for one in counts)
    tokens = samples * (profile.prompt_tokens.value + profile.completion_tokens.value) * training.iterations
    work = samples * profile.completion_tokens.value / profile.generated_tokens_per_s.value
    work += tokens / profile.trained_tokens_per_s.value
    others = _neighbours(config, profile, len(config.objectives) * seeds, training.processes, training.gpu)
    work *= 1 + others * profile.training_neighbour.value
    graded = tests / profile.tests_per_s.value
    seconds = (work + graded / config.verification.workers) / training.processes + profile.startup_s.value
    return {
        "memory_gb": memory.train(config, objective) / 1e3,
        "samples": seeds * samples,
        "tests": seeds * tests,
        "core_hours": seeds * graded / SECONDS,
        "disk_gb": seeds * profile.policy_gb.value,
        **_held(seconds, training.processes, training.gpu, seeds, profile),
    }


def _devices(config: Config, profile: Profile) -> int:
    """GPUs of the machine; 0 if the profile has none."""
    return profile.devices and (config.gpus or profile.devices)


def _neighbours(config: Config, profile: Profile, jobs: int, processes: int, fraction: float) -> int:
    """Other jobs on a job's GPU: jobs go to the GPU with most room, so they share one only when there are too few."""
    if not profile.devices:
        return 0
    return min(100 // gpus.percent(fraction), math.ceil(jobs * processes / _devices(config, profile))) - 1


def _held(seconds: float, processes: int, fraction: float, jobs: int, profile: Profile) -> dict[str, float]:
    """The time of jobs of so many seconds: on fractions of GPUs, or on cores if the profile has no GPU."""
    each, held = {"jobs": jobs, "hours": seconds / SECONDS}, seconds / SECONDS * processes * jobs
    if not profile.devices:
        return {**each, "core_hours": held}
    part = gpus.percent(fraction) / 100
    return {**each, "gpus": processes * part, "device_hours": held * part}


def wall_hours(config: Config, rows: pd.DataFrame, profile: Profile, cores: int) -> tuple[float, float, float]:
    """Hours for which the GPUs and so many cores are busy, and hours if every stage waits for the one before to end.

    A stage takes as long as one of its jobs at least. The larger of the first two is a bound; a run with few jobs takes
    about the third.
    `base`, `prepare`, `score` and reports are not counted, nor parts of a GPU that stay free since no job fits.
    """
    devices = max(1, _devices(config, profile))
    amounts = rows[["device_hours", "core_hours"]] / [devices, cores]
    stages = rows[["hours"]].join(amounts).groupby(lambda row: row.split()[0])
    in_turn = stages.agg({"hours": "max", "device_hours": "sum", "core_hours": "sum"}).max(axis=1).sum()
    busy = amounts.sum()
    return float(busy.device_hours), float(busy.core_hours), float(in_turn)


def peak_disk_gb(config: Config, rows: pd.DataFrame, profile: Profile) -> float:
    """Peak disk use: all policies and samples, and the checkpoints of simultaneous training jobs.

    A job keeps two checkpoints while it writes a third, and removes them when it ends.
    """
    trained = [config.training_of(objective) for objective in config.objectives]
    jobs = len(trained) * len(config.seeds)
    fit = [config.gpus * (100 // gpus.percent(one.gpu)) // one.processes_per_node for one in trained]
    at_once = min(jobs, max(1, *fit)) if trained else 0
    return float(rows.disk_gb.sum()) + 3 * at_once * profile.checkpoint_gb.value


# -------------------------------------------------------------------------------------------------------------- text
def lines(config: Config, rates: Rates, name: str, cores: int, here: bool = False) -> Iterator[str]:
    """The plan as text for a machine of so many cores: the table, the datasets, and the rates with their sources.

    here: whether the cores are those of this machine, which need not be the one with the GPUs.
    """
    profile = rates.profiles[name]
    rows = plan(config, profile)
    datasets = counted(len(config.evaluated), "dataset")
    policies = counted(len(config.policies), "policy", "policies")
    yield terminal.wrapped(f"{config.name}: {policies} on {datasets}, rates of {name}")
    yield ""
    yield terminal.fitted(_table(rows))
    yield ""
    on_gpus, on_cores, in_turn = wall_hours(config, rows, profile, cores)
    devices = _devices(config, profile)
    busy = [f"{counted(devices, 'GPU')} {_time(on_gpus)}"] * bool(devices)
    busy += ["this machine's " * here + f"{counted(cores, 'core')} {_time(on_cores)}"]
    yield terminal.wrapped(
        f"at least {_time(max(on_gpus, on_cores))} (busy: {', '.join(busy)}); {_time(in_turn)} if training, sampling "
        "and grading follow one another"
    )
    if here and devices:
        yield "for another machine than this one, give its number of cores: `--cores N`"
    yield "not in these times: preparing problems and the base model, scores and reports"
    yield f"{_size(peak_disk_gb(config, rows, profile))} of disk at most, with the checkpoints of training jobs"
    if config.experiments:
        left_out = ", ".join(config.experiments)
        yield terminal.wrapped(f"not in this plan: experiments {left_out} (add `--experiment NAME`)")
    yield ""
    for dataset, section in config.datasets.items():
        found = [(split, count(config, dataset, split)) for split in ("train", "test") if section.has(split)]
        said = ", ".join(f"{one.problems} {split} ({counted(round(one.tests), 'test')})" for split, one in found)
        known = "prepared" if all(one.prepared for _, one in found) else f"assumed: {section.planned.basis}"
        yield terminal.wrapped(f"{dataset}: {said} [{known}]")
    yield ""
    for key, rate in profile:
        if isinstance(rate, Rate):
            yield terminal.wrapped(f"{key}: {rate.value:g} {rate.unit} [{rate.source}]")


def _table(rows: pd.DataFrame) -> str:
    """The rows and their sum, with the columns that any row has, as a pipe table."""
    total = rows.sum().where(~rows.columns.isin(["gpus", "memory_gb", "hours"]), 0)
    table = pd.concat([rows, total.to_frame("total").T])
    shown = {column: of for column, of in _SHOWN.items() if table[column].any()}
    lines = markdown.head(["stage", *(heading for heading, _ in shown.values())])
    for stage, values in table.iterrows():
        cells = [form(values[column]) if values[column] else "–" for column, (_, form) in shown.items()]
        lines.append(markdown.row([markdown.escape(str(stage)), *cells]))
    return "\n".join(lines)


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _time(hours: float) -> str:
    """A duration as seconds, minutes or hours."""
    if hours < 2 / 60:
        return f"{hours * SECONDS:.0f} s"
    return f"{hours * 60:.0f} min" if hours < 2 else f"{hours:,.1f} h"


def _size(gb: float) -> str:
    """A size as MB or GB."""
    return f"{gb * 1e3:.1f} MB" if gb < 1 else f"{gb:,.1f} GB"


# In an order that folds to two tables on a terminal of 80 columns.
_SHOWN: dict[str, tuple[str, Callable[[float], str]]] = {
    "jobs": ("jobs", _count),
    "gpus": ("GPUs/job", "{:g}".format),
    "memory_gb": ("memory/job", _size),
    "hours": ("time/job", _time),
    "device_hours": ("GPU time", _time),
    "samples": ("samples", _count),
    "tests": ("test runs", _count),
    "core_hours": ("CPU time", _time),
    "disk_gb": ("disk", _size),
}
