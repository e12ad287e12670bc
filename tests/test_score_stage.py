"""`maxk score`: shards are read together or refused, and the scores say what they were made from."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maxk import config as configuration
from maxk.artifacts import files, records
from maxk.artifacts.digests import digest_of
from maxk.artifacts.records import Policy, Problem, Provenance
from maxk.config import Config
from maxk.errors import UserError
from maxk.stages import score

N, SHARDS, POLICY, DATASET = 128, 2, "base", "toy"
FAMILY = {"source": "pocket", "transforms": [1], "open_operations": [1], "rare": 0.1, "readings": [0.5, 0.3, 0.2]}


def provenance(stage: str, config: Config, inputs: dict[str, str], **environment: str) -> Provenance:
    return Provenance(stage, config.name, config.settings(stage), inputs, environment)


def write_problems(config: Config, statement: str = "add") -> None:
    problems = [
        Problem(f"p{i}", DATASET, split, statement, [records.Test("1", "2")])
        for i, split in enumerate(["test", "train", "test", "test"])
    ]
    files.write_problems(config.layout.problems(DATASET), problems, Provenance("prepare", config.name, {}, {}, {}))


def write_policy(config: Config, seed: int = 0) -> None:
    policy = Policy(POLICY, "Base model", "model", lineage={"settings": config.settings("base"), "weights": seed})
    files.write_policy(config.layout.policy(POLICY), policy)


def write_samples(config: Config, shard: int, **changes: Any) -> None:
    policy = files.read_policy(config.layout.policy(POLICY))
    inputs = {
        "problems": files.digest(config.layout.problems(DATASET)),
        "policy": digest_of(policy.lineage),
    }
    source = dataclasses.replace(provenance("sample", config, inputs, backend="transformers"), **changes)
    ids = [f"p{i}" for i in (0, 2, 3)][shard::SHARDS]
    rows = [(one, i, f"print({i})", 5, "stop", 0.1) for one in ids for i in range(N)]
    columns = dict(zip(records.SAMPLE.names, map(list, zip(*rows, strict=True)), strict=True))
    files.write_table(config.layout.samples(POLICY, DATASET, shard), columns, records.SAMPLE, source)


def write_verdicts(config: Config, shard: int, **changes: Any) -> None:
    samples = config.layout.samples(POLICY, DATASET, shard)
    inputs = {
        "samples": files.digest(samples),
        "problems": files.digest(config.layout.problems(DATASET)),
    }
    source = dataclasses.replace(provenance("verify", config, inputs, sandbox="landlock"), **changes)
    table = files.read_table(samples, records.SAMPLE)
    columns = {
        "problem_id": table["problem_id"],
        "sample_index": table["sample_index"],
        "extraction": ["fenced"] * len(table),
        "statuses": [["passed" if i % 2 else "wrong_answer"] for i in table["sample_index"].to_pylist()],
    }
    files.write_table(config.layout.verdicts(POLICY, DATASET, shard), columns, records.VERDICT, source)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A toy experiment in two shards, sampled and verified."""
    monkeypatch.chdir(tmp_path)
    made = configuration.parse(
        {
            "base": {"source": "hub", "model": "some/model"},
            "datasets": {DATASET: {**FAMILY, "train": 1, "test": 3}},
            "objectives": {"grpo": {"type": "grpo"}},
            "training": {"datasets": [DATASET]},
            "sampling": {"n": N, "chunk": N, "shards": SHARDS},
            "report": {"ks": [1, 128]},
            "tracking": {"enabled": False},
        }
    )
    files.write_json(made.layout.config, made.model_dump(mode="json"))
    write_problems(made)
    write_policy(made)
    for shard in range(SHARDS):
        write_samples(made, shard)
        write_verdicts(made, shard)
    return made


def run(config: Config, policy: str = POLICY) -> None:
    score.run(argparse.Namespace(policy=policy, config=config.layout.config))


