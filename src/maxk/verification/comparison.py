"""Whether an output is the expected one. Runs in the trusted parent only.

The rule, on bytes as written by the program:

1. The output must be UTF-8. CRLF counts as LF; white space at the end of a line and blank lines at the end do not
   count. Equal texts pass.
2. Otherwise both must have the same number of white-space separated tokens, and each pair must match: equal strings; or
   both finite decimal numbers, equal exactly (`Decimal`, so large integers are exact and `1.50` is `1.5`); or, only
   where the expected token has a `.` or an exponent, within 1e-6 absolutely or relatively.

`nan`, `inf`, `True` are words. `strict_lines=True` is LiveCodeBench's rule: the same number of lines, each equal after
stripping or equal as a list of Decimals (LiveCodeBench, lcb_runner/evaluation/testing_util.py).
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from itertools import zip_longest

TOLERANCE = 1e-6
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHITE = " \t\n\r\f\v"


def outputs_match(output: bytes, expected: str, strict_lines: bool = False) -> bool:
    """Whether `output` answers a test that expects `expected`."""
    try:
        text = output.decode()
    except UnicodeDecodeError:
        return False
    if strict_lines:
        return _same_lines(text, expected)
    if text == expected:
        return True
    text, expected = text.replace("\r\n", "\n"), expected.replace("\r\n", "\n")
    if text.rstrip(_WHITE) == expected.rstrip(_WHITE):
        return True
    # Joined lines that differ only by white space at their ends have the same tokens, so step 2 covers the rest of
    # step 1.
    return all(
        got is not None and want is not None and _same_token(got, want)
        for got, want in zip_longest(_tokens(text), _tokens(expected))
    )


def _tokens(text: str) -> list[str]:
    return text.split() if text.isascii() else re.findall(r"[^ \t\n\r\f\v]+", text)


def _decimal(token: str) -> Decimal | None:
    if not _NUMBER.fullmatch(token):
        return None
    try:
        return Decimal(token)
    except InvalidOperation:  # an exponent beyond all bounds
        return None


def _same_token(got: str, want: str) -> bool:
    if got == want:
        return True
    a, b = _decimal(got), _decimal(want)
    if a is None or b is None:
        return False
    if a == b:
        return True
    return not want.lstrip("+-").isdigit() and _close(a, b)


def _close(a: Decimal, b: Decimal) -> bool:
    x, y = float(a), float(b)
    return abs(x - y) <= TOLERANCE * max(1.0, abs(y)) < float("inf")


def _same_lines(text: str, expected: str) -> bool:
    got, want = text.strip().split("\n"), expected.strip().split("\n")
    return len(got) == len(want) and all(
        a.strip() == b.strip() or _same_decimals(a, b) for a, b in zip(got, want, strict=True)
    )


def _same_decimals(got: str, want: str) -> bool:
    try:
        return [Decimal(token) for token in got.split()] == [Decimal(token) for token in want.split()]
    except InvalidOperation:
        return False
