"""The grammar of the pocket tasks: the operations, their wording in statements, and their lines of Python.

A task is one to three *transforms* of a list of integers `a` and one *reducer* that prints something of it. Every
operation has three *readings*. A qualifier in the statement determines which is meant ("sort down"); without it the
operation is *open* ("sort") and only the hidden tests decide. `k` is a small number that some operations name.

    >>> steps = [Step(TRANSFORMS["sort"], k=2, reading=1, open=False),
    ...          Step(REDUCERS["show"], k=2, reading=0, open=True)]
    >>> ", ".join(step.phrase() for step in steps)
    'sort down, show'
    >>> print(program(steps))
    a = list(map(int, input().split()))
    a = sorted(a, reverse=True)
    print(*a)
    >>> output(steps, "3 1 2\\n")
    '3 2 1\\n'

Everything here is synthetic and made for maxk; `docs/pocket.md` says what it can show and what it cannot.
"""

from __future__ import annotations

import functools
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple


class Reading(NamedTuple):
    """One meaning of an operation: the qualifier that names it, and its line of Python."""

    qualifier: str
    code: str


@dataclass(frozen=True)
class Operation:
    """A transform or a reducer. `{k}` in phrases and code is the task's number."""

    phrase: str
    rare_phrase: str
    readings: tuple[Reading, Reading, Reading]  # most popular first
    bugs: tuple[str, str]  # mistakes that the corpus's authors make
    misread: float  # probability that an author of the corpus ignores the qualifier: some operations are hard


def _readings(**code_of: str) -> tuple[Reading, Reading, Reading]:
    first, second, third = (Reading(qualifier, code) for qualifier, code in code_of.items())
    return first, second, third


TRANSFORMS: dict[str, Operation] = {
    "sort": Operation(
        "sort",
        "put in order",
        _readings(up="a = sorted(a)", down="a = sorted(a, reverse=True)", abs="a = sorted(a, key=abs)"),
        bugs=("a.sort", "a = sorted(set(a))"),
        misread=0.05,
    ),
    "reverse": Operation(
        "reverse",
        "turn around",
        _readings(order="a = a[::-1]", sign="a = [-x for x in a]", rotate="a = a[1:] + a[:1]"),
        bugs=("a.reverse", "a = a[:-1]"),
        misread=0.15,
    ),
    "unique": Operation(
        "unique",
        "no repeats",
        _readings(
            first="a = list(dict.fromkeys(a))",
            single="a = [x for x in a if a.count(x) == 1]",
            repeated="a = [x for x in a if a.count(x) > 1]",
        ),
        bugs=("a = list(set(a))[1:]", "set(a)"),
        misread=0.3,
    ),
    "double": Operation(
        "double",
        "twice",
        _readings(values="a = [x * 2 for x in a]", list="a = a + a", square="a = [x * x for x in a]"),
        bugs=("a = [x + 2 for x in a]", "a * 2"),
        misread=0.5,
    ),
    "halve": Operation(
        "halve",
        "cut in two",
        _readings(values="a = [x // 2 for x in a]", list="a = a[:len(a) // 2]", alternate="a = a[::2]"),
        bugs=("a = [x % 2 for x in a]", "a = a[2:]"),
        misread=0.7,
    ),
    "large": Operation(
        "large only",
        "big ones",
        _readings(
            five="a = [x for x in a if x > 5]",
            mean="a = [x for x in a if x > sum(a) / len(a)]",
            positive="a = [x for x in a if x > 0]",
        ),
        bugs=("a = [x for x in a if x < 5]", "a = [x > 5 for x in a]"),
        misread=0.05,
    ),
    "even": Operation(
        "even only",
        "evens",
        _readings(values="a = [x for x in a if x % 2 == 0]", second="a = a[1::2]", alternate="a = a[::2]"),
        bugs=("a = [x for x in a if x % 2]", "a = [x % 2 for x in a]"),
        misread=0.15,
    ),
    "diff": Operation(
        "differences",
        "gaps",
        _readings(
            forward="a = [y - x for x, y in zip(a, a[1:])]",
            absolute="a = [abs(y - x) for x, y in zip(a, a[1:])]",
            backward="a = [x - y for x, y in zip(a, a[1:])]",
        ),
        bugs=("a = [y - x for x, y in zip(a, a)]", "a = [x - 1 for x in a]"),
        misread=0.3,
    ),
    "running": Operation(
        "running",
        "so far",
        _readings(
            sum="a = [sum(a[:i + 1]) for i in range(len(a))]",
            max="a = [max(a[:i + 1]) for i in range(len(a))]",
            min="a = [min(a[:i + 1]) for i in range(len(a))]",
        ),
        bugs=("a = [sum(a[:i]) for i in range(len(a))]", "a = [sum(a)]"),
        misread=0.5,
    ),
    "shift": Operation(
        "shift {k}",
        "move {k}",
        _readings(add="a = [x + {k} for x in a]", left="a = a[{k}:] + a[:{k}]", right="a = a[-{k}:] + a[:-{k}]"),
        bugs=("a = [x - {k} for x in a]", "a = a[{k}:]"),
        misread=0.7,
    ),
    "drop": Operation(
        "drop {k}",
        "without {k}",
        _readings(first="a = a[{k}:]", last="a = a[:-{k}]", value="a = [x for x in a if x != {k}]"),
        bugs=("a = a[{k} + 1:]", "a = a[:{k}]"),
        misread=0.05,
    ),
    "limit": Operation(
        "limit {k}",
        "up to {k}",
        _readings(cap="a = [min(x, {k}) for x in a]", filter="a = [x for x in a if x <= {k}]", length="a = a[:{k}]"),
        bugs=("a = [max(x, {k}) for x in a]", "a = [x for x in a if x < {k}]"),
        misread=0.15,
    ),
    "mod": Operation(
        "modulo {k}",
        "by {k}",
        _readings(
            remainder="a = [x % {k} for x in a]",
            multiple="a = [x for x in a if x % {k} == 0]",
            stride="a = a[::{k}]",
        ),
        bugs=("a = [x // {k} for x in a]", "a = [x for x in a if x % {k}]"),
        misread=0.3,
    ),
}

