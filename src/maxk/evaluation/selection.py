"""Best-of-N without an oracle: the reward of a sample that a real selector chooses among k; and sample diversity.

    found = select(read(Path("samples.verdicts.jsonl"), visible=1), ks=[1, 2, 4])
    found.rewards["majority vote", 4]         the mean over problems, with its interval

For all selectors the reward of the chosen sample is the fraction of the tests that it passes of those that are not
visible; problems without such tests are left out. Ties are broken at random. All results are expectations over subsets
of k of the n samples: exact, but for the votes of more than one sample.

The vote compares outputs on all tests, not only on visible ones: it needs inputs, which can be generated, and no
expected output. A program that ended well on no test has no vote. Where asserts judge the programs, a program's output
is its verdict (`function_tests`): there is no vote, and no number of distinct outputs. docs/compare.md is the guide.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxk import estimators, statistics
from maxk.errors import UserError, counted, described, unknown
from maxk.estimators import Floats
from maxk.evaluation import verdict_shards
from maxk.evaluation.problem_files import ASSERTS, Problems
from maxk.evaluation.sample_files import SampleFile
from maxk.evaluation.verdict_files import sound_rows
from maxk.grading.verdicts import HARNESS_ERROR, PASSED
from maxk.statistics import Estimate

DRAWS = 1000  # the standard error of a mean over P problems is at most 0.016/√P, and its interval includes it
_AGAIN = "move the file away and grade the samples again"
ORACLE, MAJORITY, RANDOM = "oracle", "majority vote", "random"
NONE = -1  # no program, no vote


@dataclass
class Problem:
    """The samples of a problem, column by column; `scores` is empty if none are given."""

    rewards: list[float] = field(default_factory=list)  # fraction of the tests that are not visible
    visible: list[float] = field(default_factory=list)
    programs: list[int] = field(default_factory=list)  # equal numbers: equal programs; NONE where there is none
    outputs: list[int] = field(default_factory=list)  # likewise; NONE where no test ended well
    scores: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Samples:
    """Graded samples of problems, `visible` of whose tests a selector may see; `left_out` problems have no others.

    asserts: whether asserts judged any sample, so that outputs are verdicts. tasks: their digests by problem, if known.
    """

    problems: Mapping[str, Problem]
    visible: int
    score: str | None
    left_out: int
    asserts: bool
    tasks: Mapping[str, str]

    @property
    def n(self) -> int:
        """Fewest samples of a problem."""
        return min(len(one.rewards) for one in self.problems.values())


@dataclass(frozen=True)
class Selection:
    """Means over problems: rewards by selector and k; distinct programs and outputs among k samples by k.

    outputs: None where asserts judge.
    """

    problems: int
    left_out: int
    rewards: Mapping[tuple[str, int], Estimate]
    programs: Mapping[int, float]
    outputs: Mapping[int, float] | None


# ------------------------------------------------------------------------------------------------------ reading
def read(verdicts: Path, visible: int = 1, samples: SampleFile | None = None, score: str | None = None) -> Samples:
    """Reads graded samples. Raises UserError for missing outputs, ungraded samples and scores that are not numbers.

    samples, score: the sample file and the key of its rows that holds each sample's score.
    """
    numbers: dict[Any, int] = {}
    problems: dict[str, Problem] = defaultdict(Problem)
    scores = _scores(samples, score) if samples and score else None
    short: set[str] = set()
    asserts, tasks = False, {}
    for where, verdict in _verdicts(verdicts):
        one_score = next(scores, None) if scores else None
        if not verdict.keys() >= {"outputs", "program"}:
            raise UserError(f"{where}: contains no outputs, which votes need; {_AGAIN}")
        if HARNESS_ERROR in verdict["statuses"]:
            raise UserError(f"{where}: a sample could not be graded; {_AGAIN}")
        asserts = asserts or verdict.get("judged") == ASSERTS
        if task := verdict.get("task"):
            tasks[verdict["problem_id"]] = task
        if len(verdict["statuses"]) <= visible:
            short.add(verdict["problem_id"])
            continue
        problem = problems[verdict["problem_id"]]
        _add(problem, verdict, visible, numbers)
        if one_score is not None:
            problem.scores.append(one_score)
    if not problems and not short:
        raise UserError(f"{verdicts}: contains no verdicts")
    if not problems:
        raise _all_visible(verdicts, visible)
    return Samples(problems, visible, score, len(short), asserts, tasks)


def _verdicts(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Verdicts with the place that errors name, from a file of `maxk grade`, or from shards of the pipeline."""
    if not verdict_shards.is_parquet(path):
        yield from ((row.where, row.value) for row in sound_rows(path))
        return
    from maxk.artifacts import records

    for shard, table in verdict_shards.tables(path, records.VERDICT_AND_OUTPUTS):
        yield from ((str(shard), verdict) for verdict in table.to_pylist())


def _add(problem: Problem, verdict: Mapping[str, Any], visible: int, numbers: dict[Any, int]) -> None:
    statuses, outputs = verdict["statuses"], verdict["outputs"]
    problem.visible.append(_passed(statuses[:visible]))
    problem.rewards.append(_passed(statuses[visible:]))
    program = verdict["program"]
    problem.programs.append(NONE if program is None else numbers.setdefault(program, len(numbers)))
    said = tuple(output or status for output, status in zip(outputs, statuses, strict=True))
    problem.outputs.append(numbers.setdefault(said, len(numbers)) if any(outputs) else NONE)


