"""The comparison rule: cases seen to break graders, and properties."""

from __future__ import annotations

import random
import time
import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxk.grading import outputs_match
from maxk.grading.comparison import RULES, output_digest

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
    (b"1e+05", "100000"),
    (b"100000.0", "1e+05"),
    (b"1E-9", "1e-09"),
    (b"1.5E3", "1500"),
    (b"1e99999999999", "10e99999999998"),
    (b"1.0000005e308", "1e308"),
    (b"1e-400", "1e-300"),
    (b"1e-999", "0.0"),
    (b"-0.0", "0.0"),
    (b"+0", "-0"),
    (b"5.", "5"),
    (b".5", "0.5"),
    (b"-7.50", "-7.5"),
    (b"+5", "5"),
    (b"007", "007"),
    (b"\x0b\x0c", ""),
    (b"1 2 3 4", "1 2\n3 4"),
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
    (b"1e999", "1e9999"),
    (b"2e308", "3e308"),
    (b"Infinity", "1e999"),
    (b"-1e999", "1e999"),
    (b"0", "0000"),  # binary strings, identifiers and times
    (b"11", "0011"),
    (b"7", "007"),
    (b"007", "7"),
    (b"9.3", "09.30"),
    (b"00", "0"),
    (b"1e3", "1000"),  # perhaps a hexadecimal string
    (b"100000", "1e5"),
    (b"100000.05", "1e5"),
    (b"0", "1e-9"),  # integers are exact on either side
    (b"0", "1e-09"),
    (b"0", "0.0000001"),
    (b"1", "0.99999999"),
    ("٣".encode(), "3"),
    ("\ufeff1".encode(), "1"),
    ("1\u200b".encode(), "1"),
    (b"\x1b[0m1", "1"),
    (b"1\x00", "1"),
    (b"\xed\xa0\x80", "\ud800"),
    (b".", "0.0"),
    (b"1e", "1.0"),
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
        (b"007", "7", True),
        (b"100000", "1e5", True),
        (b"0.1000001", "0.1", False),
        (b"a 1.0", "a 1", False),
        (b"Infinity", "inf", True),
        (b"nan", "nan", True),
        (b"NaN", "nan", False),
        (b"sNaN", "1", False),
        (b"1 2", "1", False),
        (b"1", "1 2", False),
        (b"1\n2", "1", False),
        (b"", "1", False),
        (b"", "\n", True),
        (b"\xff", "1", False),
        ("٣".encode(), "3", False),  # Decimal reads these as numbers, a judge of bytes does not
        ("１２".encode(), "12", False),
        (b"1_0", "10", False),
        ("1\u00a02".encode(), "1 2", False),
    ],
)
def test_lines_is_the_rule_of_livecodebench(output: bytes, expected: str, same: bool) -> None:
    assert outputs_match(output, expected, "lines") is same


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        (b"1  2\n", "1 2", True),
        (b"1.0", "1", False),
        (b"007", "7", False),
        (b"0.1000000", "0.1", False),
        (b"a", "", False),
    ],
)
def test_tokens_are_compared_byte_by_byte(output: bytes, expected: str, same: bool) -> None:
    assert outputs_match(output, expected, "tokens") is same


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="rule: 'exact' is not one of numbers, tokens, lines"):
        outputs_match(b"1", "1", "exact")


@given(st.text())
def test_every_text_equals_itself(text: str) -> None:
    try:
        output = text.encode()
    except UnicodeEncodeError:
        return
    assert outputs_match(output, text)


@given(st.binary(), st.text(), st.sampled_from(RULES))
def test_never_raises(output: bytes, expected: str, rule: str) -> None:
    assert outputs_match(output, expected, rule) in (True, False)


NUMBER_LIKE = st.text("0123456789.eE+-", max_size=8)


@given(NUMBER_LIKE, NUMBER_LIKE)
@settings(max_examples=200)
def test_numbers_are_never_looser_than_the_tolerance(first: str, second: str) -> None:
    same = outputs_match(first.encode(), second)
    if abs(_float(first)) < 1e300 and abs(_float(second)) < 1e300:  # the tolerance is relative to the expected number
        assert not same or first == second or abs(_float(first) - _float(second)) <= 1e-6 * max(1, abs(_float(second)))


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


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