REDUCERS: dict[str, Operation] = {
    "total": Operation(
        "total",
        "add up",
        _readings(plain="print(sum(a))", absolute="print(sum(map(abs, a)))", distinct="print(sum(set(a)))"),
        bugs=("print(sum(a[1:]))", "print(a)"),
        misread=0.5,
    ),
    "largest": Operation(
        "largest",
        "top",
        _readings(value="print(max(a))", magnitude="print(max(a, key=abs))", position="print(a.index(max(a)))"),
        bugs=("print(a[-1])", "print(max(a[1:]))"),
        misread=0.7,
    ),
    "smallest": Operation(
        "smallest",
        "lowest",
        _readings(value="print(min(a))", magnitude="print(min(a, key=abs))", position="print(a.index(min(a)))"),
        bugs=("print(a[0])", "print(min(a[1:]))"),
        misread=0.05,
    ),
    "count": Operation(
        "count",
        "how many",
        _readings(all="print(len(a))", distinct="print(len(set(a)))", positive="print(sum(x > 0 for x in a))"),
        bugs=("print(len(a) - 1)", "print(sum(a))"),
        misread=0.15,
    ),
    "spread": Operation(
        "spread",
        "range",
        _readings(range="print(max(a) - min(a))", ends="print(a[-1] - a[0])", rest="print(sum(a) - min(a))"),
        bugs=("print(min(a) - max(a))", "print(max(a))"),
        misread=0.3,
    ),
    "middle": Operation(
        "middle",
        "typical",
        _readings(
            median="print(sorted(a)[len(a) // 2])",
            position="print(a[len(a) // 2])",
            mean="print(sum(a) // len(a))",
        ),
        bugs=("print(a[len(a)])", "print(len(a) // 2)"),
        misread=0.5,
    ),
    "show": Operation(
        "show",
        "print",
        _readings(all="print(*a)", three="print(*a[:3])", sorted="print(*sorted(a))"),
        bugs=("print(a)", "print(a[0])"),
        misread=0.7,
    ),
    "ends": Operation(
        "ends",
        "outer",
        _readings(ends="print(a[0], a[-1])", extreme="print(min(a), max(a))", sum="print(a[0] + a[-1])"),
        bugs=("print(a[-1], a[0])", "print(a[0])"),
        misread=0.05,
    ),
}

K_VALUES = (2, 3, 4)
READ_INPUT = ("a = list(map(int, input().split()))", "a = [int(x) for x in input().split()]")
READ_INPUT_BUGS = ("a = input().split()", "a = list(input())", "a = int(input())")


@dataclass(frozen=True)
class Step:
    """An operation as one task uses it: its number, its reading, and whether the statement leaves that open."""

    operation: Operation
    k: int
    reading: int
    open: bool

    def phrase(self, rare: bool = False) -> str:
        """The step's words in the statement."""
        phrase = self.operation.rare_phrase if rare else self.operation.phrase
        phrase = phrase.format(k=self.k)
        return phrase if self.open else f"{phrase} {self.operation.readings[self.reading].qualifier}"

    @property
    def code(self) -> str:
        """The step's line in the reference program."""
        return self.code_as(self.reading)

    def code_as(self, reading: int) -> str:
        return self.operation.readings[reading].code.format(k=self.k)

    @property
    def bugs(self) -> list[str]:
        return [bug.format(k=self.k) for bug in self.operation.bugs]


# ----------------------------------------------------------------------------------------------- random draws
def draw_operations(rng: random.Random, transforms: int) -> list[Operation]:
    """This many different transforms, then a reducer."""
    return [*rng.sample(list(TRANSFORMS.values()), transforms), rng.choice(list(REDUCERS.values()))]


def draw_step(rng: random.Random, operation: Operation, open_: bool, popularity: Sequence[float]) -> Step:
    """A step. The reading is drawn by `popularity` if it is open, else evenly."""
    k = rng.choice(K_VALUES)
    return Step(operation, k, draw_reading(rng, popularity) if open_ else rng.randrange(3), open_)


def draw_reading(rng: random.Random, popularity: Sequence[float]) -> int:
    return rng.choices(range(len(popularity)), popularity)[0]


def draw_statement(rng: random.Random, steps: Sequence[Step], rare: float) -> str:
    """The steps in words, each by its rare phrase with probability `rare`."""
    return ", ".join(step.phrase(rng.random() < rare) for step in steps)


# --------------------------------------------------------------------------------------------------- programs
def program(steps: Sequence[Step]) -> str:
    """The reference program: a line that reads the integers, then one line of Python per step."""
    return "\n".join([READ_INPUT[0], *(step.code for step in steps)])


def output(steps: Sequence[Step], stdin: str) -> str | None:
    """What the reference program of `steps` prints, or None if it raises (such as max of an empty list).

    The argument is steps and not a program, so that only lines of this module are executed in this process: programs
    of policies go to `maxk.grading`.
    """
    printed = io.StringIO()
    names: dict[str, Any] = {"input": lambda: stdin, "print": functools.partial(print, file=printed)}
    try:
        exec(_compiled(program(steps)), names)
    except Exception:  # a composition of our own lines that raises on this input
        return None
    return printed.getvalue()


@functools.lru_cache(maxsize=4096)
def _compiled(source: str) -> CodeType:
    return compile(source, "<pocket reference>", "exec")
