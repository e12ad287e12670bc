"""The cost of an experiment, before it runs: jobs, samples, test runs, GPU time and disk, from its config and rates.

`config/rates.yaml` holds the rates, each with its unit and source, for a base model and a device. Problems are counted
in the prepared files if there are any, else assumed. Where jobs of a stage have finished, their measured time replaces
the rates. GPU time is what a scheduler counts: a job holds its GPUs, or its fraction of one, while it loads the model,
and while a training step's programs are graded (`maxk plan --config config/paper.yaml`).
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from maxk.artifacts import files, records
from maxk.config import Config, HubBase, read_yaml
from maxk.errors import UserError
from maxk.reporting import markdown
from maxk.resources import gpus, memory

SECONDS = 3600.0


class Rate(BaseModel):
    """A number with its unit and source."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    value: float = Field(gt=0)
    unit: str
    source: str = Field(alias="from")


class Profile(BaseModel):
    """Rates of a base model on a device; a job uses `devices` GPUs (0: one CPU core)."""

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


class Rates(BaseModel):
    """`config/rates.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    profiles: Mapping[str, Profile]


class Count(NamedTuple):
    """Problems of a split, and the sum of their tests."""

    problems: int
    tests: float
    prepared: bool


class Row(NamedTuple):
    """One line of the plan: what each job needs, and sums over jobs and devices."""

    stage: str
    jobs: int
    gpus: int = 0  # per job
    memory_gb: float = 0  # main memory, per job
    hours: float = 0  # per job
    samples: int = 0
    tests: float = 0
    device_hours: float = 0
    core_hours: float = 0
    disk_gb: float = 0
    measured: int = 0  # runs of the stage (for all shards of a policy) that have finished, from which `hours` comes


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
        wanted = f"profile {name!r}" if name else f"profile for the base model {base}"
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


def plan(config: Config, profile: Profile) -> Iterator[Row]:
    """One row per stage, and per objective for training."""
    yield Row(
        "prepare", len(config.datasets), memory_gb=max(memory.prepare(config, one) for one in config.datasets) / 1e3
    )
    yield Row("base", jobs=1)
    for objective in config.objectives:
        yield _training(config, objective, profile)
    counts = [count(config, name, "test") for name in config.evaluated]
    policies, n = len(config.policies), config.sampling.n
    samples = policies * n * sum(one.problems for one in counts)
    tests = policies * n * sum(one.tests for one in counts)
    jobs = policies * config.sampling.shards
    tokens = samples * profile.completion_tokens.value
    seconds = tokens / profile.generated_tokens_per_s.value / config.sampling.gpus / jobs + profile.startup_s.value
    sample = Row("sample", jobs, memory_gb=memory.sample(config) / 1e3, samples=samples)
    sample = sample._replace(disk_gb=tokens * profile.bytes_per_token.value / 1e9)
    taken = _by_shard(config, "sample")
    yield _on_devices(sample, seconds, config.sampling.gpus, profile, config.sampling.gpu, taken)
    graded = tests / profile.tests_per_s.value / SECONDS
    hours, taken = graded / config.verification.workers / jobs, _by_shard(config, "verify")
    if taken:
        hours = statistics.mean(taken) / SECONDS
    verify = Row("verify", jobs, memory_gb=memory.verify(config) / 1e3, hours=hours, tests=tests)
    verify = verify._replace(measured=len(taken))
    yield verify._replace(core_hours=graded)
    yield Row("score", policies)


def _training(config: Config, objective: str, profile: Profile) -> Row:
    """The processes of a job share its tokens; all wait while programs run on the CPU."""
    training, seeds = config.training_of(objective), len(config.seeds)
    counts = [count(config, name, "train") for name in training.datasets]
    passes = training.epochs * training.num_generations
    samples = math.ceil(passes * sum(one.problems for one in counts))
    tests = passes * sum(one.tests for one in counts)
    tokens = samples * (profile.prompt_tokens.value + profile.completion_tokens.value) * training.iterations
    work = samples * profile.completion_tokens.value / profile.generated_tokens_per_s.value
    work += tokens / profile.trained_tokens_per_s.value
    graded = tests / profile.tests_per_s.value
    seconds = (work + graded / config.verification.workers) / training.processes + profile.startup_s.value
    row = Row(
        f"train {objective}",
        jobs=seeds,
        memory_gb=memory.train(config, objective) / 1e3,
        samples=seeds * samples,
        tests=seeds * tests,
        core_hours=seeds * graded / SECONDS,
        disk_gb=seeds * profile.policy_gb.value,
    )
    taken = [second for jobs in finished(config, "train", objective).values() for second in jobs]
    return _on_devices(row, seconds, training.processes, profile, training.gpu, taken)


def finished(config: Config, *stage: str) -> dict[Path, list[float]]:
    """Seconds of the stage's jobs that have finished, as Snakemake measured them, by folder."""
    found: dict[Path, list[float]] = {}
    for path in sorted(Path(config.layout.benchmark(*stage)).with_suffix("").rglob("*.tsv")):
        [row] = csv.DictReader(path.read_text().splitlines(), delimiter="\t")
        found.setdefault(path.parent, []).append(float(row["s"]))
    return found


