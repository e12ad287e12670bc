"""Test cases as benchmarks encode them: parallel lists, and LiveCodeBench's columns of text (LiveBench has these too).

A column of LiveCodeBench is JSON, or packed (`maxk.artifacts.packed_tests`).

Rows of `testtype` "functional" call a function (LeetCode's `class Solution`) with one JSON argument per line. They
become stdin rows by asking the model for a program around the function (`functional_statement`): it reads the same
lines and prints the result as JSON, which is compared with the expected value in `json.dumps` form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from typing_extensions import TypedDict

from maxk.artifacts.json_text import parsed
from maxk.artifacts.packed_tests import ERRORS as UNPACKING_ERRORS
from maxk.artifacts.packed_tests import unpack
from maxk.artifacts.records import Test
from maxk.data.candidates import Funnel
from maxk.data.rows import Text, parse_json_column
from maxk.errors import UserError, counted

_FUNCTIONAL = """{statement}

Write a complete program that contains this:

{code}

The arguments of `{function}` stand on standard input, one JSON value on each line. \
Print the value that it returns as JSON; the program may end with:
{main}"""

_MAIN = """
import json, sys
arguments = [json.loads(line) for line in sys.stdin if line.strip()]
print(json.dumps({call}(*arguments)))
"""


class ParallelTests(TypedDict):
    """Tests as a struct of two lists of equal length."""

    input: list[Text] | None
    output: list[Text] | None


def parallel_tests(problem_id: str, columns: ParallelTests | None) -> list[Test]:
    """Tests from parallel lists. Raises UserError if these differ in length."""
    if columns is None:
        return []
    inputs, outputs = columns.get("input") or [], columns.get("output") or []
    if len(inputs) != len(outputs):
        raise UserError(f"{problem_id}: {counted(len(inputs), 'test input')}, but {counted(len(outputs), 'output')}")
    return [Test(unix(stdin), unix(expected)) for stdin, expected in zip(inputs, outputs, strict=True)]


def unix(text: str) -> str:
    """Text with Unix line ends."""
    return text.replace("\r\n", "\n")


# ------------------------------------------------------------------------------------------------------ LiveCodeBench
class EncodedRow(TypedDict):
    """The columns that hold a row's tests."""

    question_id: Text
    public_test_cases: Text
    private_test_cases: Text


EncodedRows = TypeVar("EncodedRows", bound=EncodedRow)


class Cases(NamedTuple):
    """The decoded test cases of a row, public ones first."""

    problem_id: str
    cases: Sequence[Mapping[str, str]]

    @property
    def functional(self) -> bool:
        """Whether they call a function."""
        return any(case["testtype"] == "functional" for case in self.cases)

    def tests(self) -> list[Test]:
        """As stdin/stdout tests. Raises UserError naming the row if the arguments of a call are not JSON."""
        make = _functional_test if self.functional else _stdin_test
        try:
            return [make(case) for case in self.cases]
        except ValueError as error:
            raise _undecodable(self.problem_id, error) from None


def decoded(funnel: Funnel, rows: Iterator[EncodedRows], drop_functional: bool) -> Iterator[tuple[EncodedRows, Cases]]:
    """Rows with their test cases; on request without the rows that call a function."""
    pairs = ((row, _cases_of(funnel.dataset, row)) for row in rows)
    if not drop_functional:
        return pairs
    return funnel.keep(
        "standard_streams", pairs, lambda pair: not pair[1].functional, lambda pair: pair[0]["question_id"]
    )


def _cases_of(dataset: str, row: EncodedRow) -> Cases:
    return decode(f"{dataset}/{row['question_id']}", [row["public_test_cases"], row["private_test_cases"]])


def decode(problem_id: str, columns: Sequence[str]) -> Cases:
    """The test cases in `columns`, in order. Raises UserError naming the row if one cannot be read."""
    try:
        return Cases(problem_id, [case for column in columns for case in _cases(column)])
    except (KeyError, TypeError, *UNPACKING_ERRORS) as error:
        raise _undecodable(problem_id, error) from None


def _undecodable(problem_id: str, error: Exception) -> UserError:
    reason = f"{type(error).__name__}: {error}"
    return UserError(f"{problem_id}: its test cases cannot be decoded ({reason}); drop the row or fetch it again")


def _cases(column: str) -> list[dict[str, str]]:
    try:
        cases = parse_json_column(column)
    except json.JSONDecodeError:
        cases = parse_json_column(unpack(column))
    if not isinstance(cases, list):
        raise ValueError(f"expected a list of tests, got {type(cases).__name__}")
    for case in cases:
        if not all(isinstance(case[key], str) for key in ("input", "output", "testtype")):
            raise ValueError(f"expected text for input, output and testtype, got {case!r:.80}")
    return cases


def _stdin_test(case: Mapping[str, str]) -> Test:
    return Test(unix(case["input"]), unix(case["output"]))


def _functional_test(case: Mapping[str, str]) -> Test:
    lines = [json.dumps(json.loads(line)) for line in case["input"].splitlines() if line.strip()]
    return Test("".join(f"{line}\n" for line in lines), json.dumps(json.loads(case["output"])) + "\n")


def function_name(problem_id: str, metadata: str | None) -> str:
    """The function that a functional row calls. Raises UserError if its metadata does not name one."""
    try:
        return str(parsed(metadata or "")["func_name"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{problem_id}: a functional row whose metadata {metadata!r} has no func_name") from None


def functional_statement(statement: str, code: str, function: str) -> str:
    """The statement of a functional row, asking for a program."""
    main = _MAIN.format(call=_call(code, function))
    return _FUNCTIONAL.format(statement=statement.strip(), code=code.strip("\n"), function=function, main=main)


def _call(code: str, function: str) -> str:
    return f"Solution().{function}" if "class Solution" in code else function
