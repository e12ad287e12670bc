"""Whether an output is the expected one. Runs in the trusted parent only.

The rule, on bytes as written by the program:

1. The output must be UTF-8. CRLF counts as LF; white space at the end of a line and blank lines at the end do not
   count. Equal texts pass.
2. Otherwise both must have the same number of white-space separated tokens, and each pair must match: equal strings; or
   both finite decimal numbers, equal exactly (`Decimal`: large integers are exact, `1.50` is `1.5`, `007` is `7`); or,
   only where the expected token has a `.` or an exponent, within 1e-6 absolutely or relatively.

White space is space, tab, LF, CR, FF and VT. Other separators of Unicode and of Python's `str.split` (no-break space,
NEL, U+001C to U+001F, U+2028, …) are part of a token: a judge that reads bytes sees them. `nan`, `inf`, `True` are
words.

`strict_lines=True` is LiveCodeBench's rule: the same number of lines, each equal after stripping or equal as a list of
Decimals (LiveCodeBench, lcb_runner/evaluation/testing_util.py).

Texts are walked piece by piece, so that a long one costs no more memory than its own size.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from itertools import zip_longest

TOLERANCE = 1e-6
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHITE = re.compile(rb"[ \t\n\r\f\v]")
_PIECE = 1 << 16  # bytes


def outputs_match(output: bytes, expected: str, strict_lines: bool = False) -> bool:
    """Whether `output` answers a test that expects `expected`."""
    if not _is_text(output):
        return False
    if strict_lines:
        return _same_lines(output.decode(), expected)
    wanted = expected.encode(errors="surrogatepass")
    # Texts that differ only in white space have the same tokens, so step 2 covers step 1.
    return output.rstrip() == wanted.rstrip() or all(
        got is not None and want is not None and _same_token(got, want)
        for got, want in zip_longest(_tokens(output), _tokens(wanted))
    )


def _is_text(output: bytes) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(output), _PIECE):
            decoder.decode(output[start : start + _PIECE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _tokens(text: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(text):
        gap = _WHITE.search(text, start + _PIECE)
        end = gap.start() if gap else len(text)
        yield from text[start:end].split()
        start = end


def _decimal(token: bytes) -> Decimal | None:
    if not _NUMBER.fullmatch(token):
        return None
    try:
        return Decimal(token.decode())
    except InvalidOperation:  # an exponent beyond all bounds
        return None


def _same_token(got: bytes, want: bytes) -> bool:
    if got == want:
        return True
    a, b = _decimal(got), _decimal(want)
    if a is None or b is None:
        return False
    if a == b:
        return True
    return not want.lstrip(b"+-").isdigit() and _close(a, b)


def _close(a: Decimal, b: Decimal) -> bool:
    x, y = float(a), float(b)
    return abs(x - y) <= TOLERANCE * max(1.0, abs(y)) < float("inf")


def _same_lines(text: str, expected: str) -> bool:
    return all(
        got is not None and want is not None and (got.strip() == want.strip() or _same_decimals(got, want))
        for got, want in zip_longest(_lines(text), _lines(expected))
    )


def _lines(text: str) -> Iterator[str]:
    text, start = text.strip(), 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1


def _same_decimals(got: str, want: str) -> bool:
    try:
        return [Decimal(token) for token in got.split()] == [Decimal(token) for token in want.split()]
    except InvalidOperation:
        return False
