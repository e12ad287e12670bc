"""MBPP as stdin/stdout: all 974 real tasks, converted here, and solved by the code that they came with."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import raw

from maxk import data
from maxk.data import calls
from maxk.data.calls import Call
from maxk.data.mbpp import calls_of
from maxk.grading import CheckerProgram, Grader, Limits, Submission

# Tree objects by set-up code, a type as an argument, sys.getsizeof, arithmetic in an argument, int(f(…)), a class.
NOT_CONVERTIBLE = [367, 486, 533, 596, 601, 912, 927]
# Its asserts pass a list of lists, then lists of words and of numbers: one reader cannot tell a row from an item.
FLAT_REFERENCE_FAILS = [712]


def tasks() -> list[dict[str, Any]]:
    with gzip.open(raw.MBPP, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@functools.cache
def parsed() -> dict[int, tuple[dict[str, Any], list[Call]]]:
    return {row["task_id"]: (row, asserted) for row in tasks() if (asserted := calls_of(row)) is not None}


def test_967_tasks_convert_and_824_fit_the_flat_form() -> None:
    assert sorted({row["task_id"] for row in tasks()} - set(parsed())) == NOT_CONVERTIBLE
    assert len(parsed()) == 967
    assert sum(calls.flat_tests(asserted) is not None for _, asserted in parsed().values()) == 824


@pytest.mark.slow
def test_reference_code_passes_the_converted_tests() -> None:
    submissions: dict[tuple[str, int], Submission] = {}
    for task_id, (row, asserted) in parsed().items():
        literal = [calls.literal_test(call) for call in asserted]
        checker = CheckerProgram(calls.LITERAL_CHECKER) if calls.has_no_order(asserted) else None
        program = calls.reference_program(row["code"], asserted, "literal")
        submissions["literal", task_id] = Submission(program, literal, checker=checker)
        if flat := calls.flat_tests(asserted):
            program = calls.reference_program(row["code"], asserted, "flat")
            submissions["flat", task_id] = Submission(program, flat)
    with Grader(Limits(cpu_s=10)) as grader:
        verdicts = dict(zip(submissions, grader.grade(list(submissions.values())), strict=True))
    failed = {form: [i for (f, i), v in verdicts.items() if f == form and v.reward < 1] for form in ("flat", "literal")}
    assert failed == {"flat": FLAT_REFERENCE_FAILS, "literal": []}


def test_the_mini_set() -> None:
    """The 796 tasks of the mini set are 387 of train and 409 of test; 123 is too slow, and duplicates go."""

    def validate(programs: Sequence[Any]) -> list[list[str]]:
        slow = "d/123"
        return [["time_limit" if p.problem_id == slow else "passed"] * len(p.tests) for _, p in programs]

    keys = {"source": "mbpp", "location": raw.MBPP, "train": "all", "distinct_outputs": 2, "check_solutions": 1}
    problems, funnel = data.load("d", raw.section(**keys), validate)
    steps = ("rows", "convertible", "flat_form", "same_types", "enough_distinct_outputs")
    assert [funnel[step] for step in steps] == [974, 967, 824, 802, 797]
    assert funnel.dropped["not_duplicate"] == ["d/347", "d/602", "d/704"]  # type: ignore[attr-defined]
    assert funnel.dropped["confirmed_by_solutions"] == ["d/123"]  # type: ignore[attr-defined]
    assert (funnel["train"], funnel["test"]) == (385, 408)
    test_ids = {int(p.problem_id[2:]) for p in problems if p.split == "test"}
    assert test_ids <= set(range(11, 511))


def test_the_parquet_files_of_the_hub_give_the_same_problems(tmp_path: Path) -> None:
    strings = raw.List(raw.TEXT)
    features = raw.Features(
        {
            "task_id": raw.Value("int32"),
            "text": raw.TEXT,
            "code": raw.TEXT,
            "test_list": strings,
            "test_setup_code": raw.TEXT,
            "challenge_test_list": strings,
        }
    )
    splits = {"prompt": range(1, 11), "test": range(11, 511), "validation": range(511, 601), "train": range(601, 975)}
    for split, ids in splits.items():
        rows = [row for row in tasks() if row["task_id"] in ids]
        raw.parquet(tmp_path / "full" / f"{split}-00000-of-00001.parquet", rows, features)
    loaded = [
        data.load("d", raw.section(source="mbpp", location=place, train="all"))[0] for place in (tmp_path, raw.MBPP)
    ]
    by_id = [sorted(problems, key=lambda p: p.problem_id) for problems in loaded]
    assert by_id[0] == by_id[1]
    assert len(by_id[0]) > 790


def test_a_line_says_how_values_are_read_and_printed() -> None:
    def statement(**keys: Any) -> str:
        problems, _ = data.load("d", raw.section(source="mbpp", location=raw.MBPP, **keys))
        return next(problem.statement for problem in problems if problem.problem_id == "d/11")

    plain = "Write a python function to remove first and last occurrence of a given character from the string."
    assert statement(io_format=False) == plain
    assert statement() == f"{plain}\nInput: s (str), then ch (str), each on its own line. Output: str."
    asserted = [Call("f", ([[1, 2]],), [3]), Call("f", ([[1], [2]],), [4])]
    assert calls.format_line(["rows"], asserted, "flat") == (
        "Input: rows (int separated by spaces, one row a line). Output: int separated by spaces."
    )
    assert calls.format_line(["n"], [Call("f", (1,), True)], "flat") == "Input: n (int) on one line. Output: bool."
    assert statement(form="literal", same_types=False).endswith(
        "\nInput: s and ch, each a Python literal on its own line. Output: a Python literal."
    )


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("assert f(1, 'a') == [2]", Call("f", (1, "a"), [2])),
        ("assert f(-1)==None ", Call("f", (-1,), None)),
        ("assert f(x) == 1", None),
        ("assert f(1.0/3) == 1", None),
        ("assert int(f(1)) == 1", None),
        ("assert f(1) > 1", None),
        ("assert f(a=1) == 1", None),
        ("f(1) == 1", None),
        ("assert f(1) ==", None),
        ("assert f(1) == 1\nprint()", None),
    ],
)
def test_asserts(text: str, call: Call | None) -> None:
    assert calls.parse_assert(text) == call


@pytest.mark.parametrize(
    "value", ["", " a", "a\nb", [], ["a b"], ["a", 1], [[1], []], [[[1]]], {1}, {1: 2}, None, 1j, [1, [2]], ["\u2028"]]
)
def test_what_the_flat_form_would_lose_is_refused(value: Any) -> None:
    assert calls.flat_tests([Call("f", (value,), 1)]) is None
    assert calls.flat_tests([Call("f", (1,), value)]) is None


def test_two_arguments_of_several_lines_are_refused() -> None:
    assert calls.flat_tests([Call("f", ([[1]], [[2]]), 1)]) is None
    assert calls.flat_tests([Call("f", ([[1, 2], [3]], 4), (5, 6))]) == [("1 2\n3\n4\n", "5 6\n")]
