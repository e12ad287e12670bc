"""Test cases as LiveCodeBench encodes them (LiveBench too), and its function-call rows as stdin/stdout programs.

A column of tests is JSON, or base64 of zlib of a pickle of one string of JSON. A pickle can run code when it is read,
so the unpickler here knows no class or function: whatever needs one is refused.

Rows of `testtype` "functional" call a function (LeetCode's `class Solution`) with one JSON argument a line. They become
stdin rows by telling the model to write the program around the function (`functional_statement`): it reads the same
lines and prints the result as JSON, which is compared with the expected value in `json.dumps` form.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from maxk.artifacts.records import Test
from maxk.errors import UserError

MAX_DECODED_BYTES = 2 * 2**30  # of one row's tests; a longer stream is damage or an attack

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


class Cases(NamedTuple):
    """The tests of a row, and whether they call a function."""

    tests: list[Test]
    functional: bool


class _TextOnly(pickle.Unpickler):
    """Reads a pickle of plain values; any import, which is how a pickle runs code, is an error."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, but only text is admitted")


def decode(row: str, columns: Sequence[str]) -> Cases:
    """The tests in `columns`, in order. Raises UserError naming `row` where one cannot be read."""
    try:
        cases = [case for column in columns for case in _cases(column)]
        functional = any(case["testtype"] == "functional" for case in cases)
        make = _functional_test if functional else _stdin_test
        return Cases([make(case) for case in cases], functional)
    except (ValueError, KeyError, TypeError, EOFError, pickle.UnpicklingError, zlib.error, binascii.Error) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{row}: its test cases cannot be decoded ({reason}); drop the row or fetch it again") from None


def _cases(column: str) -> list[dict[str, Any]]:
    try:
        cases = json.loads(column)
    except json.JSONDecodeError:
        cases = json.loads(_unpacked(column))
    if not isinstance(cases, list):
        raise ValueError(f"expected a list of tests, got {type(cases).__name__}")
    for case in cases:
        if not all(isinstance(case[key], str) for key in ("input", "output", "testtype")):
            raise ValueError(f"expected text for input, output and testtype, got {case!r:.80}")
    return cases


def _unpacked(column: str) -> str:
    stream = zlib.decompressobj()
    packed = stream.decompress(base64.b64decode(column.encode(), validate=True), MAX_DECODED_BYTES)
    if stream.unconsumed_tail:
        raise ValueError(f"longer than {MAX_DECODED_BYTES} bytes")
    text = _TextOnly(io.BytesIO(packed)).load()
    if not isinstance(text, str):
        raise ValueError(f"expected text, got {type(text).__name__}")
    return text


def _stdin_test(case: dict[str, Any]) -> Test:
    return Test(unix(case["input"]), unix(case["output"]))


def _functional_test(case: dict[str, Any]) -> Test:
    lines = [json.dumps(json.loads(line)) for line in case["input"].splitlines() if line.strip()]
    return Test("".join(f"{line}\n" for line in lines), json.dumps(json.loads(case["output"])) + "\n")


def unix(text: str) -> str:
    """Text with Unix line ends."""
    return text.replace("\r\n", "\n")


def function_name(row: str, metadata: str) -> str:
    """The function that a functional row calls. Raises UserError where its metadata does not say."""
    try:
        return str(json.loads(metadata)["func_name"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{row}: a functional row whose metadata {metadata!r} has no func_name") from None


def functional_statement(statement: str, code: str, function: str) -> str:
    """The statement of a functional row, asking for a program."""
    main = _MAIN.format(call=_call(code, function))
    return _FUNCTIONAL.format(statement=statement.strip(), code=code.strip("\n"), function=function, main=main)


def functional_program(solution: str, function: str) -> str:
    """A solution of a functional row as the program that its statement asks for."""
    return f"{solution}\n{_MAIN.format(call=_call(solution, function))}"


def _call(code: str, function: str) -> str:
    return f"Solution().{function}" if "class Solution" in code else function