def _by_shard(config: Config, stage: str) -> list[float]:
    """Seconds that a shard takes, from every policy that has finished shards, perhaps of another number."""
    return [sum(jobs) / config.sampling.shards for jobs in finished(config, stage).values()]


def _on_devices(
    row: Row, seconds: float, devices: int, profile: Profile, fraction: float, taken: Sequence[float]
) -> Row:
    """The row with the time of its jobs: on GPUs, or on cores if the profile has no GPU.

    `seconds` come from rates of a job alone on its GPU; the times of finished jobs, `taken`, replace them, and those
    jobs shared the GPU if they take a `fraction`.
    """
    hours = (statistics.mean(taken) if taken else seconds) / SECONDS
    row = row._replace(hours=hours, measured=len(taken))
    held = hours * devices * row.jobs
    if profile.devices:
        return row._replace(gpus=devices, device_hours=held * (fraction if taken else 1))
    return row._replace(core_hours=held)


def total(rows: Sequence[Row]) -> Row:
    """Sums over rows."""
    added = ("jobs", "samples", "tests", "device_hours", "core_hours", "disk_gb")
    return Row("total", **{name: sum(getattr(row, name) for row in rows) for name in added})


def peak_disk_gb(config: Config, rows: Sequence[Row], profile: Profile) -> float:
    """Peak disk use: all policies and samples, and the checkpoints of simultaneous training jobs.

    A job keeps two checkpoints while it writes a third, and removes them when it ends.
    """
    trained = [config.training_of(objective) for objective in config.objectives]
    jobs = len(trained) * len(config.seeds)
    taken = [gpus.percent(training.gpu) * training.processes_per_node for training in trained]
    at_once = min(jobs, max(1, 100 * config.gpus // min(taken))) if trained else 0
    return total(rows).disk_gb + 3 * at_once * profile.checkpoint_gb.value


# -------------------------------------------------------------------------------------------------------------- text
def lines(config: Config, rates: Rates, name: str) -> Iterator[str]:
    """The plan as text: the table, the datasets, and the rates with their sources."""
    profile = rates.profiles[name]
    rows = list(plan(config, profile))
    datasets = markdown.count(len(config.evaluated), "dataset")
    yield f"{config.name}: {len(config.policies)} policies on {datasets}, rates of {name}"
    yield ""
    yield _FORMAT.format("", "", *["per job"] * 3, *[""] * 5).rstrip()
    yield _FORMAT.format("stage", *(heading for heading, _ in _COLUMNS.values()))
    for row in [*rows, total(rows)]:
        cells = ((getattr(row, column), shown) for column, (_, shown) in _COLUMNS.items())
        yield _FORMAT.format(row.stage, *(shown(value) if value else "-" for value, shown in cells))
    yield ""
    if profile.devices:
        devices = config.gpus or profile.devices
        time = _time(total(rows).device_hours / devices)
        yield f"{time} on {markdown.count(devices, 'GPU')}, if none is ever idle"
    yield f"{_size(peak_disk_gb(config, rows, profile))} of disk at most, with the checkpoints of training jobs"
    if config.experiments:
        yield f"not in this plan: experiments {', '.join(config.experiments)} (add `--experiment NAME`)"
    if timed := [f"{row.stage} ({markdown.count(row.measured, 'run')})" for row in rows if row.measured]:
        yield f"measured, not estimated by rates: {', '.join(timed)}"
    yield ""
    for dataset, section in config.datasets.items():
        found = [(split, count(config, dataset, split)) for split in ("train", "test") if section.has(split)]
        said = ", ".join(f"{one.problems} {split} ({one.tests:.0f} tests)" for split, one in found)
        known = "prepared" if all(one.prepared for _, one in found) else f"assumed: {section.planned.basis}"
        yield f"{dataset}: {said} [{known}]"
    yield ""
    for key, rate in profile:
        if isinstance(rate, Rate):
            yield f"{key}: {rate.value:g} {rate.unit} [{rate.source}]"


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


_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "jobs": ("jobs", _count),
    "gpus": ("GPUs", _count),
    "memory_gb": ("memory", _size),
    "hours": ("time", _time),
    "samples": ("samples", _count),
    "tests": ("test runs", _count),
    "device_hours": ("GPU time", _time),
    "core_hours": ("CPU time", _time),
    "disk_gb": ("disk", _size),
}
_FORMAT = "{:30}{:>6}{:>8}{:>10}{:>9}{:>12}{:>13}{:>11}{:>11}{:>11}"
