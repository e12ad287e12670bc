"""Every benchmark from raw rows in the hub's schema, through `datasets` or JSON, to problems that the grader grades."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import raw

from maxk import data
from maxk.artifacts.records import Problem
from maxk.config import Config
from maxk.evaluation import problem_grader
from maxk.grading import Grader, Limits


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(Limits(cpu_s=2), workers=1) as one:
        yield one


def rewards(grader: Grader, problems: list[Problem], program: str) -> list[float]:
    submissions = [problem_grader.submission(program, problem, grader.limits) for problem in problems]
    return [verdict.reward for verdict in grader.grade(submissions)]


def load(**keys: Any) -> tuple[dict[str, Problem], dict[str, int]]:
    """Problems by upstream id, and the funnel."""
    problems, funnel = data.load("d", raw.section(**keys))
    return {problem.problem_id.removeprefix("d/"): problem for problem in problems}, funnel


# ----------------------------------------------------------------------------------------------------- CodeContests
def test_code_contests(tmp_path: Path, grader: Grader) -> None:
    rows = [
        raw.code_contests_row("1_A. Sum"),
        raw.code_contests_row("p00001 Plus", difficulty=0, time_limit=None, memory_limit_bytes=0),
        raw.code_contests_row("too hard", difficulty=4),
        raw.code_contests_row("reads a file", input_file="input.txt"),
        raw.code_contests_row("twin", description="ADD two  numbers, says task 1_A. Sum."),
        raw.code_contests_row("no tests", **dict.fromkeys(("public_tests", "private_tests", "generated_tests"))),
        raw.code_contests_row("third", public_tests=raw.parallel([("1 1\r\n", "2\r\n")])),
    ]
    problems, funnel = load(source="code_contests", location=raw.code_contests(tmp_path, rows))
    assert set(problems) == {"1_A. Sum", "p00001 Plus", "third"}
    assert funnel == {
        "rows": 7,
        "difficulty": 6,
        "standard_streams": 5,
        "with_statement": 5,
        "with_tests": 4,
        "tests_within_size": 4,
        "not_duplicate": 3,
        "train": 0,
        "test": 3,
    }
    assert problems["third"].tests[0] == ("1 1\n", "2\n")
    first, plus = problems["1_A. Sum"], problems["p00001 Plus"]
    assert [test.expected for test in first.tests] == ["3\n", "4\n", "15\n"]
    assert (first.time_limit_s, first.memory_limit_mb) == (1.5, 256)
    assert (plus.time_limit_s, plus.memory_limit_mb) == (None, None)
    assert rewards(grader, list(problems.values()), raw.ADD) == [1.0] * 3


def test_checking_by_solutions_says_how_far_it_is(
    tmp_path: Path, seconds: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [raw.code_contests_row(name, description=f"Add two numbers, {name}.") for name in ("one", "two", "three")]
    config = raw.section(source="code_contests", location=raw.code_contests(tmp_path, rows), check_solutions=1)
    monkeypatch.chdir(tmp_path)  # the verdict cache is made here
    monkeypatch.setattr("maxk.progress.LINE_EVERY_S", 0.0)
    problems, _ = data.load("d", config, problem_grader.validate_solutions(seconds, "prepare d: programs run"))
    assert len(problems) == 3
    said = capsys.readouterr().err
    assert "prepare d: programs run: 1/3 in " in said
    assert "prepare d: programs run: 3/3 in " in said


def test_code_contests_are_validated_with_their_own_solutions(tmp_path: Path, grader: Grader) -> None:
    wrong_generated = raw.parallel([("1 1\n", "7\n"), ("4 4\n", "8\n")])
    rows = [
        raw.code_contests_row("sound"),
        raw.code_contests_row("bad input", generated_tests=wrong_generated),
        raw.code_contests_row("several answers", private_tests=raw.parallel([("1 1\n", "7\n")])),
        raw.code_contests_row("no python", solutions={"language": [2], "solution": ["int main() {}"]}),
    ]
    config = raw.section(source="code_contests", location=raw.code_contests(tmp_path, rows), check_solutions=3)

    def validate(programs: Any) -> list[Any]:
        return [v.statuses for v in grader.grade([problem_grader.submission(p, q, grader.limits) for p, q in programs])]

    problems, funnel = data.load("d", config, validate)
    by_name = {problem.problem_id: problem for problem in problems}
    assert set(by_name) == {"d/sound", "d/bad input", "d/no python"}
    assert [test.expected for test in by_name["d/bad input"].tests] == ["3\n", "4\n", "8\n"]
    assert (funnel["generated_tests"], funnel["generated_tests_confirmed"]) == (5, 3)
    assert funnel["confirmed_by_solutions"] == 3


# -------------------------------------------------------------------------------------------------------------- CURE
def test_cure(tmp_path: Path, grader: Grader) -> None:
    rows = [raw.cure_row(7), raw.cure_row(8, test_time_limit=None), raw.cure_row(9, exe_method="function")]
    (tmp_path / "MBPP.json").write_text(json.dumps(rows))
    problems, funnel = load(source="cure", location=tmp_path)
    assert list(problems) == ["7", "8"]
    assert (problems["7"].time_limit_s, problems["8"].time_limit_s) == (1.0, None)
    assert (funnel["rows"], funnel["standard_streams"]) == (3, 2)
    assert rewards(grader, list(problems.values()), raw.ADD) == [1.0, 1.0]


# ----------------------------------------------------------------------------------------------------- LiveCodeBench
def test_the_real_row_of_livecodebench(grader: Grader) -> None:
    problems, _ = load(source="livecodebench", location=raw.LIVECODEBENCH)
    [problem] = problems.values()
    assert problem.problem_id == "d/1873_A"
    assert len(problem.tests) == 5
    assert problem.statement.startswith("There are three cards")
    program = "for _ in range(int(input())):\n    print('YES' if input() in 'abc acb bac cba'.split() else 'NO')\n"
    assert rewards(grader, [problem], program) == [1.0]


def test_functional_rows_become_programs(tmp_path: Path, grader: Grader) -> None:
    rows = [raw.livecodebench_row("abc1_a"), raw.functional_row("2727")]
    raw.jsonl(tmp_path / "test6.jsonl", rows)
    keys = {"source": "livecodebench", "location": tmp_path, "version": "v6"}
    problems, _ = load(**keys)
    asked = problems["2727"]
    assert raw.FUNCTION.strip() in asked.statement
    assert "print(json.dumps(Solution().add(*arguments)))" in asked.statement
    assert asked.tests[1] == ("[]\n-1\n", "-1\n")
    solution = "from typing import List\n" + raw.FUNCTION + "return sum(terms) + more\n"
    main = asked.statement.split("may end with:\n")[1]
    assert rewards(grader, [asked], solution + main) == [1.0]

    problems, funnel = load(**keys, functional="drop")
    assert list(problems) == ["abc1_a"]
    assert (funnel["rows"], funnel["standard_streams"]) == (2, 1)


def test_a_release_is_all_its_files_or_a_mirror(tmp_path: Path) -> None:
    for number in ("", "2", "3"):
        raw.jsonl(tmp_path / f"test{number}.jsonl", [raw.livecodebench_row(f"q{number}")])
    assert len(load(source="livecodebench", location=tmp_path, version="release_v3")[0]) == 3
    assert list(load(source="livecodebench", location=tmp_path, version="v2")[0]) == ["q2"]
    with pytest.raises(data.UserError, match=r"has no data files test\.jsonl\* and .* test6\.jsonl\*"):
        load(source="livecodebench", location=tmp_path)

    features = raw.Features(dict.fromkeys(raw.livecodebench_row(""), raw.TEXT))
    mirror = tmp_path / "mirror"
    raw.parquet(mirror / "release_v6" / "test-00000-of-00001.parquet", [raw.livecodebench_row("m")], features)
    assert list(load(source="livecodebench", location=mirror)[0]) == ["m"]


# --------------------------------------------------------------------------------------------------------- LiveBench
def test_livebench(tmp_path: Path, grader: Grader) -> None:
    functional = {
        "original_json": {"starter_code": raw.FUNCTION, "metadata": raw.FUNCTION_METADATA},
        "public_test_cases": json.dumps(raw.FUNCTION_CASES[:1]),
        "private_test_cases": raw.packed(raw.FUNCTION_CASES[1:]),
    }
    rows = [
        raw.livebench_row("generate", "LCB_generation"),
        raw.livebench_row("complete", "coding_completion", partial_solution="terms = input()\n"),
        raw.livebench_row(
            "function", "coding_completion", partial_solution=raw.FUNCTION + "total = more", **functional
        ),
    ]
    raw.parquet(tmp_path / "data" / "test-00000-of-00001.parquet", rows, raw.LIVEBENCH)
    problems, _ = load(source="livebench", location=tmp_path)
    assert "the beginning included:\n\nterms = input()" in problems["complete"].statement
    assert "total = more" in problems["function"].statement
    assert rewards(grader, [problems["generate"], problems["complete"]], raw.ADD) == [1.0, 1.0]

    problems, funnel = load(source="livebench", location=tmp_path, tasks=["coding_completion"], functional="drop")
    assert list(problems) == ["complete"]
    assert (funnel["rows"], funnel["task"], funnel["standard_streams"]) == (3, 2, 1)


# -------------------------------------------------------------------------------------------------------- CodeForces
CHECKER = """
import sys
expected, got = (float(open(path).read()) for path in sys.argv[2:4])
print(1 if abs(expected - got) < 0.5 else 0)
"""


def test_codeforces(tmp_path: Path, grader: Grader) -> None:
    rows = [
        raw.codeforces_row("1/A"),
        raw.codeforces_row("1/B", generated_checker=CHECKER),
        raw.codeforces_row("1/C", input_mode="file"),
        raw.codeforces_row("1/D", interaction_format="Ask at most ten questions."),
        raw.codeforces_row("1/E", official_tests_complete=False),
        raw.codeforces_row("1/F", description=None),
    ]
    for split, part in (("train", [raw.codeforces_row("9/A")]), ("test", rows)):
        raw.parquet(tmp_path / "data" / f"{split}-00000-of-00001.parquet", part, raw.CODEFORCES)
    problems, funnel = load(source="codeforces", location=tmp_path, train="all")
    assert {name: problem.split for name, problem in problems.items()} == {"9/A": "train", "1/A": "test", "1/B": "test"}
    assert [funnel[s] for s in ("rows", "standard_streams", "not_interactive", "complete_tests")] == [7, 6, 5, 4]
    assert problems["1/A"].tests[0] == ("1 2\n", "3\n")  # CRLF upstream
    assert problems["1/A"].statement == (
        "Sum 1/A\n\nAdd two numbers, says problem 1/A.\n\nInput\nTwo integers.\n\nOutput\nTheir sum.\n\n"
        "Examples\nInput\n1 2\nOutput\n3"
    )
    close = "print(sum(map(int, input().split())) + 0.25)"
    assert rewards(grader, [problems["1/A"], problems["1/B"]], close) == [0.0, 1.0]


def test_codeforces_without_what_code_contests_holds(tmp_path: Path) -> None:
    known = [
        raw.code_contests_row("10_A. Queue", cf_contest_id=10, cf_index="A"),
        raw.code_contests_row("11_B. Old Name", cf_contest_id=11, cf_index="B"),
        raw.code_contests_row("chef Lunch"),
    ]
    rows = [
        raw.codeforces_row("10/A"),
        raw.codeforces_row("12/C", aliases=["99/Z", "11/B"]),
        raw.codeforces_row("13/A", title="QUEUE!"),
        raw.codeforces_row("14/A", title="chef Lunch"),
    ]
    raw.parquet(tmp_path / "cf" / "data" / "test-00000-of-00001.parquet", rows, raw.CODEFORCES)
    without = {"location": str(raw.code_contests(tmp_path / "cc", known))}
    problems, funnel = load(source="codeforces", location=tmp_path / "cf", without=without)
    assert list(problems) == ["14/A"]
    steps = ("complete_tests", "id_not_in_code_contests", "alias_not_in_code_contests", "title_not_in_code_contests")
    assert [funnel[step] for step in steps] == [4, 3, 2, 1]


# -------------------------------------------------------------------------------------------------------------- APPS
def test_the_stdin_rows_of_apps() -> None:
    problems, funnel = load(source="apps", location=raw.APPS)
    assert list(funnel.values()) == [150, 150, 52, 52, 52, 52, 52, 49, 0, 49]
    assert sum(len(problem.tests) for problem in problems.values()) == 605
    assert all(6 <= len(problem.tests) <= 43 for problem in problems.values())
    problems, funnel = load(source="apps", location=raw.APPS, difficulties=["interview"])
    assert (len(problems), funnel["standard_streams"]) == (2, 4)


def test_apps_in_the_schema_of_the_hub(tmp_path: Path, grader: Grader) -> None:
    lines = json.dumps({"inputs": [["1", "2"]], "outputs": [["3"]]})
    called = json.dumps({"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]})
    rows = [
        raw.apps_row(0),
        raw.apps_row(1, input_output=lines),
        raw.apps_row(2, input_output=called),
        raw.apps_row(3, starter_code="def add(a, b):"),
        raw.apps_row(4, input_output=""),
    ]
    raw.jsonl(tmp_path / "test.jsonl", rows)
    raw.jsonl(tmp_path / "train.jsonl", [{**raw.apps_row(5), "problem_id": 5}])
    problems, funnel = load(source="apps", location=tmp_path, train=1)
    assert {name: problem.split for name, problem in problems.items()} == {"5": "train", "0": "test", "1": "test"}
    assert problems["1"].tests == [("1\n2", "3")]
    assert [funnel[s] for s in ("rows", "standard_streams", "no_function_name", "with_tests")] == [6, 5, 4, 3]
    assert rewards(grader, [problems["0"], problems["5"]], raw.ADD) == [1.0, 1.0]
