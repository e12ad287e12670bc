"""Intervals and tests for means over problems and training seeds. Only numpy.

values = max_at_k(rewards, 128)                  # rewards [problems, n] → [problems]
percentile_interval(bootstrap_means(values, 10_000, seed=0), level=0.95)
wilcoxon_signed_rank(values, other)              # paired, problem by problem; the paper's test
holm([0.01, 0.04, 0.03])                         # corrected for three comparisons
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
LARGEST_EXACT = 50  # differing pairs up to which Wilcoxon's p is exact (scipy's limit where there are no ties)


# ---- bootstrap
def bootstrap_means(values: ArrayLike, resamples: int, seed: int | Sequence[int]) -> Floats:
    """Bootstrap means [resamples, …] of values [problems, …]: problems drawn with replacement, alike for all columns.

    Equal seeds draw equal problems, so the difference of two policies' replicates is paired. The samples of a problem
    are not redrawn: the spread shows how far another draw of problems could move the mean.
    """
    table = _finite(values)
    sums = [np.tensordot(counts, table, axes=1) for counts in _draws(len(table), resamples, seed)]
    return np.concatenate(sums) / len(table)


def bootstrap_seeds(means: ArrayLike, seed: int | Sequence[int]) -> Floats:
    """Bootstrap means [resamples, …] of `bootstrap_means` [resamples, training seeds, …]: seeds are redrawn, too.

    Problems and seeds are crossed factors. With S seeds the bootstrap variance between them is (S − 1)/S of the
    unbiased one, so two or three seeds understate it.
    """
    table = _finite(means)
    counts = np.concatenate(list(_draws(table.shape[1], len(table), seed)))
    return np.asarray(np.einsum("bs,bs...->b...", counts, table) / table.shape[1])


def percentile_interval(means: ArrayLike, level: float) -> tuple[float, float]:
    """Percentile bootstrap interval (Efron 1979) from the replicates of one mean."""
    low, high = percentile_intervals(means, level)
    return float(low), float(high)


def percentile_intervals(means: ArrayLike, level: float) -> Floats:
    """Lower and upper ends [2, …] of the intervals of many means, from replicates [resamples, …]."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    return np.asarray(np.quantile(_finite(means), [(1 - level) / 2, (1 + level) / 2], axis=0))


def bootstrap_p(differences: ArrayLike) -> float:
    """Two-sided bootstrap p-value of "no difference", from replicates of the mean paired difference.

    2·min(#{d* ≤ 0}, #{d* ≥ 0}), with one added to count and total so that it is never 0; at most 1.
    """
    rounded = np.round(_finite(differences), 12)
    tail = min((rounded <= 0).sum(), (rounded >= 0).sum())
    return min(1.0, 2 * (1 + float(tail)) / (len(rounded) + 1))


def _draws(units: int, resamples: int, seed: int | Sequence[int]) -> Iterator[Floats]:
    """How often each unit is drawn, [at most 500, units]; 500 resamples at a time bound the memory."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, 500):
        yield rng.multinomial(units, np.full(units, 1 / units), size=min(500, resamples - start)).astype(np.float64)


# ---- Wilcoxon's signed-rank test
class SignedRank(NamedTuple):
    """Wilcoxon's signed-rank test: two-sided p-value, pairs in which either side is greater, effect size.

    The effect is the matched-pairs rank-biserial correlation (Kerby 2014), (W+ − W−)/(W+ + W−), in [−1, 1].
    """

    p_value: float
    greater: int
    less: int
    rank_biserial: float

    @property
    def differing(self) -> int:
        """Pairs that the test uses: zero differences are dropped."""
        return self.greater + self.less


def wilcoxon_signed_rank(a: ArrayLike, b: ArrayLike) -> SignedRank:
    """Two-sided Wilcoxon signed-rank test of paired values [problems]: the paper's test, as `scipy.stats.wilcoxon`.

    Zero differences are dropped and ties share the mean rank; differences are rounded to 12 decimals, so rounding noise
    neither counts as a difference nor breaks ties. Without any difference p = 1. The p-value is exact up to 50
    differing pairs, ties included, and scipy's tie-corrected normal approximation above. (Given zeros, scipy
    approximates from 14 pairs on, however few of them differ: five equal differences among 20 pairs have p = 0.025
    there, exactly 0.0625.)
    With fewer than 6 differing pairs p is never below 0.05.
    """
    first, second = _finite(a), _finite(b)
    if first.ndim != 1 or first.shape != second.shape:
        got = f"{first.shape} and {second.shape}"
        raise ValueError(f"a and b must be [problems] of equal length, got shapes {got}")
    difference = np.round(first - second, 12)
    difference = difference[difference != 0]
    if len(difference) == 0:
        return SignedRank(1.0, 0, 0, 0.0)
    above = difference > 0
    doubled = _doubled_ranks(np.abs(difference))
    plus, minus = int(doubled[above].sum()), int(doubled[~above].sum())
    p_value = (_exact_p if len(difference) <= LARGEST_EXACT else _normal_p)(doubled, plus)
    greater = int(above.sum())
    return SignedRank(p_value, greater, len(difference) - greater, (plus - minus) / (plus + minus))


def _doubled_ranks(values: Floats) -> NDArray[np.int64]:
    """Twice the rank of each value, ties sharing their mean: whole numbers."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((2 * last - counts + 1)[which], dtype=np.int64)


def _exact_p(doubled: NDArray[np.int64], plus: int) -> float:
    """Two-sided p of a sum `plus` of positive ranks: all 2ⁿ sign patterns, counted by their sum."""
    ways = np.zeros(int(doubled.sum()) + 1)
    ways[0] = 1
    for rank in doubled:
        ways[rank:] += ways[:-rank].copy()
    tail = min(ways[: plus + 1].sum(), ways[plus:].sum())
    return min(1.0, 2 * float(tail) / 2.0 ** len(doubled))


def _normal_p(doubled: NDArray[np.int64], plus: int) -> float:
    """The same by the normal approximation: W+ − W− has mean 0 and variance Σ r², ties included."""
    difference = 2 * plus - int(doubled.sum())
    return math.erfc(abs(difference) / math.sqrt(2 * float((doubled**2).sum())))


# ---- several comparisons
def holm(p_values: ArrayLike) -> Floats:
    """Holm's step-down adjusted p-values (1979), in the order given: controls the family-wise error.

    The i-th smallest of m is multiplied by m − i + 1, then made monotone and capped at 1.
    """
    p = _finite(p_values)
    if p.ndim != 1 or ((p < 0) | (p > 1)).any():
        raise ValueError(f"p-values must be a list of numbers in [0, 1], got {p_values!r}")
    order = np.argsort(p)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted


def _finite(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"values must be finite and at least one, got {array.size} values of shape {array.shape}")
    return array
