"""Arithmetic problems with one number as the answer: generated, exact, and small enough for the pocket base model.

A statement names a calculation in three steps ("raise by percent, share, mean with"). A completion is a program that
reads the problem's numbers, the first one to start from and one for each step, and prints the answer:

    x = float(input())
    x = x * (1 + float(input()) / 100)
    x = x / float(input())
    x = (x + float(input())) / 2
    print(x)

Nothing is left open: a statement has one correct calculation. The corpus that the base model is pretrained on makes the
usual mistakes, such as subtracting a percentage to undo a rise; with some operations almost always. With `tolerances` a
problem has a test of the same answer for each: its reward is the fraction of them that the printed number is within.

    snakemake --cores 1 --configfile config/arithmetic.yaml -- results/arithmetic/data/arithmetic/problems.parquet
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from maxk.artifacts.records import Problem, Test
from maxk.data import drawing
from maxk.data.sections import GeneratedDataset, Planned
from maxk.schema import Count, Fraction, Section, Seed

STEPS = 3  # of every problem
TELLING = 1e-4  # relative difference by which a mistake has to change the answer
EXACT = 1e-6  # relative tolerance of the test for the exact answer

READ, PRINT = "float(input())", "print(x)"

CHECKER = """\
import sys

expected, printed = (open(path).read().split() for path in sys.argv[2:4])
answer, tolerance = map(float, expected)
close = len(printed) == 1 and abs(float(printed[0]) - answer) <= tolerance * abs(answer)
print(close or printed == expected)
"""


class Operation(NamedTuple):
    """A step: its words, the right value of x and two mistakes (more frequent one first), and how often they are made.

    `{n}` is the step's number.
    """

    phrase: str
    right: str
    mistakes: tuple[str, str]
    mistaken: float


OPERATIONS = (
    Operation("plus", "x + {n}", ("x - {n}", "x * {n}"), 0.05),
    Operation("minus", "x - {n}", ("{n} - x", "x + {n}"), 0.1),
    Operation("times", "x * {n}", ("x + {n}", "x / {n}"), 0.05),
    Operation("share", "x / {n}", ("x // {n}", "{n} / x"), 0.2),
    Operation("distance to", "abs(x - {n})", ("x + {n}", "x - {n} / 2"), 0.4),
    Operation("mean with", "(x + {n}) / 2", ("x + {n} / 2", "x + {n}"), 0.3),
    Operation("percent of", "x * {n} / 100", ("{n} / x * 100", "x * {n}"), 0.4),
    Operation("raise by percent", "x * (1 + {n} / 100)", ("x + {n} / 100", "x * {n} / 100"), 0.3),
    Operation("lower by percent", "x * (1 - {n} / 100)", ("x - {n} / 100", "x * {n} / 100"), 0.3),
    Operation("undo a rise of percent", "x / (1 + {n} / 100)", ("x * (1 - {n} / 100)", "x - {n} / 100"), 0.95),
    Operation("raise twice by percent", "x * (1 + {n} / 100) ** 2", ("x * (1 + {n} / 50)", "2 * x * {n} / 100"), 0.9),
    Operation("mean speed with", "2 / (1 / x + 1 / {n})", ("(x + {n}) / 2", "1 / (1 / x + 1 / {n})"), 0.95),
    Operation("geometric mean with", "(x * {n}) ** 0.5", ("(x + {n}) / 2", "x * {n} ** 0.5"), 0.9),
)
FREQUENT = 0.75  # of the mistakes are the more frequent one


@dataclass(frozen=True)
class Calculation:
    """The operations of a problem, and its numbers: the one to start from, and one for each operation."""

    operations: tuple[Operation, ...]
    numbers: tuple[int, ...] = field(compare=False)  # two with the same statement are one problem

    @property
    def statement(self) -> str:
        return in_words(self.operations)

    @property
    def split(self) -> str:
        """`train` or `test`: a property of the statement."""
        return drawing.split_of(self.statement)

    @property
    def stdin(self) -> str:
        return "".join(f"{number}\n" for number in self.numbers)

    @property
    def right(self) -> list[str]:
        return [one.right for one in self.operations]

    @property
    def program(self) -> str:
        """The reference program."""
        return program(self.right)

    @property
    def answer(self) -> float:
        return calculate(self.right, self.numbers)

    @property
    def telling(self) -> bool:
        """Whether the answer is positive, and no calculation with a single mistake gives it by accident."""
        answer = self.answer
        others = (calculate(values, self.numbers) for values in self.with_a_mistake())
        return answer > 0 and not any(abs(other - answer) <= TELLING * answer for other in others)

    def with_a_mistake(self) -> Iterator[list[str]]:
        """The values of x in the calculations that differ from the right one in one step."""
        for step, operation in enumerate(self.operations):
            for mistake in operation.mistakes:
                yield [*self.right[:step], mistake, *self.right[step + 1 :]]


class ArithmeticCorpus(Section):
    """Calculations that a base model is pretrained on, with the mistakes of simulated authors."""

    family: Literal["arithmetic"]
    size: Count = Field(76_800, description="Number of (statement, program) pairs.")
    steps: tuple[Annotated[int, Field(ge=1, le=len(OPERATIONS))], ...] = Field(
        (1, 2, 3), description="Steps per statement, drawn evenly."
    )
    slip: Fraction = Field(
        0.05, description="Probability that an author writes the step of an operation drawn at random."
    )

    def pairs(self, seed: int) -> list[tuple[str, str]]:
        """(statement, program) pairs; the programs are often wrong, by design."""
        rng = random.Random(f"arithmetic corpus {seed}")
        return [self._pair(rng) for _ in range(self.size)]

    def _pair(self, rng: random.Random) -> tuple[str, str]:
        operations = rng.sample(OPERATIONS, rng.choice(self.steps))
        return in_words(operations), program([self._written(rng, one) for one in operations])

    def _written(self, rng: random.Random, operation: Operation) -> str:
        """The value of x as an author of the corpus might write it."""
        if rng.random() < self.slip:
            operation = rng.choice(OPERATIONS)
        if rng.random() >= operation.mistaken:
            return operation.right
        return operation.mistakes[rng.random() >= FREQUENT]


class ArithmeticDataset(GeneratedDataset):
    """Calculations with one number as the answer (synthetic, exact)."""

    planned = Planned(0, 0, 1, basis="the configuration")
    family: ClassVar[str] = "arithmetic"

    source: Literal["arithmetic"]
    train: int = Field(0, ge=0, description="Number of training problems.")
    test: int = Field(0, ge=0, description="Number of evaluation problems.")
    tolerances: tuple[Annotated[float, Field(gt=EXACT, lt=1)], ...] = Field(
        (), description="Relative tolerances; each adds a test of the same answer, for a reward by closeness."
    )
    seed: Seed = Field(0, description="Seed of the problems and their numbers.")

    @property
    def tests_per_problem(self) -> int:
        return len(self.tolerances) + 1

    def generate(self, name: str) -> tuple[list[Problem], dict[str, int]]:
        """The problems, train first, and the funnel. Raises UserError if there are too few statements.

        `tolerances` changes the tests and no problem.
        """
        wanted, draws = {"train": self.train, "test": self.test}, draw_calculations(self.seed)

        def made(identity: str, of: Calculation) -> Problem:
            answers = [f"{of.answer!r} {tolerance}\n" for tolerance in (*self.tolerances, EXACT)]
            expected = answers if self.tolerances else [f"{of.answer!r}\n"]
            tests, checker = [Test(of.stdin, one) for one in expected], CHECKER if self.tolerances else None
            return Problem(identity, name, of.split, of.statement, tests, checker=checker, reference=of.program)

        return drawing.fill(name, wanted, draws, {"telling": lambda one: one.telling}, made, "ask for fewer")


def draw_calculations(seed: int) -> Iterator[Calculation]:
    """An endless stream, the same for every number of problems."""
    rng = random.Random(f"arithmetic problems {seed}")
    while True:
        operations = tuple(rng.sample(OPERATIONS, STEPS))
        yield Calculation(operations, (rng.randint(20, 99), *(rng.randint(2, 30) for _ in operations)))


def in_words(operations: Sequence[Operation]) -> str:
    return ", ".join(one.phrase for one in operations)


def program(values: Sequence[str]) -> str:
    """The program that gives x these values, one after the other."""
    return "\n".join([*(f"x = {value.format(n=READ)}" for value in ("{n}", *values)), PRINT])


def calculate(values: Sequence[str], numbers: Sequence[int]) -> float:
    """What `program` prints for these numbers; NaN if it divides by zero or x is no real number after some step.

    Only expressions of this module are evaluated in this process: programs of policies go to `maxk.grading`.
    """
    x = float(numbers[0])
    for value, number in zip(values, numbers[1:], strict=True):
        try:
            x = eval(value.format(n="n"), {"x": x, "n": float(number)})
        except (ZeroDivisionError, OverflowError):
            return math.nan
        if isinstance(x, complex):
            return math.nan
    return x
