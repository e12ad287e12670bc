"""Datasets: one module a source, all behind `load`.

A source turns its section of the configuration into problems and a funnel: the number of rows left after every filter,
in order. `pocket` generates its tasks. All others are benchmarks: a module offers `candidates(name, config, funnel)`,
which reads raw rows (`hub`) and converts them; the filters that all share and the split are in `filters`. What must
hold for every source is checked here.

    problems, funnel = load("mbpp", config.datasets["mbpp"])
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field

from maxk.artifacts.records import Problem
from maxk.data.apps import AppsDataset
from maxk.data.code_contests import CodeContestsDataset
from maxk.data.codeforces import CodeforcesDataset
from maxk.data.cure import CureDataset
from maxk.data.filters import MAX_TEST_BYTES, Funnel, Judge, complete, largest_test
from maxk.data.livebench import LiveBenchDataset
from maxk.data.livecodebench import LiveCodeBenchDataset
from maxk.data.mbpp import MbppDataset
from maxk.data.pocket.tasks import PocketDataset
from maxk.errors import UserError

# Source of a benchmark → module; imported only when asked for, since some need heavy packages.
BENCHMARKS = {
    "apps": "maxk.data.apps",
    "code_contests": "maxk.data.code_contests",
    "codeforces": "maxk.data.codeforces",
    "cure": "maxk.data.cure",
    "livebench": "maxk.data.livebench",
    "livecodebench": "maxk.data.livecodebench",
    "mbpp": "maxk.data.mbpp",
}
Dataset = Annotated[
    PocketDataset
    | CodeContestsDataset
    | CureDataset
    | LiveCodeBenchDataset
    | LiveBenchDataset
    | CodeforcesDataset
    | MbppDataset
    | AppsDataset,
    Field(discriminator="source"),
]

SPLITS = ("train", "test")


def load(name: str, config: Dataset, judge: Judge | None = None) -> tuple[list[Problem], dict[str, int]]:
    """The problems of the dataset `name` and its funnel. Raises UserError where they are not fit for use.

    `judge` runs programs on a benchmark's tests: it finds broken checkers, and is needed for `check_solutions`.
    """
    if isinstance(config, PocketDataset):
        from maxk.data.pocket import generate

        problems, funnel = generate(name, config)
    else:
        funnel = Funnel(name)
        candidates = importlib.import_module(BENCHMARKS[config.source]).candidates(name, config, funnel)
        problems = complete(config, candidates, funnel, judge)
    check(problems)
    return problems, funnel


def at_commits(name: str, config: Dataset) -> tuple[Dataset, dict[str, str]]:
    """The section with commits in place of branches and tags, and what was resolved: location → commit."""
    if isinstance(config, PocketDataset):
        return config, {}
    from maxk.data import hub

    commits: dict[str, str] = {}

    def resolved(place: Any, key: str, where: str, kind: str = "dataset") -> Any:
        commit = hub.commit_of(key, where, place.revision, kind)
        if commit is None:
            return place
        commits[where] = commit
        return place.model_copy(update={"revision": commit})

    key = f"datasets.{name}"
    changes: dict[str, Any] = {"revision": resolved(config, key, config.location).revision}
    if config.length is not None:
        changes["length"] = resolved(config.length, f"{key}.length", config.length.tokenizer, "model")
    if isinstance(config, CodeforcesDataset) and config.without is not None:
        changes["without"] = resolved(config.without, f"{key}.without", config.without.location)
    return config.model_copy(update=changes), commits


def lines(name: str, funnel: dict[str, int]) -> Iterator[str]:
    """A funnel in words, a line a filter, with the first rows that it dropped where these are known."""
    for step, count in funnel.items():
        dropped = funnel.dropped.get(step, []) if isinstance(funnel, Funnel) else []
        named = ", ".join(dropped[:5]) + (", …" if len(dropped) > 5 else "")
        yield f"{name}: {step} {count}" + (f" (without {len(dropped)}: {named})" if dropped else "")


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
        if (size := largest_test(problem)) > MAX_TEST_BYTES:
            number = max(range(len(problem.tests)), key=lambda i: len("".join(problem.tests[i])))
            raise UserError(f"{row}: test {number} holds {size} characters, more than {MAX_TEST_BYTES}; drop the row")