@pytest.mark.parametrize("rule", ["numbers", "lines"])
@pytest.mark.parametrize("same", [False, True])
def test_long_outputs_are_compared_in_flat_memory(same: bool, rule: str) -> None:
    """Tokens as Python objects are 15 times the text."""
    expected = "".join(f"{n}\n" for n in range(1000)) * 120
    data = (expected.replace("999\n", "999.0\n") + " \n" + ("" if same else "1\n")).encode()
    tracemalloc.start()
    try:
        assert outputs_match(data, expected, rule) is same
        assert tracemalloc.get_traced_memory()[1] < 5 * len(data)
    finally:
        tracemalloc.stop()


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.booleans())
def test_pieces_do_not_cut_tokens(seed: int, longer: bool) -> None:
    """Tokens and gaps of many lengths, over the bounds of the pieces that texts are walked in."""
    dice = random.Random(seed)
    tokens = ["7" * dice.choice([1, 3, 999, 70_000]) for _ in range(60)]
    spaced = "".join(token + dice.choice(" \n\t") * dice.choice([1, 2, 66_000]) for token in tokens)
    expected = " ".join(tokens + ["7"] * longer)
    assert outputs_match(spaced.encode(), expected) is not longer


MIB = 1 << 20
HOSTILE = {  # output, expected, whether they match
    "digits then a letter": (b"1" * MIB + b"x", "7", False),
    "digits": (b"1" * (4 * MIB), "7", False),
    "one digit off": (b"1" * MIB + b"2", "1" * (MIB + 1), False),
    "a fraction": (b"0." + b"1" * MIB, "0.1", False),
    "a close fraction": (b"0.5" + b"0" * MIB + b"1", "0.5" + "0" * MIB, True),
    "points": (b"1." * MIB, "7", False),
    "digits then e": (b"1" * MIB + b"e", "7", False),
    "a long exponent": (b"1e" + b"9" * MIB, "7.0", False),
    "an exponent then a letter": (b"1e" + b"1" * MIB + b"x", "7", False),
    "signs": (b"+" * MIB, "7", False),
    "huge exponents": (b"1e999999999999 " * 10**4, "7e888888888888 " * 10**4, False),
    "blank lines": (b"\n" * (4 * MIB), "7", False),
    "spaces then the answer": (b" " * (4 * MIB) + b"7", "7", True),
    "infinity again and again": (b"infinity" * (MIB // 8), "1", False),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_outputs_cost_one_pass(case: str, rule: str) -> None:
    """Each took minutes to hours where the comparison was quadratic; they take up to 0.2 s."""
    output, expected, same = HOSTILE[case]
    if case == "a close fraction" and rule != "numbers":
        same = False
    started = time.process_time()
    assert outputs_match(output, expected, rule) is same
    assert time.process_time() - started < 5


def test_one_long_line_is_compared_in_flat_memory() -> None:
    data = b"1.0 " * (MIB // 8)
    tracemalloc.start()
    try:
        assert outputs_match(data, "1 " * (MIB // 8), "lines")
        assert tracemalloc.get_traced_memory()[1] < 8 * len(data)
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------------------------------ digests
def test_digests_are_equal_for_equal_tokens_only() -> None:
    same = [b"1 2\n3\n", b"1  2 3", b"\r\n1\t2\r\n3 \n", b" " * 200_000 + b"1 2" + b"\n" * 200_000 + b"3"]
    assert len({output_digest(one) for one in same}) == 1
    other = [b"12 3", b"1 23", b"1 2", b"1 2 3 3", b"", b"1 2 3.0", b"\xff"]
    assert len({output_digest(one) for one in [*other, same[0]]}) == len(other) + 1
    long = b"x" * 150_000 + b" y"  # a token over several pieces
    assert output_digest(long) == output_digest(long.replace(b" ", b"\n\n")) != output_digest(long[1:])
