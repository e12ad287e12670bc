"""What an experiment will take: jobs, samples, test runs, GPU-hours and disk, from its config and from measured rates.

Rates are read from `config/rates.yaml`, where each has a unit and a source; they are for a base model and a device, so
plans are as good as those. Problems are counted in the prepared files where they are there, else assumed.

    maxk plan config/paper.yaml
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from maxk import files, records
from maxk.config import Config, HubBase, PocketDataset, read_yaml
from maxk.errors import UserError

SECONDS = 3600.0


class Rate(BaseModel):
    """A number with its unit and where it comes from."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    value: float = Field(gt=0)
    unit: str
    source: str = Field(alias="from")


class Profile(BaseModel):
    """Rates of a base model on a device; `devices` GPUs work on a job (0: one CPU core)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    bases: tuple[str, ...]
    devices: int = Field(ge=0)
    generated_tokens_per_s: Rate
    trained_tokens_per_s: Rate
    tests_per_s: Rate
    prompt_tokens: Rate
    completion_tokens: Rate
    bytes_per_token: Rate
    policy_gb: Rate
    checkpoint_gb: Rate


class Expected(BaseModel):
    """What a source is expected to give until it is prepared."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    train: int = Field(ge=0)
    test: int = Field(ge=0)
    tests: int = Field(ge=1)
    source: str = Field(alias="from")


