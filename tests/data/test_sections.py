"""Sections of benchmarks in the configuration: faults are named with the keys of their own source."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import raw

from maxk import cli
from maxk import config as configuration
from maxk.artifacts import files
from maxk.config import Config
from maxk.data.mbpp import MbppDataset
from maxk.errors import UserError

ROOT = Path(__file__).parents[2]
MODEL = {"source": "hub", "model": "models/any"}


def parse(defaults: dict, name: str = "mbpp", **section: Any) -> Config:
    """The default experiment with one dataset, trained on."""
    changes = {"name": "x", "base": MODEL, "datasets": {name: section}, "training": {"datasets": [name]}}
    return configuration.parse(configuration.overlay(defaults, changes))


def fault(defaults: dict, **section: Any) -> str:
    with pytest.raises(UserError) as error:
        parse(defaults, **section)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_an_unknown_key_is_compared_with_those_of_its_source(defaults: dict) -> None:
    message = fault(defaults, source="mbpp", from_="flat", train="all")
    assert "datasets.mbpp.from_: unknown key (did you mean 'form'?)" in message
    assert "same_types" in message
    assert "transforms" not in message
    assert "upstream_splits" not in message
    assert "datasets.mbpp.length.token: unknown key (did you mean 'tokens'?)" in fault(
        defaults, source="mbpp", train="all", length={"token": 3, "tokenizer": "x"}
    )


def test_faults_are_named(defaults: dict) -> None:
    message = fault(defaults, source="mbbp")
    assert "datasets.mbpp: source='mbbp' is unknown (did you mean 'mbpp'?); known: apps, " in message
    assert "datasets.mbpp: needs the key 'source', got {'train': 3}" in fault(defaults, train=3)
    assert "datasets.mbpp: source=['mbpp'] is unknown (did you mean 'mbpp'?)" in fault(defaults, source=["mbpp"])
    assert "datasets.mbpp.form" in fault(defaults, source="mbpp", form="json", train="all")
    assert "train" in fault(defaults, source="mbpp", train="some")
    assert "datasets.mbpp.location: missing" in fault(defaults, source="cure", train=3)
    assert "train=0" in fault(defaults, source="mbpp")
    assert "test: all takes all rows" in fault(defaults, source="code_contests", train=3)


def test_what_is_no_mapping_is_named(defaults: dict) -> None:
    with pytest.raises(UserError, match=r"^config: datasets\.mbpp: expected keys and values, got \[\]"):
        configuration.parse(configuration.overlay(defaults, {"datasets": {"mbpp": []}}))
    with pytest.raises(UserError, match=r"^config: expected keys and values, got \[\]$"):
        configuration.parse([])


def test_the_pretrained_model_reads_pocket_tasks_only(defaults: dict) -> None:
    changes = {"datasets": {**defaults["datasets"], "mbpp": {"source": "mbpp"}}}
    with pytest.raises(UserError, match=r"base\.source: pretrain .* natural language: mbpp; set base to a code model"):
        configuration.parse(configuration.overlay(defaults, changes))
    assert configuration.parse(configuration.overlay(defaults, {**changes, "base": MODEL}))


def test_a_dataset_says_which_splits_it_has(defaults: dict) -> None:
    config = parse(defaults, source="mbpp", train="all")
    dataset = config.datasets["mbpp"]
    assert dataset.has("train")
    assert dataset.has("test")
    assert config.evaluated == ["mbpp"]
    assert not MbppDataset(source="mbpp").has("train")


def test_problems_depend_on_the_grader_where_it_checks_them(defaults: dict) -> None:
    plain = parse(defaults, source="mbpp", train="all")
    checked = parse(defaults, source="mbpp", train="all", check_solutions=1)
    assert set(plain.settings("prepare", dataset="mbpp")) == {"dataset"}
    assert set(checked.settings("prepare", dataset="mbpp")) == {"dataset", "verification"}


def test_a_failed_preparation_is_one_line_and_writes_nothing(
    defaults: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    raw.jsonl(tmp_path / "rows.jsonl", [raw.livecodebench_row("a"), raw.livecodebench_row("b", private_test_cases="?")])
    section = {"source": "livecodebench", "location": "rows.jsonl", "train": 1, "test": 1}
    changes = {
        "datasets": {"d": section},
        "training": {"datasets": ["d"]},
        "tracking": {"enabled": False},
        "base": MODEL,
        "experiments": {},
    }
    config = configuration.parse(configuration.overlay(defaults, changes))
    files.write_text("results/config.json", config.model_dump_json())
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(["prepare", "d"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("maxk prepare: d/b: its test cases cannot be decoded")
    assert said.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before

    raw.jsonl(tmp_path / "rows.jsonl", [raw.livecodebench_row("a"), raw.livecodebench_row("b")])
    assert cli.main(["prepare", "d"]) == 0
    assert "d: rows 2" in capsys.readouterr().err
    assert files.read_json(config.layout.funnel("d"))["test"] == 1
    assert len(files.read_problems(config.layout.problems("d"), "train")) == 1


@pytest.mark.slow
def test_an_edited_data_file_is_prepared_again(tmp_path: Path) -> None:
    rows = [{"statement": f"Task {i}", "tests": [["1\n", "1\n"]]} for i in range(2)]
    raw.jsonl(tmp_path / "own rows.jsonl", rows)
    section = {"source": "jsonl", "location": "own rows.jsonl", "train": 1, "test": 1}
    config = {"name": "x", "base": MODEL, "datasets": {"d": section}, "objectives": {}, "training": {"datasets": ["d"]}}
    files.write_json(tmp_path / "config.yaml", config)
    problems = tmp_path / "results/x/data/d/problems.parquet"
    files.write_text(problems, "")
    files.write_text(problems.with_name("funnel.json"), "")
    order = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile", "config.yaml"]

    def said() -> str:
        target = str(problems.relative_to(tmp_path))
        done = subprocess.run(
            [*order, "-n", "--cores", "1", "--", target], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    os.utime(tmp_path / "own rows.jsonl", (0, 0))
    assert "Nothing to be done" in said()
    os.utime(tmp_path / "own rows.jsonl")
    again = said()
    assert re.search(r"^ ?prepare +1 *$", again, re.MULTILINE)