def _passed(statuses: Sequence[str]) -> float:
    return statuses.count(PASSED) / len(statuses) if statuses else 0.0


def require_hidden_tests(path: Path, problems: Problems, visible: int) -> None:
    """Raises UserError if every problem has `visible` tests at most, so that none would be left to score samples on."""
    if all(len(task.template.tests) <= visible for task in problems.tasks.values()):
        raise _all_visible(path, visible)


def _all_visible(path: Path, visible: int) -> UserError:
    return UserError(f"{path}: no problem has more than {counted(visible, 'test')}; lower --visible")


def require_scores(samples: SampleFile, key: str) -> None:
    """Raises UserError unless every sample has a score."""
    for _ in _scores(samples, key):
        pass


def _scores(samples: SampleFile, key: str) -> Iterator[float]:
    """The score of every sample; a row with several samples has a list."""
    for row, ones in samples.rows():
        if key not in row.value:
            raise UserError(f"{row.where}: no key {key!r}{unknown(key, row.value)}; --score names a key with a number")
        value = row.value[key]
        each = value if isinstance(value, list) else [value]
        for score in each:
            if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
                raise UserError(f"{row.where}: {key} must be a number for every sample, got {described(value)}")
        if len(each) != len(ones):
            raise UserError(f"{row.where}: {key} has {counted(len(each), 'number')} for {counted(len(ones), 'sample')}")
        yield from map(float, each)


# ------------------------------------------------------------------------------------------------------ selectors
def select(samples: Samples, ks: Sequence[int]) -> Selection:
    """Expectations at `ks`, none of which may exceed `samples.n`."""
    each = list(samples.problems.values())
    columns: dict[str, list[Floats]] = {ORACLE: [estimators.max_at_k(one.rewards, list(ks)) for one in each]}
    if samples.visible:
        name = "first test" if samples.visible == 1 else f"first {samples.visible} tests"
        columns[name] = [by_score(one.visible, one.rewards, ks) for one in each]
    if not samples.asserts:
        columns[MAJORITY] = [by_vote(one.outputs, one.rewards, ks, seed=i) for i, one in enumerate(each)]
    if samples.score:
        columns[samples.score] = [by_score(one.scores, one.rewards, ks) for one in each]
    columns[RANDOM] = [np.full(len(ks), np.mean(one.rewards)) for one in each]
    values = {name: np.stack(column) for name, column in columns.items()}  # [problems, ks]
    return Selection(
        problems=len(each),
        left_out=samples.left_out,
        rewards={(name, k): statistics.mean(of[:, i]) for name, of in values.items() for i, k in enumerate(ks)},
        programs=_mean_distinct([one.programs for one in each], ks),
        outputs=None if samples.asserts else _mean_distinct([one.outputs for one in each], ks),
    )


def _mean_distinct(problems: Sequence[Sequence[int]], ks: Sequence[int]) -> dict[int, float]:
    means = np.mean([distinct(numbers, ks) for numbers in problems], axis=0)
    return dict(zip(ks, means.tolist(), strict=True))


def by_score(scores: Sequence[float], rewards: Sequence[float], ks: Sequence[int]) -> Floats:
    """Expected reward of the sample with the highest score among k of n, ties at random: [ks], exact."""
    return np.array([estimators.selected_at_k(scores, rewards, k) for k in ks])


def by_vote(
    outputs: Sequence[int], rewards: Sequence[float], ks: Sequence[int], draws: int = DRAWS, seed: int = 0
) -> Floats:
    """Expected reward of a sample with the most frequent outputs among k of n, ties at random: [ks].

    Equal outputs on all tests have equal rewards. If no sample has a vote, the reward is 0: no program ended well.
    Exact at k = 1, simulated beyond; the standard error is at most 0.5/√draws.
    """
    answers, group, sizes = np.unique(outputs, return_inverse=True, return_counts=True)
    means = np.where(answers == NONE, 0.0, np.bincount(group, weights=rewards) / sizes)
    rng = np.random.default_rng(seed)

    def expected(k: int) -> float:
        if k == 1:
            return float(means @ sizes / sizes.sum())
        votes = rng.multivariate_hypergeometric(sizes, k, size=draws, method="count")  # [draws, answers]
        votes[:, answers == NONE] = 0
        winner = np.argmax(votes + rng.random(votes.shape) / 2, axis=1)
        return float(np.where(votes.max(axis=1) > 0, means[winner], 0.0).mean())

    return np.array([expected(k) for k in ks])


def distinct(numbers: Sequence[int] | NDArray[np.int64], ks: Sequence[int]) -> Floats:
    """Expected number of distinct values among k of n, where NONE is no value: [ks], exact."""
    values, counts = np.unique(numbers, return_counts=True)
    found: Floats = _chances(len(numbers), tuple(ks))[counts[values != NONE]].sum(axis=0)
    return found


@lru_cache(maxsize=16)
def _chances(n: int, ks: tuple[int, ...]) -> Floats:
    """The probability that a value which c of n samples have is among k of them: [c = 0 … n, ks]."""
    return estimators.pass_at_k(n, np.arange(n + 1), ks)
