"""Families of pocket tasks: draws from the grammar, with exact tests, filtered, in a train and a test split.

A family is a `maxk.config.PocketDataset`: how long its statements are, how many operations they leave open,
how rare their words are, and how often the hidden tests ask for each reading. A draw is rejected when

- too few of 60 random inputs suit its reference program: an empty list has no maximum, and an empty answer
  says nothing;
- its tests are guessable: fewer than 60 % of the expected outputs differ;
- its tests are ambiguous: another reading of one open operation passes them all.

Train and test never meet, in one family or across families: a hash of (statement, reference program) sends
every task to one side, so that separate jobs need not know of one another. The tests too follow from the task
and the seed alone.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field

from maxk.artifacts.digests import canonical
from maxk.artifacts.records import Problem, Test
from maxk.data.pocket.grammar import (
    TRANSFORMS,
    Step,
    draw_operations,
    draw_statement,
    draw_step,
    output,
    program,
)
from maxk.data.sections import DatasetSection, Popularity
from maxk.errors import UserError
from maxk.schema import Count, Fraction


class PocketDataset(DatasetSection):
    """A family of generated tasks (synthetic, exact tests)."""

    source: Literal["pocket"]
    transforms: tuple[Count, ...] = Field(description="Transforms a statement, drawn evenly.")
    open_operations: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        description="Operations without a qualifier: the statement leaves them open and the hidden tests decide."
    )
    rare: Fraction = Field(description="Share of rare phrases for an operation.")
    readings: Popularity = Field(description="How often hidden tests ask for each reading of an open operation.")
    train: int = Field(0, ge=0, description="Training problems.")
    test: int = Field(0, ge=0, description="Evaluation problems.")
    tests: Count = Field(8, description="Tests a problem: the number of reward levels above zero.")
    seed: int = 0
    paper: str | None = Field(None, description="The paper's dataset whose role this one plays in the tables.")


TEST_SHARE = 0.2  # of all tasks of the grammar; the rest is the train side
INPUT_TRIES = 60
DISTINCT_OUTPUTS = 0.6
PATIENCE = 20_000  # draws without a new problem, after which the family is taken to hold no more


@dataclass(frozen=True)
class Task:
    """A statement and the program that its hidden tests ask for; `steps` are how the grammar came to them."""

    statement: str
    reference: str
    steps: tuple[Step, ...] = field(compare=False)  # may differ in numbers that no phrase shows

    @property
    def split(self) -> str:
        """`train` or `test`: a property of the task itself, the same in every family and every run."""
        digest = hashlib.sha256(f"{self.statement}\n{self.reference}".encode()).digest()
        return "test" if int.from_bytes(digest[:8]) < TEST_SHARE * 2**64 else "train"

    def alternatives(self) -> Iterator[tuple[Step, ...]]:
        """The steps with one open operation read in another way."""
        for position, step in enumerate(self.steps):
            others = {0, 1, 2} - {step.reading} if step.open else set()
            for reading in sorted(others):
                yield (*self.steps[:position], replace(step, reading=reading), *self.steps[position + 1 :])


def generate(name: str, config: PocketDataset) -> tuple[list[Problem], dict[str, int]]:
    """The problems of a family, train first, and its funnel: what every filter left of the draws.

    The tasks follow from the family's parameters and its seed; `name` only labels them. Raises UserError
    where the family does not hold as many distinct tasks as were asked for.
    """
    if max(config.transforms) > len(TRANSFORMS):
        raise UserError(f"datasets.{name}: transforms={max(config.transforms)}, but the grammar has {len(TRANSFORMS)}")
    wanted = {"train": config.train, "test": config.test}
    kept: dict[str, dict[Task, list[Test]]] = {"train": {}, "test": {}}

    @functools.lru_cache(maxsize=1)
    def tests(task: Task) -> list[Test]:
        return draw_tests(task, config.tests, config.seed)

    filters: dict[str, Callable[[Task], bool]] = {
        "split_not_full": lambda task: len(kept[task.split]) < wanted[task.split],
        "not_duplicate": lambda task: task not in kept[task.split],
        "enough_tests": lambda task: len(tests(task)) == config.tests,
        "not_guessable": lambda task: not guessable(tests(task)),
        "not_ambiguous": lambda task: not ambiguous(task, tests(task)),
    }
    funnel = dict.fromkeys(["drawn", *filters, *wanted], 0)
    draws, last_kept = draw_tasks(config), 0
    while any(len(kept[split]) < wanted[split] for split in wanted):
        task = next(draws)
        funnel["drawn"] += 1
        if _passes(task, filters, funnel):
            kept[task.split][task] = tests(task)
            funnel[task.split] += 1
            last_kept = funnel["drawn"]
        elif funnel["drawn"] - last_kept > PATIENCE:
            raise UserError(
                f"datasets.{name}: asked for train={config.train} and test={config.test}, "
                f"but {PATIENCE} draws in a row added none to {funnel['train']} and {funnel['test']}; "
                "ask for fewer or for more transforms"
            )
    return [problem for split in kept for problem in _problems(name, split, kept[split])], funnel


def _passes(task: Task, filters: dict[str, Callable[[Task], bool]], funnel: dict[str, int]) -> bool:
    """Whether every filter keeps the task; counts it at those that do."""
    for name, keeps in filters.items():
        if not keeps(task):
            return False
        funnel[name] += 1
    return True


def _problems(name: str, split: str, tasks: dict[Task, list[Test]]) -> Iterator[Problem]:
    for number, (task, tests) in enumerate(tasks.items()):
        identity = f"{name}/{split}/{number:04}"
        yield Problem(identity, name, split, task.statement, tests, reference=task.reference)


# ----------------------------------------------------------------------------------------------- random draws
def draw_tasks(config: PocketDataset) -> Iterator[Task]:
    """Tasks of a family without end, before any filter.

    The stream is seeded by all that shapes a task, and not by how many are wanted: a larger train split
    leaves the test split as it was, and families that differ are independent.
    """
    shape = config.model_dump(include={"transforms", "open_operations", "rare", "readings", "seed"})
    rng = random.Random(f"pocket tasks {canonical(shape)}")
    while True:
        operations = draw_operations(rng, rng.choice(config.transforms))
        n_open = min(rng.choice(config.open_operations), len(operations))
        open_positions = rng.sample(range(len(operations)), n_open)
        steps = tuple(
            draw_step(rng, operation, position in open_positions, config.readings)
            for position, operation in enumerate(operations)
        )
        yield Task(draw_statement(rng, steps, config.rare), program(steps), steps)


def draw_tests(task: Task, count: int, seed: int) -> list[Test]:
    """`count` tests of a task, or fewer where too few of the random inputs suit it."""
    rng = random.Random(f"pocket tests {seed} {task.statement}\n{task.reference}")
    tests: list[Test] = []
    for _ in range(INPUT_TRIES):
        stdin = draw_input(rng)
        expected = output(task.steps, stdin)
        if expected and not expected.isspace():
            tests.append(Test(stdin, expected))
        if len(tests) == count:
            break
    return tests


def draw_input(rng: random.Random) -> str:
    """A line of 5 to 9 integers from -6 to 12; two copies of others, so that repeated values matter."""
    numbers = [rng.randint(-6, 12) for _ in range(rng.randint(5, 9))]
    for _ in range(2):
        numbers[rng.randrange(len(numbers))] = numbers[rng.randrange(len(numbers))]
    return " ".join(map(str, numbers)) + "\n"


# ---------------------------------------------------------------------------------------------------- filters
def guessable(tests: Sequence[Test]) -> bool:
    """Whether so few of the expected outputs differ that a constant answer earns much."""
    return len({test.expected for test in tests}) < DISTINCT_OUTPUTS * len(tests)


def ambiguous(task: Task, tests: Sequence[Test]) -> bool:
    """Whether another reading of one open operation passes every test."""
    return any(all(output(steps, test.stdin) == test.expected for test in tests) for steps in task.alternatives())
