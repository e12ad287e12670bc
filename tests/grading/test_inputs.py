"""What `Grader.grade` takes: every shape is either read right or refused by name, never graded as wrong."""

from __future__ import annotations

from typing import Any

import pytest

from maxk.grading import CheckerProgram, Grader, Limits, Submission
from maxk.grading.inputs import Inputs

ADD = "print(sum(map(int, input().split())))"
PAIRS = [("1 2", "3"), ("4 5", "9")]


@pytest.mark.parametrize(
    "given",
    [
        (ADD, PAIRS),
        [ADD, tuple(PAIRS)],
        (ADD, [list(pair) for pair in PAIRS]),
        (ADD, [{"stdin": stdin, "expected": expected} for stdin, expected in PAIRS]),
        (ADD, [PAIRS[0], {"expected": "9", "stdin": "4 5"}]),
        Submission(ADD, [{"stdin": stdin, "expected": expected} for stdin, expected in PAIRS]),  # type: ignore[list-item]
    ],
)
def test_every_documented_shape_is_read_alike(given: Any) -> None:
    assert Inputs().submission(given, 0) == Submission(ADD, PAIRS)


def test_options_are_kept() -> None:
    given = Submission(None, PAIRS, Limits(cpu_s=1), CheckerProgram("print(1)"), "lines")
    assert Inputs().submission(given, 3) == given


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ("print(1)", TypeError, r"submission 7: .* a pair \(program, tests\), got str 'print\(1\)'"),
        ((ADD,), TypeError, "submission 7: expected a Submission or a pair"),
        ((ADD, "1 2", "3"), TypeError, "submission 7: expected a Submission or a pair"),
        ({"program": ADD, "tests": PAIRS}, TypeError, "submission 7: expected a Submission or a pair"),
        ((["print(1)"], PAIRS), TypeError, "submission 7: program must be text or None, got list"),
        ((b"print(1)", PAIRS), TypeError, "submission 7: program must be text or None, got bytes"),
        ((ADD, None), TypeError, r"submission 7: tests must be a list of \(stdin, expected\), got null"),
        ((ADD, "ab"), TypeError, "submission 7: tests must be a list"),
        ((ADD, {"stdin": "1 2", "expected": "3"}), TypeError, "submission 7: tests must be a list"),
        ((ADD, {"input": ["1 2"], "output": ["3"]}), TypeError, "submission 7: tests must be a list"),
        ((ADD, []), ValueError, "submission 7: no tests"),
        ((ADD, [PAIRS[0], "ab"]), TypeError, r"submission 7, test 1: expected \(stdin, expected\) or a mapping"),
        ((ADD, ("1 2", "3")), TypeError, "submission 7, test 0: expected"),
        ((ADD, [("1", "2", "3")]), TypeError, "submission 7, test 0: expected"),
        ((ADD, [{"input": "1 2", "output": "3"}]), ValueError, "keys stdin and expected, got input, output"),
        ((ADD, [{"stdin": "1 2"}]), ValueError, "test 0: expected the keys stdin and expected, got stdin"),
        ((ADD, [{"stdin": "1", "expected": "1", "strict": True}]), ValueError, "got stdin, expected, strict"),
        ((ADD, [{}]), ValueError, "got none"),
        ((ADD, [("1 2", 3)]), TypeError, "submission 7, test 0: expected must be text, got int 3"),
        ((ADD, [PAIRS[0], (None, "3")]), TypeError, "submission 7, test 1: stdin must be text, got null"),
        ((ADD, [{"stdin": ["1", "2"], "expected": "3"}]), TypeError, "test 0: stdin must be text, got list"),
        ((ADD, [(b"1 2", "3")]), TypeError, "test 0: stdin must be text, got bytes"),
        (Submission(ADD, PAIRS, limits=2.0), TypeError, "limits must be Limits or None, got float 2.0"),  # type: ignore[arg-type]
        (Submission(ADD, PAIRS, checker="print(1)"), TypeError, "checker must be a CheckerProgram"),  # type: ignore[arg-type]
        (Submission(ADD, PAIRS, comparison="strict"), ValueError, "comparison must be one of numbers, tokens, lines"),
        (Submission(ADD, PAIRS, comparison=True), ValueError, "comparison must be one of"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_every_other_shape_is_refused_by_position(given: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        Inputs().submission(given, 7)


def test_a_long_value_is_shown_in_part() -> None:
    with pytest.raises(TypeError) as error:
        Inputs().submission("x" * 10**6, 0)
    assert len(str(error.value)) < 200


def test_a_list_that_many_share_becomes_one_list_and_changes_are_seen() -> None:
    inputs, tests = Inputs(), list(PAIRS)
    first, second = inputs.submission((ADD, tests), 0), inputs.submission(("x", tests), 1)
    assert first.tests is second.tests
    tests[0] = ("1 2", "4")
    assert inputs.submission((ADD, tests), 2).tests == [("1 2", "4"), PAIRS[1]]
    assert first.tests == PAIRS


def test_the_grader_reads_both_forms_and_names_the_position() -> None:
    mappings = [{"stdin": stdin, "expected": expected} for stdin, expected in PAIRS]
    with Grader(workers=1) as grader:
        verdicts = grader.grade([(ADD, PAIRS), (ADD, mappings), ("print(3)", mappings)])
        assert [verdict.statuses for verdict in verdicts] == [("passed",) * 2] * 2 + [("passed", "wrong_answer")]
        with pytest.raises(TypeError, match="submission 1, test 0: expected must be text, got int 3"):
            grader.grade([(ADD, PAIRS), (ADD, [("1 2", 3)])])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="submission 0: no tests"):
            grader.grade([(ADD, [])])


def test_a_list_changed_between_submissions_is_graded_as_it_was() -> None:
    """A digest taken of the list's identity gave the second program the first one's verdict."""

    def submissions() -> Any:
        tests = [("", "1")]
        yield "print(1)", tests
        tests[0] = ("", "2")
        yield "print(1)", tests

    with Grader(workers=1) as grader:
        assert dict(grader.grade_iter(submissions()))[1].statuses == ("wrong_answer",)
