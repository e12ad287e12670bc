"""The comparison rule: cases seen to break graders, and properties."""

from __future__ import annotations

import random
import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxk.grading import outputs_match

SAME = [
    (b"1 2 3\n", "1 2 3"),
    (b"1 2 3", "1 2 3\n"),
    (b"1 2 3  \n\n\n", "1 2 3\n"),
    (b"a\r\nb\r\n", "a\nb\n"),
    (b"a \nb\t\n", "a\nb"),
    (b"", "\n\n"),
    (b"1\n2\n", "1 2"),
    (b"1.0", "1"),
    (b"1.50", "1.5"),
    (b"0.3333333", "0.33333333333"),
    (b"1000001.0", "1000000.5"),
    (b"1e5", "100000"),
    (b"100000", "1e5"),
    (b"-0.0", "0.0"),
    (b"007", "7"),
    (b"7", "007"),
    (b"-007.50", "-7.5"),
    (b"+5", "5"),
    (b"nan", "nan"),
    (b"inf -inf", "inf -inf"),
    ("é".encode(), "é"),
    (b"123456789012345678901234567890", "123456789012345678901234567890"),
]
DIFFERENT = [
    (b"1 2", "1 2 3"),
    (b"1 2 3 4", "1 2 3"),
    (b"1\n2\n", "1\n2\n3\n"),
    (b"1\n2\n3\n", "1\n2\n"),
    (b"", "1"),
    (b"1", ""),
    (b"True", "1"),
    (b"1", "True"),
    (b"abc", "abd"),
    (b"Yes", "YES"),
    (b"5.0000001", "5"),  # an integer is expected exactly
    (b"123456789012345678901234567891", "123456789012345678901234567890"),
    (b"9007199254740993", "9007199254740992"),
    (b"0.3334", "0.3333"),
    (b"nan", "1.0"),
    (b"inf", "1.0"),
    (b"NaN", "nan"),
    (b"1e999999999999999999999", "1.0"),
    (b"1e400", "1e401"),
    (b"1_000", "1000"),
    (b"0x10", "16"),
    ("１２".encode(), "12"),
    ("a\u00a0b".encode(), "a b"),
    (b"\xff\xfe", "\ufffd"),
    (b"\x00", ""),
    (b"0b11", "3"),
    (b"007a", "7a"),
    (b"1.0.0", "1.0"),
    (b"--1", "1"),
]


@pytest.mark.parametrize(("output", "expected"), SAME)
def test_these_pass(output: bytes, expected: str) -> None:
    assert outputs_match(output, expected)


@pytest.mark.parametrize(("output", "expected"), DIFFERENT)
def test_these_fail(output: bytes, expected: str) -> None:
    assert not outputs_match(output, expected)


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        (b"1 2\n3", "1 2\n3\n", True),
        (b" 1 2 \n3", "1 2\n3", True),
        (b"1\n2", "1 2", False),
        (b"1\n\n2", "1\n2", False),
        (b"1.0 2", "1 2.00", True),
        (b"0.1000001", "0.1", False),
        (b"a 1.0", "a 1", False),
        (b"\xff", "1", False),
    ],
)
def test_strict_lines_is_livecodebench(output: bytes, expected: str, same: bool) -> None:
    assert outputs_match(output, expected, strict_lines=True) is same


@given(st.text())
def test_every_text_equals_itself(text: str) -> None:
    try:
        output = text.encode()
    except UnicodeEncodeError:
        return
    assert outputs_match(output, text)


@given(st.binary(), st.text(), st.booleans())
def test_never_raises(output: bytes, expected: str, strict: bool) -> None:
    assert outputs_match(output, expected, strict) in (True, False)


@given(st.lists(st.integers(), min_size=1), st.integers(min_value=0))
def test_one_changed_integer_fails(numbers: list[int], where: int) -> None:
    changed = list(numbers)
    changed[where % len(numbers)] += 1
    assert not outputs_match(" ".join(map(str, changed)).encode(), " ".join(map(str, numbers)))


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**6), max_value=10**6), st.floats(0, 1)
)
def test_tolerance_is_a_millionth(value: Decimal, share: float) -> None:
    scale = max(Decimal(1), abs(value))
    near, far = value + scale * Decimal("0.9e-6") * Decimal(share), value + scale * Decimal("1.2e-6")
    assert outputs_match(str(near).encode(), f"{value:.3f}")
    assert not outputs_match(str(far).encode(), f"{value:.3f}")


@given(st.lists(st.from_regex(r"[a-z0-9.]{1,4}", fullmatch=True), min_size=1), st.randoms())
def test_white_space_between_tokens_does_not_count(tokens: list[str], random: object) -> None:
    spaced = "".join(token + random.choice([" ", "  ", "\n", "\t", " \r\n"]) for token in tokens)  # type: ignore[attr-defined]
    assert outputs_match(spaced.encode(), " ".join(tokens))


UNICODE_SPACE = [c for c in map(chr, range(0x110000)) if c.isspace() and c not in " \t\n\r\f\v"]


def test_only_ascii_white_space_parts_tokens() -> None:
    """`str.split` knows 23 more characters, some of them ASCII (U+001C to U+001F)."""
    assert {"\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\xa0", "\u2028", "\u3000"} <= set(UNICODE_SPACE)
    for c in UNICODE_SPACE:
        assert not outputs_match(f"a{c}b".encode(), "a b")
        assert not outputs_match(b"a b", f"a{c}b")
        assert not outputs_match(f"a{c}".encode(), "a")
        assert not outputs_match(f"a\n{c}\n".encode(), "a")
        assert outputs_match(f"a{c}b \n".encode(), f"a{c}b")
    for c in " \t\n\r\f\v":
        assert outputs_match(f"a{c}b{c}".encode(), "a b")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("same", [False, True])
def test_long_outputs_are_compared_in_flat_memory(same: bool, strict: bool) -> None:
    """Tokens as Python objects are 15 times the text."""
    expected = "".join(f"{n}\n" for n in range(1000)) * 300
    data = (expected.replace("999\n", "999.0\n") + " \n" + ("" if same else "1\n")).encode()
    tracemalloc.start()
    try:
        assert outputs_match(data, expected, strict) is same
        assert tracemalloc.get_traced_memory()[1] < 5 * len(data)
    finally:
        tracemalloc.stop()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_pieces_do_not_cut_tokens(seed: int, longer: bool) -> None:
    """Tokens and gaps of many lengths, over the bounds of the pieces that texts are walked in."""
    dice = random.Random(seed)
    tokens = ["7" * dice.choice([1, 3, 999, 70_000]) for _ in range(60)]
    spaced = "".join(token + dice.choice(" \n\t") * dice.choice([1, 2, 66_000]) for token in tokens)
    expected = " ".join(tokens + ["7"] * longer)
    assert outputs_match(spaced.encode(), expected) is not longer
