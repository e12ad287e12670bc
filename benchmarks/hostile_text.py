"""Fails where a function that reads outputs or completions can be made slow by the text.

    python benchmarks/hostile_text.py                          # the known shapes and a minute of random ones
    python benchmarks/hostile_text.py --seconds 600 --seed 1   # more random ones
    python benchmarks/hostile_text.py extract_program          # one function

A text is `prefix + unit·n + suffix`, either a shape that once was slow somewhere or one drawn from the characters that
the functions treat specially, or a statement nested in itself. Functions without a bound of their own must be linear: 4
times the text may take at most 8 times as long. Functions that stop at a length (the parser, the compiler) must stay
below a second up to there. Each suspicion is timed three times, and the fastest counts, so that a busy machine raises
no alarm. Exit status 1 names every text found.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from maxk.grading import extract_program, outputs_match, parsing
from maxk.grading.planning import plan

SHORTEST, LONGEST, FACTOR = 1 << 11, 1 << 20, 4  # characters; by which a text grows until the time can be noticed
SHORTEST_BOUNDED, EXPONENTIAL_BELOW = 64, 1 << 10  # characters, of bounded functions
NOTICEABLE = 0.05  # seconds
SUPERLINEAR = 2.0  # times linear growth
SECONDS = 1.0  # that a bounded function may take
FENCE = "```"


class Shape(NamedTuple):
    """prefix + unit·n + suffix"""

    prefix: str
    unit: str
    suffix: str

    def text(self, length: int) -> str:
        repeats = max(1, (length - len(self.prefix) - len(self.suffix)) // max(1, len(self.unit)))
        return self.prefix + self.unit * repeats + self.suffix


class Nested(NamedTuple):
    """Opening lines, each one level deeper than the last, down to the interpreter's limit of 100 levels."""

    opening: str
    inside: str

    def text(self, length: int) -> str:
        lines: list[str] = []
        size = 0
        for level in range(98):
            opened = [" " * level + line for line in self.opening.splitlines()]
            size += sum(map(len, opened))
            if size > length:
                break
            lines += opened
        return "\n".join([*lines, " " * 98 + self.inside, ""])


# ------------------------------------------------------------------------------------------------------ functions
def compare(rule: str) -> Callable[[str], object]:
    """Against a short answer, and against itself with another end, from either side."""

    def run(text: str) -> None:
        output = text.encode(errors="replace")
        other = text + "1"
        outputs_match(output, "7", rule)
        outputs_match(output, other, rule)
        outputs_match(other.encode(errors="replace"), text, rule)

    return run


def extract_fenced(text: str) -> object:
    return extract_program(f"{FENCE}python\n{text}\n{FENCE}")


LINEAR: dict[str, tuple[Callable[[str], object], int]] = {  # with the length from which they must be linear
    "outputs_match numbers": (compare("numbers"), SHORTEST),
    "outputs_match tokens": (compare("tokens"), SHORTEST),
    "outputs_match lines": (compare("lines"), SHORTEST),
    "extract_program": (extract_program, 4 * parsing.LONGEST),  # below, the parser's bound decides
}
BOUNDED: dict[str, tuple[Callable[[str], object], int]] = {  # with the longest text that they read
    "parse": (parsing.parse, parsing.LONGEST),
    "extract_program, one block": (extract_fenced, parsing.LONGEST),
    "plan": (lambda text: plan(text, share=True), 20_000),
}

