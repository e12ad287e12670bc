"""`maxk grade` on plain JSON lines."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from maxk.errors import UserError
from maxk.stages import grade

PROBLEMS = [
    {"problem_id": "double", "tests": [{"stdin": "2", "expected": "4"}, {"stdin": "5", "expected": "10"}]},
    {"problem_id": "any", "tests": [{"stdin": "", "expected": "1 2"}], "time_limit_s": 0.5,
     "checker": "import sys\na, b = [sorted(open(p).read().split()) for p in sys.argv[2:]]\nprint(int(a == b))"},
]  # fmt: skip
SAMPLES = [
    {"problem_id": "double", "completion": "```python\nprint(int(input()) * 2)\n```"},
    {"problem_id": "double", "completion": "```python\nprint(4)\n```"},
    {"problem_id": "double", "completion": "I do not know."},
    {"problem_id": "any", "program": "print(2, 1)"},
    {"problem_id": "any", "program": "print(2)"},
    {"problem_id": "any", "program": "while True: pass"},
]


def write(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    grade.register_parser(parser.add_subparsers())
    args = parser.parse_args(["grade", *map(str, arguments)])
    return args.run(args)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "problems.jsonl", PROBLEMS), write(tmp_path / "samples.jsonl", SAMPLES)


def test_verdicts_and_summary(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    run(*files, "--k", "1,2,3")
    rows = [json.loads(line) for line in files[1].with_suffix(".verdicts.jsonl").read_text().splitlines()]
    assert [(row["sample"], row["reward"]) for row in rows] == [
        (0, 1.0),
        (1, 0.5),
        (2, 0.0),
        (3, 1.0),
        (4, 0.0),
        (5, 0.0),
    ]
    assert rows[2]["statuses"] == ["unparseable"] * 2
    assert rows[5]["statuses"] == ["time_limit"]
    summary = json.loads(capsys.readouterr().out)
    assert summary["max@k"] == pytest.approx({"1": (0.5 + 1 / 3) / 2, "2": (5 / 6 + 2 / 3) / 2, "3": 1.0})
    assert summary["pass@k"] == pytest.approx({"1": 1 / 3, "2": 2 / 3, "3": 1.0})


def test_a_stopped_run_goes_on_where_it_ended(files: tuple[Path, Path]) -> None:
    run(*files)
    output = files[1].with_suffix(".verdicts.jsonl")
    whole = [json.loads(line) for line in output.read_text().splitlines()]
    lines = output.read_text().splitlines(keepends=True)
    output.write_text("".join(lines[:2]) + lines[2][:10])  # killed while writing the third
    run(*files)
    again = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["sample"], row["statuses"]) for row in again] == [(row["sample"], row["statuses"]) for row in whole]
    before = output.read_text()
    run(*files)
    assert output.read_text() == before


@pytest.mark.parametrize("what", ["sample", "tests", "limit"])
def test_verdicts_of_other_input_are_refused(what: str, files: tuple[Path, Path]) -> None:
    run(*files)
    output = files[1].with_suffix(".verdicts.jsonl")
    before = output.read_text()
    options = []
    if what == "sample":
        write(files[1], [{**SAMPLES[0], "completion": "print(2)"}, *SAMPLES[1:]])
    elif what == "tests":
        write(files[0], [{**PROBLEMS[0], "tests": [{"stdin": "2", "expected": "5"}]}, PROBLEMS[1]])
    else:
        options = ["--cpu-s", "1.5"]
    with pytest.raises(UserError, match="made from another sample, problem, limit or sandbox"):
        run(*files, *options)
    assert output.read_text() == before


def test_k_above_n_and_uneven_samples_are_told(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="9 is more than the 3 samples of problem 'double'"):
        run(*files, "--k", "1,9")
    assert not files[1].with_suffix(".verdicts.jsonl").exists()  # told before any work
    uneven = write(tmp_path / "uneven.jsonl", SAMPLES[:5])
    capsys.readouterr()
    run(files[0], uneven)
    summary = json.loads(capsys.readouterr().out)
    assert "'any' has 2 samples, 'double' 3" in summary["note"]
    assert "max@k" not in summary
    run(files[0], write(tmp_path / "lost.jsonl", SAMPLES[:3]))
    summary = json.loads(capsys.readouterr().out)
    assert "'any' has 0 samples, 'double' 3" in summary["note"]
    assert "max@k" not in summary


def test_a_broken_checker_is_told_and_never_a_zero(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write(files[0], [PROBLEMS[0], {**PROBLEMS[1], "checker": "1/0"}])
    with pytest.raises(UserError, match=r"sample 3 of problem 'any'.* could not be graded"):
        run(*files)
    told = "could not grade 2 test runs: a checker does not accept the expected output '1 2': runtime_error"
    assert told in capsys.readouterr().err


def test_ungraded_samples_are_named_not_averaged(files: tuple[Path, Path]) -> None:
    run(*files)
    output = files[1].with_suffix(".verdicts.jsonl")
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    write(output, [*rows[:4], {**rows[4], "reward": None, "statuses": ["harness_error"]}, rows[5]])
    with pytest.raises(UserError, match=r"sample 4 of problem 'any'.* could not be graded"):
        run(*files)


@pytest.mark.parametrize(
    ("problems", "samples", "message"),
    [
        ([{"problem_id": "a", "tests": []}], [], "no tests"),
        ([{"tests": []}], [], "needs problem_id"),
        (PROBLEMS[:1] * 2, [], "stands twice"),
        (PROBLEMS, [{"problem_id": "x", "program": ""}], "no problem 'x'"),
        (PROBLEMS, [{"problem_id": "any"}], "neither completion nor program"),
        ([[1]], [], "not a JSON object"),
        ([], [], "holds no problem"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, problems: list, samples: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(write(tmp_path / "p.jsonl", problems), write(tmp_path / "s.jsonl", samples))


def test_files_that_cannot_be_read(tmp_path: Path, files: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        run(tmp_path / "missing.jsonl", files[1])
    files[1].write_text("{not json\n")
    with pytest.raises(UserError, match=r"samples.jsonl:1: not JSON .*mend or delete this line"):
        run(*files)
    write(files[1], SAMPLES)
    with pytest.raises(UserError, match="--k"):
        run(*files, "--k", "one")