def test_scores_of_all_shards_with_their_provenance(config: Config) -> None:
    run(config)
    path = config.layout.scores(POLICY, DATASET)
    rows = files.read_table(path, records.SCORE).to_pylist()
    assert [row["problem_id"] for row in rows] == ["p0", "p2", "p3"]
    assert {row["c"] for row in rows} == {N // 2}
    assert rows[0]["max_at_k"] == pytest.approx([0.5, 1.0])
    source = files.read_provenance(path)
    assert source.settings == {
        **config.settings("sample"),
        **config.settings("verify"),
        **config.settings("score"),
    }
    samples, verdicts = config.layout.samples(POLICY, DATASET, 1), config.layout.verdicts(POLICY, DATASET, 1)
    assert set(source.inputs) == {
        "problems", "policy", "samples/0", "samples/1", "verdicts/0", "verdicts/1"
    }  # fmt: skip
    assert source.inputs["samples/1"] == files.digest(samples)
    assert source.inputs["verdicts/1"] == files.digest(verdicts)
    assert source.environment == {"sandbox": "landlock", "backend": "transformers"}


@pytest.mark.parametrize(
    ("key", "value", "decides"), [("sandbox", "off", True), ("cpu_s", 9.0, True), ("workers", 7, False)]
)
def test_what_can_change_a_verdict_identifies_it(config: Config, key: str, value: object, decides: bool) -> None:
    other = config.model_copy(update={"verification": config.verification.model_copy(update={key: value})})
    for stage in ("verify", "train"):
        changed = other.settings(stage, objective="grpo") != config.settings(stage, objective="grpo")
        assert changed == decides, stage


def test_the_same_inputs_give_the_same_bytes(config: Config) -> None:
    run(config)
    before = files.digest(config.layout.scores(POLICY, DATASET))
    run(config)
    assert files.digest(config.layout.scores(POLICY, DATASET)) == before


def resampled(config: Config) -> None:
    write_samples(config, 1, environment={"backend": "transformers", "note": "again"})


def other_settings(config: Config) -> None:
    settings = config.settings("sample")
    write_samples(config, 1, settings={**settings, "sampling": {**settings["sampling"], "temperature": 0.7}})
    write_verdicts(config, 1)


def other_sandbox(config: Config) -> None:
    write_verdicts(config, 1, environment={"sandbox": "off"})


def other_sandbox_setting(config: Config) -> None:
    settings = config.settings("verify")
    write_verdicts(config, 1, settings={**settings, "verification": {**settings["verification"], "sandbox": "off"}})


def other_problems(config: Config) -> None:
    write_problems(config, statement="subtract")


def other_problems_for_verdicts(config: Config) -> None:
    write_problems(config, statement="subtract")
    for shard in range(SHARDS):
        write_verdicts(config, shard)


def other_policy(config: Config) -> None:
    write_policy(config, seed=1)


def other_base_settings(config: Config) -> None:
    """A base policy made before the configuration changed."""
    stale = {"settings": {**config.settings("base"), "prompt": {"template": "{statement}?"}}}
    files.write_policy(config.layout.policy(POLICY), Policy(POLICY, "Base model", "model", lineage=stale))


def other_experiment(config: Config) -> None:
    write_samples(config, 0, experiment="other")
    write_verdicts(config, 0)


def no_verdicts(config: Config) -> None:
    Path(config.layout.verdicts(POLICY, DATASET, 1)).unlink()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (resampled, r"verdicts/base/toy/1.parquet: made from another version of results/samples/base/toy/1.parquet"),
        (other_settings, r"toy/0.parquet and .*toy/1.parquet do not belong .*settings.sampling.temperature is 1.0"),
        (other_sandbox, r"toy/0.parquet and .*toy/1.parquet do not belong .*sandbox is 'landlock' in one and 'off'"),
        (other_sandbox_setting, r"toy/1.parquet do not belong .*verification.sandbox is 'auto' in one and 'off'"),
        (
            other_problems,
            r"base/toy/0.parquet: sampled with another version of results/data/toy/problems.parquet",
        ),
        (other_problems_for_verdicts, r"verdicts/.* and .*samples/.* were made from different problems"),
        (
            other_policy,
            r"base/toy/0.parquet: sampled with another version of results/policies/base/policy.json",
        ),
        (
            other_base_settings,
            r"base/policy.json and .*config.json do not belong .*settings.prompt.template is .*maxk base",
        ),
        (other_experiment, r"samples/base/toy/0.parquet: made by experiment 'other', but the config is named"),
        (no_verdicts, r"verdicts/base/toy/1.parquet: no such file"),
    ],
)
def test_what_does_not_belong_together_is_refused(config: Config, spoil: Callable[[Config], None], says: str) -> None:
    spoil(config)
    with pytest.raises(UserError, match=says) as error:
        run(config)
    assert "\n" not in str(error.value)
    assert not Path(config.layout.scores(POLICY, DATASET)).exists()


def trained(config: Config) -> dict[str, Any]:
    """The lineage of a policy trained with this configuration, base policy and data."""
    return {
        "settings": config.settings("train", objective="grpo"),
        "seed": 0,
        "base": digest_of(files.read_policy(config.layout.policy(POLICY)).lineage),
        "data": {DATASET: files.digest(config.layout.problems(DATASET))},
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"settings": {"objective": {"type": "bon_mean"}}}, "settings.objective.type is 'bon_mean' in one and 'grpo'"),
        ({"base": "another"}, "base is 'another' in one and"),
        ({"data": {DATASET: "others"}}, f"data.{DATASET} is 'others' in one and"),
        ({"data": {}}, f"data.{DATASET} is None in one and"),
    ],
)
def test_a_policy_trained_otherwise_is_refused_with_the_command_that_mends(
    config: Config, change: dict[str, Any], says: str
) -> None:
    policy = Policy("grpo/seed0", "GRPO", "model", lineage={**trained(config), **change})
    files.write_policy(config.layout.policy("grpo/seed0"), policy)
    with pytest.raises(UserError) as error:
        run(config, "grpo/seed0")
    message = str(error.value)
    assert message.startswith("results/policies/grpo/seed0/policy.json and results/config.json do not belong together")
    assert says in message
    assert "run `maxk train grpo --seed 0` again" in message
    assert "\n" not in message


def test_a_policy_trained_as_configured_passes(config: Config) -> None:
    policy = Policy("grpo/seed0", "GRPO", "model", lineage=trained(config))
    files.write_policy(config.layout.policy("grpo/seed0"), policy)
    with pytest.raises(UserError, match=r"samples/grpo/seed0/toy/0\.parquet: no such file"):
        run(config, "grpo/seed0")
