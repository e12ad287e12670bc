"""Reads all shards of a policy's samples and verdicts on a dataset, and refuses shards that do not belong together.

Shards must agree on settings, problems, policy, backend and sandbox, and verdicts must name the digest of their
samples. A mismatch (a shard with old settings, verdicts of samples that have been regenerated) is a `UserError` that
names both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from maxk.artifacts import files, records
from maxk.artifacts.digests import digest_of
from maxk.artifacts.paths import BASE
from maxk.artifacts.provenance import require_equal
from maxk.artifacts.records import Provenance
from maxk.config import Config
from maxk.errors import UserError


@dataclass(frozen=True)
class Shard:
    """A file of samples and the file of its verdicts, with their provenance."""

    samples: str
    verdicts: str
    sampled: Provenance
    verified: Provenance
    digests: tuple[str, str]


@dataclass(frozen=True)
class Evaluation:
    """All samples and verdicts of a policy on a dataset, and the provenance of their scores."""

    problem_ids: Sequence[str]
    samples: pa.Table
    verdicts: pa.Table
    source: Provenance


def read(config: Config, policy: str, dataset: str) -> Evaluation:
    """Reads the shards. Raises UserError unless shards, verdicts, policy and problems belong together."""
    lineage = files.read_policy(config.layout.policy(policy)).lineage
    _require_current(config, policy, lineage)
    shards = [_shard(config, policy, dataset, index) for index in range(config.sampling.shards)]
    first = shards[0]
    remedy = f"run `maxk sample {policy}` and `maxk verify {policy}` again"
    for other in shards[1:]:
        require_equal(first.samples, _shared(first.sampled), other.samples, _shared(other.sampled), remedy)
        require_equal(first.verdicts, _shared(first.verified), other.verdicts, _shared(other.verified), remedy)
    problems_path, policy_path = config.layout.problems(dataset), config.layout.policy(policy)
    tasks = files.read_tasks(problems_path, "test")
    current = {
        "problems": (problems_path, files.digest(problems_path)),
        "policy": (policy_path, digest_of(lineage)),
    }
    for name, (path, digest) in current.items():
        if first.sampled.inputs.get(name) != digest:
            raise UserError(f"{first.samples}: sampled with another version of {path}; {remedy}")
    return Evaluation(
        problem_ids=[task.problem_id for task in tasks],
        samples=pa.concat_tables(files.read_table(shard.samples, records.SAMPLE) for shard in shards),
        verdicts=pa.concat_tables(files.read_table(shard.verdicts, records.VERDICT) for shard in shards),
        source=_provenance(config, shards, lineage),
    )


def _require_current(config: Config, policy: str, lineage: Mapping[str, Any]) -> None:
    """Raises UserError unless the policy was made with the current configuration, base policy and training data."""
    if policy == BASE:
        stage, again, of = "base", "maxk base", {}
    else:
        objective, seed = policy.split("/seed")
        stage, again, of = "train", f"maxk train {objective} --seed {seed}", {"objective": objective}
    wanted: dict[str, Any] = {"settings": config.settings(stage, **of)}
    if policy != BASE:
        names = config.training_of(of["objective"]).datasets
        wanted["base"] = digest_of(files.read_policy(config.layout.policy(BASE)).lineage)
        wanted["data"] = {name: files.digest(config.layout.problems(name)) for name in names}
    made = {key: lineage.get(key) for key in wanted}
    path = config.layout.policy(policy)
    require_equal(path, made, config.layout.config, wanted, f"run `{again}` again, then sample and verify")


def _shard(config: Config, policy: str, dataset: str, index: int) -> Shard:
    samples = config.layout.samples(policy, dataset, index)
    verdicts = config.layout.verdicts(policy, dataset, index)
    sampled, verified = files.read_provenance(samples), files.read_provenance(verdicts)
    for path, source in ((samples, sampled), (verdicts, verified)):
        if source.experiment != config.name:
            raise UserError(
                f"{path}: made by experiment {source.experiment!r}, but the config is named {config.name!r}; "
                "give each experiment its own folder"
            )
    digests = files.digest(samples), files.digest(verdicts)
    if verified.inputs.get("samples") != digests[0]:
        raise UserError(f"{verdicts}: made from another version of {samples}; run `maxk verify {policy}` again")
    if verified.inputs.get("problems") != sampled.inputs.get("problems"):
        raise UserError(f"{verdicts} and {samples} were made from different problems; run `maxk sample {policy}` again")
    return Shard(samples, verdicts, sampled, verified, digests)


def _shared(source: Provenance) -> dict[str, Any]:
    """What all shards of a policy and dataset share: everything but the digest of a shard's samples."""
    environment = {key: source.environment.get(key) for key in ("sandbox", "backend")}
    inputs = {key: value for key, value in source.inputs.items() if key != "samples"}
    return {"settings": source.settings, "inputs": inputs, "environment": environment}


def _provenance(config: Config, shards: Sequence[Shard], lineage: Mapping[str, Any]) -> Provenance:
    first = shards[0]
    inputs = {name: first.sampled.inputs[name] for name in ("problems", "policy")}
    for index, shard in enumerate(shards):
        inputs[f"samples/{index}"], inputs[f"verdicts/{index}"] = shard.digests
    return Provenance(
        stage="score",
        experiment=config.name,
        settings={**first.sampled.settings, **first.verified.settings, **config.settings("score")},
        inputs=inputs,
        environment={
            "sandbox": first.verified.environment.get("sandbox"),
            "backend": first.sampled.environment.get("backend"),
        },
        lineage=lineage,
    )