class Rates(BaseModel):
    """`config/rates.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    profiles: Mapping[str, Profile]
    datasets: Mapping[str, Expected]


class Count(NamedTuple):
    """Problems of a split and tests of all of them together."""

    problems: int
    tests: float
    prepared: bool


class Row(NamedTuple):
    """One line of the plan; hours are summed over jobs and devices."""

    stage: str
    jobs: int
    samples: int = 0
    tests: float = 0
    device_hours: float = 0
    core_hours: float = 0
    disk_gb: float = 0


def read_rates(path: str) -> Rates:
    try:
        return Rates.model_validate(read_yaml(path))
    except ValidationError as error:
        fault = error.errors()[0]
        raise UserError(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}, got {fault['input']!r}") from None


def choose(rates: Rates, config: Config, name: str | None) -> str:
    """The profile named, or that of the base model."""
    base = config.base.model if isinstance(config.base, HubBase) else config.base.source
    found = [name] if name else [key for key, profile in rates.profiles.items() if base in profile.bases]
    if not found or found[0] not in rates.profiles:
        wanted = f"profile {name!r}" if name else f"profile for the base model {base}"
        raise UserError(f"no {wanted}; name one by --profile ({', '.join(rates.profiles)}) or add it to the rates")
    return found[0]


def count(config: Config, name: str, split: str, rates: Rates) -> Count:
    """From the prepared file, else from the configuration and what the source is expected to give."""
    path, dataset = config.layout.problems(name), config.datasets[name]
    if Path(path).exists():
        table = files.read_table(path, records.PROBLEM).select(["split", "tests"]).to_pylist()
        tests = [len(row["tests"]) for row in table if row["split"] == split]
        return Count(len(tests), sum(tests), True)
    expected = rates.datasets[dataset.source]
    wanted = getattr(dataset, split)
    problems = int(getattr(expected, split) if wanted == "all" else wanted)
    most = dataset.tests if isinstance(dataset, PocketDataset) else dataset.max_tests or expected.tests
    each = most if isinstance(dataset, PocketDataset) else min(most, expected.tests)
    return Count(problems, problems * each, False)


def plan(config: Config, rates: Rates, profile: Profile) -> Iterator[Row]:
    """The plan, a stage at a time."""
    yield Row("prepare", jobs=len(config.datasets))
    yield Row("base", jobs=1)
    for objective in config.objectives:
        yield _training(config, objective, rates, profile)
    counts = [count(config, name, "test", rates) for name in config.evaluated]
    policies, n = len(config.policies), config.sampling.n
    samples = policies * n * sum(one.problems for one in counts)
    tests = policies * n * sum(one.tests for one in counts)
    tokens = samples * profile.completion_tokens.value
    jobs = policies * config.sampling.shards
    disk = tokens * profile.bytes_per_token.value / 1e9
    hours = tokens / profile.generated_tokens_per_s.value / SECONDS
    yield _on_device(Row("sample", jobs, samples, disk_gb=disk), hours, profile)
    yield Row("verify", jobs, samples, tests, core_hours=tests / profile.tests_per_s.value / SECONDS)
    yield Row("score", policies)


def _training(config: Config, objective: str, rates: Rates, profile: Profile) -> Row:
    training = config.training_of(objective)
    counts = [count(config, name, "train", rates) for name in training.datasets]
    passes, seeds = training.epochs * training.completions, len(config.seeds)
    samples = math.ceil(passes * sum(one.problems for one in counts))
    tests = passes * sum(one.tests for one in counts)
    tokens = samples * (profile.prompt_tokens.value + profile.completion_tokens.value) * training.iterations
    seconds = samples * profile.completion_tokens.value / profile.generated_tokens_per_s.value
    seconds += tokens / profile.trained_tokens_per_s.value
    row = Row(
        f"train {objective}",
        jobs=seeds,
        samples=seeds * samples,
        tests=seeds * tests,
        core_hours=seeds * tests / profile.tests_per_s.value / SECONDS,
        disk_gb=seeds * (profile.policy_gb.value + profile.checkpoint_gb.value),
    )
    return _on_device(row, seeds * seconds / SECONDS, profile)


def _on_device(row: Row, hours: float, profile: Profile) -> Row:
    """Work of GPUs, or of cores where the profile has none."""
    if profile.devices:
        return row._replace(device_hours=hours)
    return row._replace(core_hours=row.core_hours + hours)


def total(rows: Sequence[Row]) -> Row:
    return Row("total", *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True)))


# -------------------------------------------------------------------------------------------------------------- text
def lines(config: Config, rates: Rates, name: str) -> Iterator[str]:
    """The plan as text: the table, the datasets it counts, and the rates with their sources."""
    profile = rates.profiles[name]
    rows = list(plan(config, rates, profile))
    yield f"{config.name}: {len(config.policies)} policies, {len(config.evaluated)} evaluated datasets, rates {name}"
    yield ""
    yield _FORMAT.format("stage", "jobs", "samples", "test runs", "GPU-h", "core-h", "disk GB")
    for row in [*rows, total(rows)]:
        yield _FORMAT.format(row.stage, *map(_number, row[1:]))
    if profile.devices:
        hours = total(rows).device_hours
        yield ""
        yield f"{hours / profile.devices:.1f} hours on {profile.devices} GPU(s), if all are busy all the time"
    yield ""
    for dataset, section in config.datasets.items():
        found = [(split, count(config, dataset, split, rates)) for split in ("train", "test") if section.has(split)]
        said = ", ".join(f"{one.problems} {split} ({one.tests:.0f} tests)" for split, one in found)
        known = (
            "prepared" if all(one.prepared for _, one in found) else f"assumed: {rates.datasets[section.source].source}"
        )
        yield f"{dataset}: {said} [{known}]"
    yield ""
    for key, rate in _rates(profile):
        yield f"{key}: {rate.value:g} {rate.unit} [{rate.source}]"


_FORMAT = "{:32}{:>6}{:>13}{:>15}{:>10}{:>10}{:>10}"


def _number(value: Any) -> str:
    if isinstance(value, int) or value >= 1000:
        return f"{value:,.0f}" if value else "-"
    return f"{value:.2g}" if 0 < value < 1 else f"{value:.1f}" if value else "-"


def _rates(profile: Profile) -> Iterator[tuple[str, Rate]]:
    for key in type(profile).model_fields:
        value = getattr(profile, key)
        if isinstance(value, Rate):
            yield key, value
