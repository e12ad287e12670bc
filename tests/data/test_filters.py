"""The filters that all benchmarks share, their counts, and the draw of the splits."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import raw

from maxk import data
from maxk.artifacts.records import Problem, Test
from maxk.data import filters
from maxk.data.candidates import Candidate, Funnel
from maxk.data.filters import complete
from maxk.errors import UserError
from maxk.grading import CheckerProgram, Grader, Submission

TESTS = [Test("1\n", "1\n"), Test("2\n", "2\n")]


def candidate(name: str, split: str = "", **changes: Any) -> Candidate:
    problem = Problem(f"d/{name}", "d", split, changes.pop("statement", f"Task {name}"), changes.pop("tests", TESTS))
    return Candidate(problem, **changes)


def run(candidates: list[Candidate], validate: Any = None, **keys: Any) -> tuple[list[Problem], Funnel]:
    config = raw.section(**{"source": "code_contests", "location": "unused", **keys})
    funnel = Funnel("d")
    return complete(config, candidates, funnel, validate), funnel


def names(problems: list[Problem], split: str) -> list[str]:
    return [problem.problem_id.removeprefix("d/") for problem in problems if problem.split == split]


def test_what_cannot_be_graded_goes_and_is_counted() -> None:
    huge = [Test("x" * (filters.MAX_TEST_BYTES + 1), "1\n")]
    problems, funnel = run(
        [candidate("a"), candidate("b", statement=" "), candidate("c", tests=[]), candidate("e", tests=huge)]
    )
    assert names(problems, "test") == ["a"]
    assert list(funnel.items())[:3] == [("with_statement", 3), ("with_tests", 2), ("tests_within_size", 1)]
    assert funnel.dropped["tests_within_size"] == ["d/e"]
    assert "d: tests_within_size 1 (without 1: d/e)" in list(data.lines("d", funnel))


def test_a_test_above_64_megabytes_is_left_out_by_name(tmp_path: Path) -> None:
    tests = {"test_input": ["1 2\n", "7" * 70_000_000], "test_output": ["3\n", "0\n"]}
    path = raw.jsonl(tmp_path / "rows.jsonl", [raw.cure_row(1), raw.cure_row(2, **tests)])
    problems, funnel = data.load("d", raw.section(source="cure", location=path))
    assert [problem.problem_id for problem in problems] == ["d/1"]
    assert funnel.dropped["tests_within_size"] == ["d/2"]  # type: ignore[attr-defined]


def test_trivial_tests_are_left_out_where_asked() -> None:
    same = [Test("1\n", "YES\n"), Test("2\n", "YES")]
    problems, funnel = run([candidate("a"), candidate("b", tests=same)], distinct_outputs=2)
    assert (names(problems, "test"), funnel["enough_distinct_outputs"]) == (["a"], 1)


def test_max_tests_keeps_official_ones_first() -> None:
    five = [Test(f"{i}\n", f"{i}\n") for i in range(5)]
    [problem], _ = run([candidate("a", tests=five, generated=3)], max_tests=3)
    assert problem.tests == five[:3]
    capped = filters._capped(candidate("a", tests=five, generated=3), 3)
    assert capped.generated == 1


# -------------------------------------------------------------------------------------------------------- duplicates
def test_a_train_copy_of_a_test_problem_goes() -> None:
    rows = [
        candidate("a", "train", statement="Add two\nnumbers"),
        candidate("b", "test", statement="add TWO numbers "),
        candidate("c", "train", text="other"),
        candidate("e", "train", text="Other"),
    ]
    problems, funnel = run(rows, source="apps", train="all")
    assert (names(problems, "train"), names(problems, "test")) == (["c"], ["b"])
    assert funnel.dropped["not_duplicate"] == ["d/a", "d/e"]


def test_an_id_with_two_statements_is_refused() -> None:
    problems, _ = run([candidate("a"), candidate("a", statement="another")])
    with pytest.raises(UserError, match="problem d/a: the id occurs twice; ids must be unique"):
        data.check(problems)
    problems, _ = run([candidate("a"), candidate("a")])
    assert names(problems, "test") == ["a"]


# ------------------------------------------------------------------------------------------------------------- draws
def test_the_splits_are_drawn_by_seed_and_stay_when_rows_go() -> None:
    rows = [candidate(f"{i:03}") for i in range(100)]
    problems, funnel = run(rows, train=60, test=30, seed=1)
    train, test = names(problems, "train"), names(problems, "test")
    assert (len(train), len(test), funnel["train"], funnel["test"]) == (60, 30, 60, 30)
    assert not set(train) & set(test)
    assert train == sorted(train)
    assert run(rows[::-1], train=60, test=30, seed=1)[0] != []
    assert set(names(run(rows[::-1], train=60, test=30, seed=1)[0], "test")) == set(test)
    assert set(names(run(rows, train=60, test=30, seed=2)[0], "test")) != set(test)
    undrawn = sorted({f"{i:03}" for i in range(100)} - set(train) - set(test))[0]
    without = [row for row in rows if row.problem.problem_id != f"d/{undrawn}"]
    assert names(run(without, train=60, test=30, seed=1)[0], "test") == test


def test_all_takes_the_rest() -> None:
    rows = [candidate(f"{i}") for i in range(10)]
    problems, _ = run(rows, train="all", test=3)
    assert (len(names(problems, "train")), len(names(problems, "test"))) == (7, 3)


@pytest.mark.parametrize("keys", [{"test": 11}, {"train": 8, "test": 3}])
def test_fewer_than_asked_for_is_an_error_with_the_funnel(keys: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"asked for \d+ problems, found \d+ .*not_duplicate 10.*ask for fewer"):
        run([candidate(f"{i}") for i in range(10)], **keys)


def test_an_empty_file_is_called_empty() -> None:
    with pytest.raises(UserError, match="the files hold no rows"):
        run([], test="all")


def test_upstream_splits_stay_apart() -> None:
    rows = [candidate(f"{i}", "train" if i < 7 else "test") for i in range(10)]
    problems, _ = run(rows, source="apps", train=2)
    assert len(names(problems, "train")) == 2
    assert names(problems, "test") == ["7", "8", "9"]


def test_one_pool_cannot_be_taken_twice() -> None:
    for train in (1, "all"):
        with pytest.raises(ValueError, match="test: all takes all rows of the source's one pool"):
            raw.section(source="cure", location="x", train=train, test="all")


# ------------------------------------------------------------------------------------------------------------ tokens
@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    """Folder of a tokenizer with one token a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"?": 0, "sort": 1}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path / "tokenizer")
    return str(tmp_path / "tokenizer")


