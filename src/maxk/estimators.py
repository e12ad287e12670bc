"""Rewards of n samples a problem → max@k and pass@k, and what their means over problems are worth.

max@k is the expected best reward of k fresh samples, pass@k the chance that one of them is right. Both are
estimated without bias from n ≥ k samples by averaging over all C(n, k) subsets (Chen et al. 2021, arXiv
2107.03374; the paper's Appendix C.1). With rewards sorted ascending, r_1 ≤ … ≤ r_n,

    max@k = Σ_{i=k..n} w_i r_i,   w_i = C(i−1, k−1) / C(n, k),        pass@k = 1 − C(n−c, k) / C(n, k),

where w_i is the share of k-subsets whose best member is the i-th. No binomial coefficient is ever formed: the
weights are a running product from w_n = k/n, so nothing overflows and n = 10,000 is as exact as n = 10.

    max_at_k([[0.0, 0.5, 1.0, 1.0]], [1, 2, 4])   → [[0.625, 0.9166…, 1.0]]
    pass_at_k(n=256, c=3, k=128)                  → 0.876…

Means over problems come with percentile bootstrap intervals (Efron 1979); two policies are compared problem
by problem (paired bootstrap, Wilcoxon's signed-rank test as in the paper), Holm-corrected over several
comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
LARGEST_EXACT = 50  # differing pairs up to which Wilcoxon's p is exact (scipy's limit where there are no ties)


# ---- estimators
def max_at_k(rewards: ArrayLike, k: int | Sequence[int]) -> Floats:
    """max@k of rewards [..., n] in any order: [...] for one k, [..., len(k)] for a sequence; float64.

    One sort and one matrix product serve all problems and all k. NaN ("could not be graded"), rewards outside
    [0, 1], n = 0 and k outside 1..n raise ValueError: a k above n has no unbiased estimate, and none is made
    up.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    if rewards.ndim == 0 or rewards.shape[-1] == 0:
        raise ValueError(f"max@k needs rewards [..., n] with n ≥ 1 samples, got shape {rewards.shape}")
    _check_rewards(rewards)
    n = rewards.shape[-1]
    weights = np.stack([best_of_k_weights(n, one) for one in np.atleast_1d(np.asarray(k))], axis=-1)
    ascending = np.sort(rewards, axis=-1)
    # A mean of rewards lies between them; the clip removes the last bit of rounding (1.0000000000000002).
    estimate = np.clip(ascending @ weights, ascending[..., :1], ascending[..., -1:])
    return estimate if np.ndim(k) else estimate[..., 0][()]


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> Floats:
    """pass@k of c right samples among n, float64; the integer arguments broadcast against one another.

    Summed as Σ_{i>n−c} w_i, the share of k-subsets whose best member is one of the c right ones: all terms
    are positive, so small values keep full relative precision (1 − C(n−c, k)/C(n, k) loses it by
    cancellation).
    """
    n, c, k = np.broadcast_arrays(_integers("n", n), _integers("c", c), _integers("k", k))
    wrong = (c < 0) | (c > n)
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        raise ValueError(f"pass@k needs 0 ≤ c ≤ n, got c = {c[at]}, n = {n[at]}{_row(at)}")
    estimate = np.zeros(n.shape)
    pairs, which = np.unique(np.stack([n.ravel(), k.ravel()]), axis=1, return_inverse=True)
    for index, (one_n, one_k) in enumerate(pairs.T):
        at = (which.ravel() == index).reshape(n.shape)
        from_the_top = np.cumsum(best_of_k_weights(one_n, one_k)[::-1])
        estimate[at] = np.concatenate([[0.0], from_the_top])[c[at]]
    return np.where(n - c < k, 1.0, np.minimum(estimate, 1.0))[()]


def best_of_k_weights(n: Any, k: Any) -> Floats:
    """w_i = C(i−1, k−1)/C(n, k) for i = 1..n: the share of k-subsets whose best is the i-th sample, sorted.

    w_n = k/n and w_{i−1}/w_i = (i−k)/(i−1), so the weights are a running product of factors in [0, 1] from
    the top: O(n), no overflow, relative error of a few n·1e-16.
    """
    n, k = int(_integers("n", n)), int(_integers("k", k))
    if not 1 <= k <= n:
        raise ValueError(f"k = {k} with n = {n} samples a problem; 1 ≤ k ≤ n is needed")
    i = np.arange(n, 1, -1)
    ratios = np.maximum(i - k, 0) / (i - 1)
    weights: Floats = k / n * np.cumprod(np.concatenate([[1.0], ratios]))
    return weights[::-1]


def _check_rewards(rewards: Floats) -> None:
    wrong = ~((rewards >= 0) & (rewards <= 1))  # NaN fails both comparisons
    if wrong.any():
        *row, sample = np.argwhere(wrong)[0]
        value = rewards[(*row, sample)]
        meaning = " (NaN: could not be graded)" if np.isnan(value) else ""
        raise ValueError(f"reward {value}{meaning} of sample {sample}{_row(row)}; rewards must lie in [0, 1]")


def _integers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must be whole numbers, got {values!r}")
    return array.astype(np.int64)


def _row(index: Sequence[int] | Any) -> str:
    return f" in row {', '.join(str(i) for i in index)}" if len(index) else ""


# ---- statistics
class SignedRank(NamedTuple):
    """Wilcoxon's signed-rank test: statistic, two-sided p-value, on how many pairs each side is greater, effect size.

    The effect is the matched-pairs rank-biserial correlation (Kerby 2014), (W+ − W−)/(W+ + W−), in [−1, 1].
    """

    statistic: float
    p_value: float
    greater: int
    less: int
    rank_biserial: float

    @property
    def differing(self) -> int:
        """Pairs that the test uses: zero differences are dropped."""
        return self.greater + self.less


