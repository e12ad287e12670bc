"""Families of pocket tasks: problems drawn from the grammar, with exact tests, filtered, in a train and a test split.

A family is a `PocketDataset`. A draw is rejected if too few of 60 random inputs suit its reference program, or if its
tests are guessable or ambiguous (docs/pocket.md). A hash of (statement, reference program) assigns every task to one
split, in all families alike, so train and test never overlap and separate jobs need no coordination. The tests of a
task depend on the task and the seed alone.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from maxk.artifacts.digests import canonical
from maxk.artifacts.records import Problem, Test
from maxk.data import drawing
from maxk.data.pocket import grammar
from maxk.data.sections import GeneratedDataset, Planned, Popularity
from maxk.errors import UserError
from maxk.schema import Count, Fraction

INPUT_TRIES = 60
DISTINCT_OUTPUTS = 0.6


@dataclass(frozen=True)
class Task:
    """A statement and the program that its hidden tests ask for, with the steps that both were made from."""

    statement: str
    reference: str
    steps: tuple[grammar.Step, ...] = field(compare=False)  # may differ in numbers that no phrase shows

    @property
    def split(self) -> str:
        """`train` or `test`: a property of the task itself, the same in every family and every run."""
        return drawing.split_of(f"{self.statement}\n{self.reference}")

    def alternatives(self) -> Iterator[tuple[grammar.Step, ...]]:
        """The steps with one open operation read in another way."""
        for position, step in enumerate(self.steps):
            others = {0, 1, 2} - {step.reading} if step.open else set()
            for reading in sorted(others):
                yield (*self.steps[:position], replace(step, reading=reading), *self.steps[position + 1 :])


class PocketDataset(GeneratedDataset):
    """A family of generated tasks (synthetic, exact tests)."""

    planned = Planned(0, 0, 8, basis="the configuration")
    family: ClassVar[str] = "pocket"

    source: Literal["pocket"]
    transforms: tuple[Count, ...] = Field(description="Numbers of transforms per statement, drawn evenly.")
    open_operations: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        description="Numbers of operations without a qualifier, drawn evenly: the statement leaves these open and the "
        "hidden tests decide."
    )
    rare: Fraction = Field(description="Fraction of operations that are named by their rare phrase.")
    readings: Popularity = Field(description="How often hidden tests ask for each reading of an open operation.")
    train: int = Field(0, ge=0, description="Number of training problems.")
    test: int = Field(0, ge=0, description="Number of evaluation problems.")
    tests: Count = Field(8, description="Tests per problem: the number of reward levels above zero.")
    seed: int = Field(0, description="Seed of the tasks and their tests.")

    @property
    def tests_per_problem(self) -> int:
        return self.tests

    def generate(self, name: str) -> tuple[list[Problem], dict[str, int]]:
        """The problems of a family, train first, and the funnel: what every filter left of the draws.

        The tasks depend on the family's parameters and seed; `name` only labels them. Raises UserError if the family
        has fewer distinct tasks than the configuration asks for.
        """
        if (most := max(self.transforms)) > len(grammar.TRANSFORMS):
            raise UserError(f"datasets.{name}: transforms={most}, but the grammar has {len(grammar.TRANSFORMS)}")

        def tests(task: Task) -> list[Test]:
            return draw_tests(task, self.tests, self.seed)

        def made(identity: str, task: Task) -> Problem:
            return Problem(identity, name, task.split, task.statement, tests(task), reference=task.reference)

        filters: dict[str, Callable[[Task], bool]] = {  # cheap ones first
            "enough_tests": lambda task: len(tests(task)) == self.tests,
            "not_guessable": lambda task: not guessable(tests(task)),
            "not_ambiguous": lambda task: not ambiguous(task, tests(task)),
        }
        wanted = {"train": self.train, "test": self.test}
        return drawing.fill(name, wanted, draw_tasks(self), filters, made, "ask for fewer or for more transforms")


# ----------------------------------------------------------------------------------------------- random draws
def draw_tasks(config: PocketDataset) -> Iterator[Task]:
    """An endless stream of a family's tasks, before any filter.

    It is seeded by the keys that shape a task, and not by the number of problems: a larger train split leaves the test
    split unchanged, and families that differ are independent.
    """
    shape = config.model_dump(include={"transforms", "open_operations", "rare", "readings", "seed"})
    rng = random.Random(f"pocket tasks {canonical(shape)}")
    while True:
        operations = grammar.draw_operations(rng, rng.choice(config.transforms))
        n_open = min(rng.choice(config.open_operations), len(operations))
        open_positions = rng.sample(range(len(operations)), n_open)
        steps = tuple(
            grammar.draw_step(rng, operation, position in open_positions, config.readings)
            for position, operation in enumerate(operations)
        )
        yield Task(grammar.draw_statement(rng, steps, config.rare), grammar.program(steps), steps)


@functools.lru_cache(maxsize=1)  # several filters ask for the tests of the same task
def draw_tests(task: Task, count: int, seed: int) -> list[Test]:
    """`count` tests of a task, or fewer if too few of the random inputs suit it."""
    rng = random.Random(f"pocket tests {seed} {task.statement}\n{task.reference}")
    tests: list[Test] = []
    for _ in range(INPUT_TRIES):
        stdin = draw_input(rng)
        expected = grammar.output(task.steps, stdin)
        if expected and not expected.isspace():
            tests.append(Test(stdin, expected))
        if len(tests) == count:
            break
    return tests


def draw_input(rng: random.Random) -> str:
    """A line of 5 to 9 integers from -6 to 12. Two are copies of others, so that repeated values matter."""
    numbers = [rng.randint(-6, 12) for _ in range(rng.randint(5, 9))]
    for _ in range(2):
        numbers[rng.randrange(len(numbers))] = numbers[rng.randrange(len(numbers))]
    return " ".join(map(str, numbers)) + "\n"


# ---------------------------------------------------------------------------------------------------- filters
def guessable(tests: Sequence[Test]) -> bool:
    """Whether so few expected outputs are distinct that a constant answer earns a high reward."""
    return len({test.expected for test in tests}) < DISTINCT_OUTPUTS * len(tests)


def ambiguous(task: Task, tests: Sequence[Test]) -> bool:
    """Whether another reading of one open operation passes every test."""
    return any(
        all(grammar.output(steps, test.stdin) == test.expected for test in tests) for steps in task.alternatives()
    )
