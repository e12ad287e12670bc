"""Compares systems: estimates, intervals and tests of which is better, by how much, and at which k.

    found = compare(paired([first, second]), ks=[1, 2, 4], level=0.95)
    found.estimates, found.differences, found.crossings, found.solved

Problems are paired. What a comparison is about depends on the number of seeds:

- several for both systems: the two methods. Problems and seeds are crossed (`maxk.statistics.difference`).
- several for one system: that method against this one set of samples of the other.
- one each: these two sets of samples and the models that wrote them. The p-value is from random sign flips.

Holm's correction covers all pairs of systems at the same k and metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from maxk import statistics
from maxk.evaluation.systems import Paired, System
from maxk.statistics import Floats

METHODS, METHOD_AND_SAMPLES, SAMPLES = "methods", "a method and a set of samples", "sets of samples"
_DENSE, _GROWTH = 64, 1.05  # ks at which curves are compared: all up to 64, then at most 5 % apart


class Mean(NamedTuple):
    """A mean over problems and seeds, with its interval."""

    system: str
    metric: str
    k: int
    mean: float
    low: float
    high: float


class Difference(NamedTuple):
    """Mean of a − mean of b, with its interval; `p` tests that it is 0."""

    a: str
    b: str
    metric: str
    k: int
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    test: str
    about: str


class Crossing(NamedTuple):
    """The k from which `upper`, which is behind at small k, is better than `lower`; None if at no k up to `largest`.

    [low, high] is its interval, with None as above. See `maxk.statistics.crossing`.
    """

    upper: str
    lower: str
    metric: str
    k: int | None
    low: int | None
    high: int | None
    largest: int


class Solved(NamedTuple):
    """Numbers of problems that both systems or neither solve; ids of those that only one solves.

    Only of systems with equally many samples of every problem and equally many seeds: more samples solve more problems.
    """

    a: str
    b: str
    both: int
    neither: int
    only_a: list[str]
    only_b: list[str]


@dataclass(frozen=True)
class Comparison:
    """All results of a comparison of systems."""

    systems: Sequence[dict[str, Any]]
    problems: int
    level: float
    notes: Sequence[str]
    estimates: Sequence[Mean]
    differences: Sequence[Difference]
    crossings: Sequence[Crossing]
    solved: Sequence[Solved]

    def content(self) -> dict[str, Any]:
        """As JSON values."""
        rows = ("estimates", "differences", "crossings", "solved")
        return {**asdict(self), **{name: [one._asdict() for one in getattr(self, name)] for name in rows}}


def compare(given: Paired, ks: Sequence[int], level: float = 0.95) -> Comparison:
    """Compares all pairs of systems at `ks`, none of which may exceed `given.n`."""
    curves = {(one.name, metric): one.estimates(metric, ks) for one in given.systems for metric in given.metrics}
    return Comparison(
        systems=[_described(one) for one in given.systems],
        problems=len(given.problem_ids),
        level=level,
        notes=[*given.notes, *_statements(given)],
        estimates=list(_means(curves, ks, level)),
        differences=[row for metric in given.metrics for row in _differences(given, curves, metric, ks, level)],
        crossings=[row for metric in given.metrics for row in _crossings(given, metric, level)],
        solved=[_solved(a, b, given.problem_ids) for a, b in combinations(given.systems, 2) if a.sizes == b.sizes],
    )


def _described(system: System) -> dict[str, Any]:
    sizes = [problem.n for seed in system.seeds for problem in seed.problems.values()]
    return {
        "name": system.name,
        "seeds": len(system.seeds),
        "files": [seed.source for seed in system.seeds],
        "samples_a_problem": [min(sizes), max(sizes)],
    }


def _statements(given: Paired) -> Iterator[str]:
    """Notes on what the numbers of seeds and the kind of results allow to conclude."""
    single = [one.name for one in given.systems if len(one.seeds) == 1]
    if single:
        which = "each system" if len(single) == len(given.systems) else " and ".join(single)
        yield (
            f"There is one set of samples of {which}: there, intervals and tests are about these samples and the "
            "models that wrote them, not about how another training with the same method would do."
        )
    if uneven := [f"{a.name} − {b.name}" for a, b in combinations(given.systems, 2) if a.sizes != b.sizes]:
        yield (
            f"{', '.join(uneven)}: problems solved are not compared, because the numbers of samples or of seeds "
            "differ, and more samples solve more problems."
        )
    if given.metrics == ("pass",):
        yield "No max@k: a system has only counts of correct samples."


def _means(curves: dict[tuple[str, str], Floats], ks: Sequence[int], level: float) -> Iterator[Mean]:
    for (name, metric), values in curves.items():
        for i, k in enumerate(ks):
            found = statistics.mean(values[:, :, i])
            yield Mean(name, metric, k, found.value, *found.interval(level, statistics.MEAN_BOUNDS))


def _differences(
    given: Paired, curves: dict[tuple[str, str], Floats], metric: str, ks: Sequence[int], level: float
) -> Iterator[Difference]:
    pairs = list(combinations(given.systems, 2))
    for i, k in enumerate(ks):
        sides = [[curves[one.name, metric][:, :, i] for one in pair] for pair in pairs]
        tests = [_test(a, b) for a, b in sides]
        corrected = statistics.holm([p for p, _ in tests])
        for (a, b), (first, second), (p, test), p_holm in zip(pairs, sides, tests, corrected, strict=True):
            found = statistics.difference(first, second)
            ends = found.interval(level, statistics.DIFFERENCE_BOUNDS)
            yield Difference(a.name, b.name, metric, k, found.value, *ends, p, float(p_holm), test, _about(a, b))


def _test(a: Floats, b: Floats) -> tuple[float, str]:
    """p-value for equal means of values [seeds, problems], and the name of the test."""
    if len(a) == len(b) == 1:
        return statistics.sign_flip_p(a[0] - b[0]), "sign flips"
    return statistics.difference(a, b).p_value(), "crossed t"


def _about(a: System, b: System) -> str:
    several = (len(a.seeds) > 1) + (len(b.seeds) > 1)
    return (SAMPLES, METHOD_AND_SAMPLES, METHODS)[several]


def _crossings(given: Paired, metric: str, level: float) -> Iterator[Crossing]:
    """The crossing of every pair but those with equal means at all k.

    `upper` is the system that is behind at the smallest k at which they differ.
    """
    ks = _dense(given.n)
    curves = {one.name: one.estimates(metric, ks) for one in given.systems}
    means = {name: curve.mean(axis=(0, 1)) for name, curve in curves.items()}
    for first, second in combinations(curves, 2):
        differing = np.flatnonzero(np.abs(means[first] - means[second]) > statistics.ROUNDING)
        if len(differing) == 0:
            continue
        ahead = means[first][differing[0]] > means[second][differing[0]]
        upper, lower = (second, first) if ahead else (first, second)
        found = statistics.crossing(curves[upper], curves[lower], ks, level)
        yield Crossing(upper, lower, metric, *found, largest=ks[-1])


def _dense(n: int) -> list[int]:
    ks = list(range(1, min(n, _DENSE) + 1))
    while ks[-1] < n:
        ks.append(min(n, int(ks[-1] * _GROWTH)))
    return ks


def _solved(a: System, b: System, problem_ids: Sequence[str]) -> Solved:
    first, second = a.solved(), b.solved()
    return Solved(
        a.name,
        b.name,
        both=len(first & second),
        neither=len(problem_ids) - len(first | second),
        only_a=[name for name in problem_ids if name in first - second],
        only_b=[name for name in problem_ids if name in second - first],
    )
