"""Report on a prepared dataset: its funnel, tests, lengths, one problem with its prompt, and warnings.

It warns if programs that print a constant get a high reward, and if test statements are also in a train split, of this
dataset or of another that is trained on.

    maxk inspect mbpp --config results/mini/config.json
"""

from __future__ import annotations

import statistics
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from maxk.artifacts.records import Problem, Test
from maxk.errors import counted

TRIVIAL = 0.5  # mean reward of constant programs above which a split is called trivial
SPLITS = ("train", "test")  # the last steps of a funnel
SHOWN = 400  # characters of a text


class Constant(NamedTuple):
    """Mean reward and number of solved problems of the best constant programs, one per problem."""

    mean: float
    solved: int


def constant_reward(problem: Problem) -> float:
    """The reward of the best program that prints a constant: the fraction of tests with the most frequent output."""
    outputs = Counter(tuple(test.expected.split()) for test in problem.tests)
    return max(outputs.values()) / len(problem.tests)


def best_constants(problems: Sequence[Problem]) -> Constant | None:
    """Over problems without a checker; None if there are none."""
    rewards = [constant_reward(problem) for problem in problems if problem.checker is None]
    return Constant(statistics.fmean(rewards), rewards.count(1.0)) if rewards else None


def shared_statements(train: Sequence[Problem], test: Sequence[Problem]) -> list[tuple[str, str]]:
    """Ids of (train, test) problems whose statements are equal up to case and white space."""
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
    pretrained_on: Collection[str] = (),
) -> Iterator[str]:
    """The report, one line at a time.

    `trained_on` has the training problems of every dataset, `pretrained_on` the statements of the pretraining corpus;
    `measure` is (unit, length of a text).
    """
    counts = " and ".join(f"{counted(len(problems), f'{split} problem')}" for split, problems in splits.items())
    yield f"{name}: {counts}"
    yield from ("", "Rows left after each filter")
    yield from _funnel(funnel)
    yield ""
    unit, length = measure
    for split, problems in splits.items():
        yield f"{split}: tests per problem {_spread([len(problem.tests) for problem in problems])}"
        yield f"{split}: prompt length in {unit} {_spread([length(render(p.statement)) for p in problems])}"
        if constant := best_constants(problems):
            solved = counted(constant.solved, "problem")
            yield f"{split}: the best constant programs get {constant.mean:.3f} and solve {solved}"
        if pretrained_on:
            known = statistics.fmean(problem.statement in pretrained_on for problem in problems)
            yield f"{split}: {known:.0%} of the statements are in the pretraining corpus"
    yield ""
    yield from _example(next(problem for problems in splits.values() for problem in problems), render)
    yield ""
    yield from _warnings(name, splits, trained_on)


def _funnel(funnel: Mapping[str, int]) -> Iterator[str]:
    before = None
    for step, rows in funnel.items():
        less = f"  −{before - rows}" if before is not None and 0 <= rows < before and step not in SPLITS else ""
        yield f"  {step:32}{rows:>8}{less}"
        before = rows


def _example(problem: Problem, render: Callable[[str], str]) -> Iterator[str]:
    yield f"The prompt of {problem.problem_id}:"
    yield _indented(render(problem.statement))
    if problem.reference is not None:
        yield "Its reference program, which no policy sees:"
        yield _indented(problem.reference)
    yield from _tests(problem.tests)


def _indented(text: str) -> str:
    return textwrap.indent(_cut(text.rstrip("\n")), "  | ", lambda _: True)


def _spread(values: Sequence[int]) -> str:
    return f"min {min(values)}, median {statistics.median(values):g}, max {max(values)}"


def _tests(tests: Sequence[Test]) -> Iterator[str]:
    for test in tests[:3]:
        yield f"input {_cut(test.stdin)!r}, expected output {_cut(test.expected)!r}"
    if len(tests) > 3:
        yield f"… and {counted(len(tests) - 3, 'more test')}"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


def _warnings(
    name: str, splits: Mapping[str, Sequence[Problem]], trained_on: Mapping[str, Sequence[Problem]]
) -> Iterator[str]:
    for split, problems in splits.items():
        constant = best_constants(problems)
        if constant is not None and constant.mean >= TRIVIAL:
            yield f"warning: {split}: programs that print a constant get a mean reward of {constant.mean:.3f}"
        if constant is not None and constant.solved:
            solved = counted(constant.solved, "problem")
            yield f"warning: {split}: a constant solves {solved}; set distinct_outputs to 2 or more"
    for source, train in trained_on.items():
        if shared := shared_statements(train, splits.get("test", [])):
            pairs = ", ".join(f"{test_id} = {train_id}" for train_id, test_id in shared[:5])
            count = counted(len(shared), "test problem")
            yield f"warning: {count} of {name} also in the train split of {source}: {pairs}"