# ------------------------------------------------------------------------------------------------------ shapes
OUTPUTS = [
    *[Shape("", "1", end) for end in ("", "x", ".", "e", ".x", "e5", "e5x")],
    *[Shape(start, "1", "x") for start in ("1.", "1e", "-", "0", "+.", "0x")],
    *[
        Shape("", unit, "x")
        for unit in ("1.", "1e", "1_", "+", "-", "0", "9 ", "1.0 ", "\n", "\r\n", " ", "inf", "nan ")
    ],
    *[Shape("", unit, "7") for unit in (" ", "\n", "\t\n", "\x0b", "\xa0", "é", "\0")],
]
COMPLETIONS = [
    *[Shape("", unit, "") for unit in (FENCE, FENCE + "\n", FENCE + "python\n", "~~~\n", "> ", ">", "> \n", "> ```\n")],
    *[Shape("", f"{FENCE}python\n{body}{FENCE}\n", "") for body in ("", "print(input())\n", "x\n", "1 2\n", "  x\n")],
    *[Shape(FENCE, unit, "`") for unit in ("a", " ", "~", ".", "1")],
    *[Shape("", unit, end) for unit in (" ", "\t", "> ") for end in ("~~~`", "</think>", FENCE + "py\n", "x")],
    *[Shape("", unit, "</think>\n") for unit in ("</think>", "<think>", " </thin\n", "</think>\n", "</think> x\n")],
    *[Shape(f"> {FENCE}py\n", unit, "") for unit in ("> x\n", ">\n", "> > x\n", "\n", ">     x\n")],
    Shape(f"{FENCE}py", "1", f"x\nprint(1)\n{FENCE}"),
    Shape(f"{FENCE}py:", "=", f"x\nprint(1)\n{FENCE}"),
    Shape("", f"{FENCE}\n~~~\n", ""),
]
_STATEMENTS = (
    "a\n",
    "a(b)\n",
    "a;",
    "@a\n",
    "a=b\n",
    "if a:b\n",
    " case 1: pass\n",
    "#\n",
    "\\\n",
    "    \n",
    "global a\n",
)
_EXPRESSIONS = (
    *("a,", "a<", "1+", "a.b", "a[0]", "a()", "{1:2},", "1:2,", "a=1,", "*a,", "**a,", "a:=1,", "a as b,"),
    *("a b,", "not ", "-", "~", "lambda:", "lambda x=", "a if b else ", "await ", "yield ", "a for a in ", "a and "),
    *("a in ", '"a" ', 'f"{a}" ', "f'{a!r:>{w}}'", "{a}", "{a!r:>{w}}", "{{", "{a", "}", "\\x41", "1_", "1."),
    *("\\N{DIGIT ONE}", "(", "[", "{", "(a,", "[a for a in ", "{a:", "f(a for a in ", "f(a=", "a[b:", "(a:=", "(*"),
    *("{**", "(lambda x: "),
)
_AROUND = (
    *[
        ("", ""),
        ("x=", "\n"),
        ("x=(", ")\n"),
        ("x=[", "]\n"),
        ("f(", ")\n"),
        ('x=f"', '"\n'),
        ("x='", "'\n"),
        ("x=", "1 2"),
    ],
    *[
        ("with (", "): pass\n"),
        ("match x:\n", ""),
        ("def f(", "): pass\n"),
        ("x={", "3 4}\n"),
        ("from a import (", ")\n"),
    ],
)
SOURCES = [
    *[Shape("x=''", unit, "\n") for unit in (".strip()", ".split()[0]", "[0]", "+''", " in ''", " or ''")],
    *[Shape(start, unit, end) for unit in _STATEMENTS for start, end in (("", ""), ("if x:\n", ""), ("", "1 2"))],
    *[Shape(start, unit, end) for unit in _EXPRESSIONS for start, end in _AROUND],
]
NESTED = [
    *[Nested(opening, "pass") for opening in ("if a:", "while a and b:", "for a in b:", "class A:", "def f(a):")],
    *[Nested(opening, "return") for opening in ("def f(a, b):", "with a as b:", "try: pass\nexcept A as b:")],
    *[Nested(opening, "pass") for opening in ("try: pass\nfinally:", "for a in b: pass\nelse:", "match a:\n case b:")],
    *[Nested("try:\n return\nfinally:", "pass"), Nested("async def f():", "await a")],
]
KNOWN = {"extract_program": COMPLETIONS, "plan": [*SOURCES, *NESTED], "parse": [*SOURCES, *NESTED]}
_PIECES = [
    *"019.eE+-_ \n\t\r\x0b\xa0>`~:;,=()[]{}'\"\\#@afé\0\ud800",
    *("1.0", "1e5", "inf", "nan", FENCE, "~~~", "> ", "<think>", "</think>"),
    *("python\n", "print(", "input()", "f'{", "lambda ", "\n    "),
    *_EXPRESSIONS,
]  # fmt: skip


def known(name: str) -> Sequence[Shape | Nested]:
    return KNOWN.get(name, SOURCES if name in BOUNDED else OUTPUTS)


def drawn(dice: random.Random) -> Shape:
    def pieces(most: int) -> str:
        return "".join(dice.choice(_PIECES) for _ in range(dice.randint(0, most)))

    return Shape(pieces(3), pieces(3) or dice.choice(_PIECES), pieces(3))


# ------------------------------------------------------------------------------------------------------ timing
def seconds(function: Callable[[str], object], text: str) -> float:
    started = time.process_time()
    function(text)
    return time.process_time() - started


def fastest(function: Callable[[str], object], text: str) -> float:
    return min(seconds(function, text) for _ in range(3))


def complaint(name: str, shape: Shape | Nested) -> str | None:
    """What is wrong with a function on a text, if anything."""
    if name in BOUNDED:
        function, longest = BOUNDED[name]
        length = SHORTEST_BOUNDED  # from below: what grows exponentially would never end at the longest
        while True:
            took = seconds(function, shape.text(length))
            if took > SECONDS and (took := fastest(function, shape.text(length))) > SECONDS:
                return f"{took:.2f} s for {length} characters"
            if length == longest:
                return None
            length = min(longest, length * 5 // 4 if length < EXPONENTIAL_BELOW else 2 * length)
    function, length = LINEAR[name]
    while seconds(function, shape.text(length)) < NOTICEABLE:
        if length >= LONGEST:
            return None
        length *= FACTOR
    before, now = (fastest(function, shape.text(size)) for size in (length // FACTOR, length))
    if now <= SUPERLINEAR * FACTOR * max(before, NOTICEABLE / 25):
        return None
    return f"{before:.3f} s for {length // FACTOR} characters, {now:.3f} s for {length}"


def complaints(names: list[str], seed: int, budget: float) -> Iterator[str]:
    for name in names:
        for shape in known(name):
            if said := complaint(name, shape):
                yield f"{name}: {tuple(shape)}: {said}"
    dice, started, tried = random.Random(seed), time.process_time(), 0
    while time.process_time() - started < budget:
        shape, tried = drawn(dice), tried + 1
        for name in names:
            if said := complaint(name, shape):
                yield f"{name}: {tuple(shape)}: {said}"
    print(f"{sum(len(known(name)) for name in names)} known shapes, {tried} random ones on {len(names)} functions")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", help=f"default: all of {', '.join([*LINEAR, *BOUNDED])}")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU time for random shapes")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    found = 0
    for said in complaints(args.functions or [*LINEAR, *BOUNDED], args.seed, args.seconds):
        print(said, flush=True)
        found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