def test_long_statements_are_counted_by_a_local_tokenizer(tokenizer: str) -> None:
    rows = [candidate("a", statement="sort " * 64), candidate("b", statement="sort " * 65)]
    problems, funnel = run(rows, length={"tokens": 64, "tokenizer": tokenizer})
    assert (names(problems, "test"), funnel["within_tokens"]) == (["a"], 1)


def test_a_tokenizer_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"datasets\.d\.length\.tokenizer: .*cannot be loaded .*local folder"):
        run([candidate("a")], length={"tokens": 64, "tokenizer": str(tmp_path)})


# ----------------------------------------------------------------------------------------------------- own solutions
def check(statuses: list[list[str]], generated: int) -> Candidate | None:
    return filters._confirmed(candidate("a", tests=[*TESTS, Test("3\n", "3\n")], generated=generated), statuses)


PASS, WRONG, UNKNOWN = "passed", "wrong_answer", "harness_error"


def test_a_test_stays_where_at_least_half_of_the_solutions_pass_it() -> None:
    both = check([[PASS, PASS, WRONG], [PASS, WRONG, WRONG]], generated=1)
    assert both is not None
    assert (both.problem.tests, both.generated) == (TESTS, 0)


def test_an_official_test_that_fails_takes_the_problem_along() -> None:
    assert check([[PASS, WRONG, PASS]], generated=1) is None
    assert check([[WRONG, WRONG, WRONG]], generated=3) is None


def test_what_could_not_be_graded_decides_nothing() -> None:
    kept = check([[PASS, UNKNOWN, PASS]], generated=0)
    assert kept is not None
    assert len(kept.problem.tests) == 3


def test_problems_with_a_broken_checker_are_left_out() -> None:
    """Tried in the grader itself: one checker is sound, one rejects what is expected in its second test."""
    equal = (
        "import sys\nexpected, output = (open(path).read() for path in sys.argv[2:])\nprint(int(expected == output))"
    )
    broken = equal.replace("int(expected", "int(expected.strip() != '2' and expected")
    checkers = {"sound": equal, "broken": broken}
    rows = [candidate("none")]
    for name, checker in checkers.items():
        made = candidate(name)
        rows.append(dataclasses.replace(made, problem=dataclasses.replace(made.problem, checker=checker)))

    def validate(programs: Any) -> list[Any]:
        with Grader(workers=1) as grader:
            given = [Submission(program, p.tests, None, CheckerProgram(p.checker)) for program, p in programs]
            return [verdict.statuses for verdict in grader.grade(given)]

    problems, funnel = run(rows, validate)
    assert {problem.problem_id for problem in problems} == {"d/none", "d/sound"}
    assert funnel.dropped["sound_checker"] == ["d/broken"]
    assert "sound_checker" not in run([candidate("none")], validate)[1]


def test_only_as_many_solutions_as_asked_for_are_run() -> None:
    asked = []

    def validate(programs: Any) -> list[list[str]]:
        asked.extend(program for program, _ in programs)
        return [[PASS] * len(problem.tests) for _, problem in programs]

    rows = [candidate("a", solutions=["1", "2", "3"]), candidate("b"), candidate("c", solutions=["4"])]
    problems, funnel = run(rows, validate, check_solutions=2)
    assert asked == ["1", "2", "4"]
    assert (len(problems), funnel["confirmed_by_solutions"]) == (3, 3)


def test_prepared_problems_pass_the_check_of_all_sources() -> None:
    problems, _ = run([dataclasses.replace(candidate("a"), generated=1)])
    data.check(problems)
