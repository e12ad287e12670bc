"""The corpus that the pocket base model is pretrained on: statements with programs of simulated authors.

An author usually takes an open operation in its popular reading, overlooks qualifiers of hard operations, writes bugs,
and occasionally forgets a step. A model trained on the corpus therefore knows every reading, prefers the popular ones
and is often wrong: a base policy that reinforcement learning can sharpen.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from maxk.data.pocket import grammar
from maxk.data.sections import Popularity
from maxk.schema import Count, Fraction, Section


class Corpus(Section):
    """Programs that the pocket base model is pretrained on, with the bugs and misreadings of simulated authors."""

    family: ClassVar[str] = "pocket"

    size: Count = Field(76_800, description="Number of (statement, program) pairs.")
    transforms: tuple[Count, ...] = Field((1, 2, 2, 3), description="Transforms per statement, drawn evenly.")
    rare: Fraction = Field(0.25, description="Fraction of operations that are named by their rare phrase.")
    readings: Popularity = Field(
        (0.86, 0.12, 0.02), description="Probability of each reading of an open operation, most popular first."
    )
    bug: Fraction = Field(0.10, description="Probability of a bug in an operation.")
    input_bug: Fraction = Field(0.08, description="Probability of a bug in reading the input.")
    misread: Fraction = Field(1.0, description="Factor on the probability that a qualifier is overlooked.")

    def pairs(self, seed: int) -> list[tuple[str, str]]:
        """(statement, program) pairs; the programs are often wrong, by design."""
        rng = random.Random(f"pocket corpus {seed}")
        return [_pair(rng, self) for _ in range(self.size)]


OPEN = 0.5  # probability that a statement of the corpus leaves an operation open


def _pair(rng: random.Random, config: Corpus) -> tuple[str, str]:
    operations = grammar.draw_operations(rng, rng.choice(config.transforms))
    steps = [grammar.draw_step(rng, operation, rng.random() < OPEN, config.readings) for operation in operations]
    return grammar.draw_statement(rng, steps, config.rare), _written(rng, steps, config)


def _written(rng: random.Random, steps: Sequence[grammar.Step], config: Corpus) -> str:
    """A program as an author of the corpus might write it."""
    read = grammar.READ_INPUT_BUGS if rng.random() < config.input_bug else grammar.READ_INPUT
    lines = [rng.choice(read), *(_line(rng, step, config) for step in steps)]
    if rng.random() < config.input_bug / 2:
        lines.pop(rng.randrange(1, len(lines)))  # a forgotten step
    return "\n".join(lines)


def _line(rng: random.Random, step: grammar.Step, config: Corpus) -> str:
    if rng.random() < config.bug:
        return rng.choice(step.bugs)
    if step.open or rng.random() < step.operation.misread * config.misread:
        return step.code_as(grammar.draw_reading(rng, config.readings))
    return step.code
