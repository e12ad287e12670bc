"""What a prepared dataset is like: its funnel, tests, lengths, one problem as a policy reads it, and what is suspect.

Suspect is a dataset on which a program that prints a constant earns much, and statements that occur in train and in
test, of this dataset or of another that is trained on.

    maxk inspect mbpp --config results/mini/config.json
"""

from __future__ import annotations

import statistics
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from maxk.artifacts.records import Problem, Test
from maxk.reporting import markdown

TRIVIAL = 0.5  # mean reward of constant programs from which a split is called trivial
SPLITS = ("train", "test")  # the last steps of a funnel
SHOWN = 400  # characters of a text that are shown


class Constant(NamedTuple):
    """The best that programs can earn which print the same for every input, one a problem."""

    mean: float
    solved: int


def constant_reward(problem: Problem) -> float:
    """The largest share of tests with the same expected output, as the grader compares it."""
    outputs = Counter(tuple(test.expected.split()) for test in problem.tests)
    return max(outputs.values()) / len(problem.tests)


def best_constants(problems: Sequence[Problem]) -> Constant | None:
    """Over problems without a checker; None where there are none."""
    rewards = [constant_reward(problem) for problem in problems if problem.checker is None]
    return Constant(statistics.fmean(rewards), rewards.count(1.0)) if rewards else None


def shared_statements(train: Sequence[Problem], test: Sequence[Problem]) -> list[tuple[str, str]]:
    """Ids of (train, test) problems whose statements differ in case and white space at most."""
    known = {_plain(problem.statement): problem.problem_id for problem in train}
    found = [(known.get(_plain(problem.statement)), problem.problem_id) for problem in test]
    return [(train_id, test_id) for train_id, test_id in found if train_id is not None]


def _plain(statement: str) -> str:
    return " ".join(statement.casefold().split())


def lines(
    name: str,
    splits: Mapping[str, Sequence[Problem]],
    funnel: Mapping[str, int],
    trained_on: Mapping[str, Sequence[Problem]],
    render: Callable[[str], str],
    measure: tuple[str, Callable[[str], int]],
) -> Iterator[str]:
    """The report. `trained_on` holds the training problems of every dataset; `measure` is (unit, length of a text)."""
    counts = " and ".join(f"{markdown.count(len(problems), f'{split} problem')}" for split, problems in splits.items())
    yield f"{name}: {counts}"
    yield from ("", "Rows left after every filter")
    before = None
    for step, rows in funnel.items():
        less = f"  −{before - rows}" if before is not None and 0 <= rows < before and step not in SPLITS else ""
        yield f"  {step:32}{rows:>8}{less}"
        before = rows
    yield ""
    unit, length = measure
    for split, problems in splits.items():
        yield f"{split}: tests a problem {_spread([len(problem.tests) for problem in problems])}"
        yield f"{split}: prompt length in {unit} {_spread([length(render(p.statement)) for p in problems])}"
        if constant := best_constants(problems):
            solved = markdown.count(constant.solved, "problem")
            yield f"{split}: best constant programs earn {constant.mean:.3f} and solve {solved}"
    example = next(problem for problems in splits.values() for problem in problems)
    yield from ("", f"{example.problem_id}, as a policy reads it:", "")
    yield textwrap.indent(render(example.statement).rstrip("\n"), "  | ", lambda _: True)
    yield ""
    yield from _tests(example.tests)
    yield ""
    yield from _warnings(name, splits, trained_on)


def _spread(values: Sequence[int]) -> str:
    return f"min {min(values)}, median {statistics.median(values):g}, max {max(values)}"


def _tests(tests: Sequence[Test]) -> Iterator[str]:
    for test in tests[:3]:
        yield f"reads {_cut(test.stdin)!r}, prints {_cut(test.expected)!r}"
    if len(tests) > 3:
        yield f"… and {len(tests) - 3} more tests"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


def _warnings(
    name: str, splits: Mapping[str, Sequence[Problem]], trained_on: Mapping[str, Sequence[Problem]]
) -> Iterator[str]:
    for split, problems in splits.items():
        constant = best_constants(problems)
        if constant is not None and constant.mean >= TRIVIAL:
            yield f"warning: {split}: programs that print a constant earn {constant.mean:.3f} on average"
        if constant is not None and constant.solved:
            solved = markdown.count(constant.solved, "problem")
            yield f"warning: {split}: a constant solves {solved}; set distinct_outputs to 2 or more"
    for source, train in trained_on.items():
        if shared := shared_statements(train, splits.get("test", [])):
            pairs = ", ".join(f"{test_id} = {train_id}" for train_id, test_id in shared[:5])
            count = markdown.count(len(shared), "test problem")
            yield f"warning: {count} of {name} also in the train split of {source}: {pairs}"
