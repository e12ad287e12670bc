"""What `maxk inspect` says of a dataset, on problems made here and on a prepared one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from maxk import cli
from maxk.artifacts import files
from maxk.artifacts.records import Problem, Provenance, Test
from maxk.config import Config
from maxk.reporting import inspection


def problem(name: str, *outputs: str, split: str = "test", statement: str = "") -> Problem:
    tests = [Test(f"{i}\n", output) for i, output in enumerate(outputs)]
    return Problem(f"d/{name}", "d", split, statement or f"Task {name}", tests)


def report(train: list[Problem], test: list[Problem]) -> list[str]:
    splits = {split: problems for split, problems in (("train", train), ("test", test)) if problems}
    funnel = {"rows": 9, "with_tests": 7, "train": len(train), "test": len(test)}
    return list(inspection.lines("d", splits, funnel, {"d": train}, lambda text: f"<{text}>", ("characters", len)))


def test_the_best_constant_program_earns_the_most_frequent_output() -> None:
    assert inspection.constant_reward(problem("a", "YES\n", "NO\n", "YES", " YES  \n")) == 0.75
    constant = inspection.best_constants([problem("a", "1", "2"), problem("b", "1", "1")])
    assert constant == (0.75, 1)
    assert inspection.best_constants([dataclasses.replace(problem("a", "1"), checker="print(1)")]) is None


def test_the_report_holds_funnel_lengths_and_a_problem() -> None:
    lines = report([problem("a", "1", "2", "3", "4", split="train")], [problem("b", "1", "2")])
    assert lines[0] == "d: 1 train problem and 1 test problem"
    assert "  with_tests                             7  −2" in lines
    assert "train: tests per problem min 4, median 4, max 4" in lines
    assert "test: prompt length in characters min 8, median 8, max 8" in lines
    assert "test: the best constant programs get 0.500 and solve 0 problems" in lines
    assert "  | <Task a>" in lines
    assert not [line for line in lines if line.split()[:1] == ["test"] and "−" in line]  # drawn, not filtered
    assert "input '0\\n', expected output '1'" in lines
    assert "… and 1 more test" in lines


def test_trivial_tasks_and_leaks_are_warned_of() -> None:
    lines = report(
        [problem("a", "1", "2", "3", split="train", statement="Add  numbers")],
        [problem("b", "1", "1", statement="add numbers"), problem("c", "1", "2")],
    )
    warnings = [line for line in lines if line.startswith("warning")]
    assert warnings == [
        "warning: test: programs that print a constant get a mean reward of 0.750",
        "warning: test: a constant solves 1 problem; set distinct_outputs to 2 or more",
        "warning: 1 test problem of d also in the train split of d: d/b = d/a",
    ]
    assert not [line for line in report([], [problem("a", "1", "2", "3")]) if line.startswith("warning")]


def test_the_command_reads_what_prepare_wrote(
    seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files.write_text(seconds.layout.config, seconds.model_dump_json())
    files.write_text("config.json", seconds.model_dump_json())
    name = seconds.training.datasets[0]
    assert cli.main(["inspect", name, "--config", "config.json"]) == 2
    made = f"snakemake --configfile {seconds.layout.config} --cores all {seconds.layout.problems(name)}"
    assert f"no such file; make it: `{made}`" in capsys.readouterr().err
    assert cli.main(["inspect", "nothing", "--config", "config.json"]) == 2
    assert "no dataset 'nothing'" in capsys.readouterr().err

    problems = [problem(f"{split}{i}", "1", "2", "3", split=split) for split in ("train", "test") for i in range(2)]
    files.write_problems(seconds.layout.problems(name), problems, Provenance("prepare", seconds.name, {}))
    files.write_json(seconds.layout.funnel(name), {"drawn": 9, "train": 2, "test": 2})
    assert cli.main(["inspect", name, "--config", "config.json"]) == 0
    said = capsys.readouterr().out
    assert f"{name}: 2 train problems and 2 test problems" in said
    assert "characters (the tokenizer of the base policy is not available)" in said
