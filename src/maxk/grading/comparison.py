"""Whether an output passes a test. Runs in the trusted parent, on bytes that a hostile program wrote.

docs/grader.md ("How outputs are compared") states the three rules: `numbers` (default), `tokens` and `lines`, which is
LiveCodeBench's (lcb_runner/evaluation/testing_util.py, `grade_stdio`).

Cost: linear in the length of both texts, in memory of about their size. Texts are scanned piece by piece, never split
as a whole, and the regular expressions are possessive: they do not backtrack, so a long token costs one pass.
`benchmarks/hostile_text.py` checks this.

    outputs_match(b"0.3333333\\n", "0.33333333333")      → True
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from itertools import zip_longest

NUMBERS, TOKENS, LINES = "numbers", "tokens", "lines"
RULES = (NUMBERS, TOKENS, LINES)
TOLERANCE = 1e-6

_DIGITS = rb"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+"
_NUMBER = re.compile(rb"(?![+-]?+0[0-9])" + _DIGITS)
_DECIMAL = re.compile(_DIGITS + rb"|[+-]?+(?i:inf(?:inity)?+)")
_EXPONENT = re.compile(rb"[eE]")
_BARE_EXPONENT = re.compile(rb"[+-]?+[0-9]++[eE][0-9]++")
_WHITE = re.compile(rb"[ \t\n\r\f\v]")
_PIECE = 1 << 16  # bytes


def outputs_match(output: bytes, expected: str, rule: str = NUMBERS) -> bool:
    """Whether `output` passes a test that expects `expected`.

    Raises ValueError for an unknown rule. A half surrogate pair in `expected` matches no output.
    """
    if rule not in RULES:
        raise ValueError(f"rule: {rule!r} is not one of {', '.join(RULES)}")
    if not _is_text(output):
        return False
    wanted = expected.encode(errors="surrogatepass")
    if output == wanted:
        return True
    if rule == LINES:
        return _all_match(_same_line, _lines(output.strip()), _lines(wanted.strip()))
    return _all_match(_same_token if rule == NUMBERS else bytes.__eq__, _tokens(output), _tokens(wanted))


def output_digest(output: bytes) -> str:
    """Digest (12 hex digits) of an output's tokens, by which programs are clustered."""
    digest = hashlib.blake2b(digest_size=6)
    for piece in _pieces(output):
        if tokens := piece.split():
            digest.update(b" ".join(tokens) + b" ")
    return digest.hexdigest()


def _is_text(output: bytes) -> bool:
    if output.isascii():
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(output), _PIECE):
            decoder.decode(output[start : start + _PIECE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _all_match(same: Callable[[bytes, bytes], bool], got: Iterator[bytes], wanted: Iterator[bytes]) -> bool:
    """Whether two streams have the same length and all pairs of parts match."""
    return all(a is not None and b is not None and same(a, b) for a, b in zip_longest(got, wanted))


def _tokens(text: bytes) -> Iterator[bytes]:
    return iter(text.split()) if len(text) <= _PIECE else _walk(text)


def _walk(text: bytes) -> Iterator[bytes]:
    for piece in _pieces(text):
        yield from piece.split()


def _pieces(text: bytes) -> Iterator[bytes]:
    """The text in pieces that end at the end of a token."""
    start = 0
    while start < len(text):
        gap = _WHITE.search(text, start + _PIECE)
        end = gap.start() if gap else len(text)
        yield text[start:end]
        start = end


def _same_token(got: bytes, want: bytes) -> bool:
    if got == want:
        return True
    if not (_NUMBER.fullmatch(got) and _NUMBER.fullmatch(want)) or _is_word(got, want) or _is_word(want, got):
        return False
    a, b = _value(got), _value(want)
    return a is not None and b is not None and (a == b or (_is_float(got) and _is_float(want) and _close(a, b)))


def _is_word(token: bytes, other: bytes) -> bool:
    return _BARE_EXPONENT.fullmatch(token) is not None and _EXPONENT.search(other) is None


def _is_float(number: bytes) -> bool:
    return not number.lstrip(b"+-").isdigit()


def _value(token: bytes) -> Decimal | None:
    try:
        return Decimal(token.decode())
    except InvalidOperation:  # an exponent beyond Decimal's bounds
        return None


def _close(a: Decimal, b: Decimal) -> bool:
    x, y = float(a), float(b)
    return abs(x - y) <= TOLERANCE * max(1.0, abs(y)) < float("inf")


def _lines(text: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(text):
        end = text.find(b"\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1


def _same_line(got: bytes, want: bytes) -> bool:
    return got.strip() == want.strip() or _all_match(_same_decimal, _tokens(got), _tokens(want))


def _same_decimal(got: bytes, want: bytes) -> bool:
    if not (_DECIMAL.fullmatch(got) and _DECIMAL.fullmatch(want)):
        return False
    a, b = _value(got), _value(want)
    return a is not None and a == b