def bootstrap_means(values: ArrayLike, resamples: int, seed: int | Sequence[int]) -> Floats:
    """Means [resamples, …] of values [units, …] over units drawn with replacement, the same draw for all columns.

    Equal seeds draw equal units, so that what is compared is paired: the difference of two policies' means on the
    same problems varies as the difference does. The samples of a problem are not drawn again: the spread says how far
    another draw of problems could move the mean, which is what a benchmark comparison needs.
    """
    table = _finite(values)
    sums = [np.tensordot(counts, table, axes=1) for counts in _draws(len(table), resamples, seed)]
    return np.concatenate(sums) / len(table)


def bootstrap_seeds(means: ArrayLike, seed: int | Sequence[int]) -> Floats:
    """Means [resamples, …] of bootstrap means [resamples, training seeds, …] over training seeds drawn anew, too.

    Seeds and problems are crossed factors, both resampled. With two or three seeds this still understates the spread
    between them (the bootstrap variance of S seeds is (S − 1)/S of the unbiased one): report S beside it.
    """
    table = _finite(means)
    counts = np.concatenate(list(_draws(table.shape[1], len(table), seed)))
    return np.asarray(np.einsum("bs,bs...->b...", counts, table) / table.shape[1])


def percentile_interval(means: ArrayLike, level: float) -> tuple[float, float]:
    """Percentile bootstrap interval (Efron 1979) from replicates of a mean."""
    low, high = percentile_intervals(means, level)
    return float(low), float(high)


def percentile_intervals(means: ArrayLike, level: float) -> Floats:
    """The same of many at once: lower and upper ends [2, …] from replicates [resamples, …]."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    return np.asarray(np.quantile(_finite(means), [(1 - level) / 2, (1 + level) / 2], axis=0))


def bootstrap_p(differences: ArrayLike) -> float:
    """Two-sided p of "no difference" from bootstrap means of paired differences.

    2·min(#{d* ≤ 0}, #{d* ≥ 0}) with one added to count and total, so never 0; 1 where the two agree everywhere.
    """
    rounded = np.round(_finite(differences), 12)
    tail = min((rounded <= 0).sum(), (rounded >= 0).sum())
    return min(1.0, 2 * (1 + float(tail)) / (len(rounded) + 1))


def wilcoxon_signed_rank(a: ArrayLike, b: ArrayLike) -> SignedRank:
    """Two-sided Wilcoxon signed-rank test of paired values [problems] (the paper's test, as scipy.stats.wilcoxon).

    Zero differences are dropped (Wilcoxon's own treatment, scipy's default) and ties share the mean rank; differences
    are rounded to 12 decimals first, so that rounding noise neither counts as a difference nor breaks ties. Where no
    pair differs there is nothing to test: p = 1, no effect and `differing` = 0. The p-value is exact up to 50 differing
    pairs, with ties too, else the tie-corrected normal approximation, scipy's. (Given zeros, scipy approximates from 14
    pairs on, however few of them differ: five equal differences among 20 pairs have p = 0.025 there, exactly 0.0625.)
    Below 6 differing pairs p cannot go under 0.05.
    """
    first, second = _finite(a), _finite(b)
    if first.ndim != 1 or first.shape != second.shape:
        got = f"{first.shape} and {second.shape}"
        raise ValueError(f"a and b must be [problems] of equal length, got shapes {got}")
    difference = np.round(first - second, 12)
    difference = difference[difference != 0]
    if len(difference) == 0:
        return SignedRank(0.0, 1.0, 0, 0, 0.0)
    above = difference > 0
    doubled = _doubled_ranks(np.abs(difference))
    plus, minus = int(doubled[above].sum()), int(doubled[~above].sum())
    p_value = (_exact_p if len(difference) <= LARGEST_EXACT else _normal_p)(doubled, plus)
    greater = int(above.sum())
    effect = (plus - minus) / (plus + minus)
    return SignedRank(min(plus, minus) / 2, p_value, greater, len(difference) - greater, effect)


def _doubled_ranks(values: Floats) -> NDArray[np.int64]:
    """Twice the rank of each value, ties sharing their mean: whole numbers."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((2 * last - counts + 1)[which], dtype=np.int64)


def _exact_p(doubled: NDArray[np.int64], plus: int) -> float:
    """P of a sum of positive ranks as far out as `plus` if each sign is a coin's: all 2ⁿ signs, counted by sum."""
    ways = np.zeros(int(doubled.sum()) + 1)
    ways[0] = 1
    for rank in doubled:
        ways[rank:] += ways[:-rank].copy()
    tail = min(ways[: plus + 1].sum(), ways[plus:].sum())
    return min(1.0, 2 * float(tail) / 2.0 ** len(doubled))


def _normal_p(doubled: NDArray[np.int64], plus: int) -> float:
    """The same by the normal approximation: W+ − W− has mean 0 and variance Σ r², the correction for ties included."""
    difference = 2 * plus - int(doubled.sum())
    return math.erfc(abs(difference) / math.sqrt(2 * float((doubled**2).sum())))


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


def _draws(units: int, resamples: int, seed: int | Sequence[int]) -> Iterator[Floats]:
    """How often each unit is drawn, [at most 500, units], with replacement; 500 draws at a time bound the memory."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, 500):
        yield rng.multinomial(units, np.full(units, 1 / units), size=min(500, resamples - start)).astype(np.float64)


def _finite(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"values must be finite and at least one, got {array.size} values of shape {array.shape}")
    return array
