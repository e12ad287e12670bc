"""Datasets: one module a source, all behind `load`.

A source turns its section of the configuration into problems and a funnel: the number of rows left after
every filter, in order. What must hold for every source is checked here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from maxk.config import Dataset
from maxk.errors import UserError
from maxk.records import Problem

# Each module offers `generate(name, config)`; imported only when asked for, since some need heavy packages.
SOURCES = {"pocket": "maxk.data.pocket"}
SPLITS = ("train", "test")
MAX_TEST_BYTES = 64 * 2**20  # input and output of one test together; beyond it is a damaged row

Funnel = dict[str, int]


def load(name: str, config: Dataset) -> tuple[list[Problem], Funnel]:
    """The problems of the dataset `name` and its funnel. Raises UserError where they are not fit for use."""
    generate: Callable[[str, Dataset], tuple[list[Problem], Funnel]]
    generate = importlib.import_module(SOURCES[config.source]).generate
    problems, funnel = generate(name, config)
    check(problems)
    return problems, funnel


def check(problems: Sequence[Problem]) -> None:
    """Raises UserError naming the first problem that could not be graded properly."""
    seen: set[str] = set()
    for problem in problems:
        row = f"dataset {problem.dataset}, problem {problem.problem_id}"
        if problem.problem_id in seen:
            raise UserError(f"{row}: the id occurs twice; ids must be unique")
        seen.add(problem.problem_id)
        if problem.split not in SPLITS:
            raise UserError(f"{row}: split {problem.split!r} is none of {', '.join(SPLITS)}")
        if not problem.statement.strip():
            raise UserError(f"{row}: the statement is empty")
        if not problem.tests:
            raise UserError(f"{row}: has no test, so that every program would pass; drop the row")
        for number, test in enumerate(problem.tests):
            size = len(test.stdin) + len(test.expected)
            if size > MAX_TEST_BYTES:
                raise UserError(
                    f"{row}: test {number} holds {size} characters, more than {MAX_TEST_BYTES}; drop the row"
                )
