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

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


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
class Interval(NamedTuple):
    """A mean over problems with its bootstrap interval; arrays where the input had columns."""

    estimate: Floats
    low: Floats
    high: Floats


class PairedDifference(NamedTuple):
    """Mean of a − b over problems, its bootstrap interval and the two-sided p-value of "no difference"."""

    estimate: float
    low: float
    high: float
    p_value: float


class SignedRank(NamedTuple):
    """Wilcoxon's signed-rank test: statistic, two-sided p-value, and how many pairs differ at all."""

    statistic: float
    p_value: float
    differing: int


def bootstrap_interval(values: ArrayLike, level: float = 0.95, resamples: int = 10_000, seed: int = 0) -> Interval:
    """Percentile interval of the mean over problems; values [problems] or [problems, columns].

    Problems are resampled with replacement, the same draw for all columns. The samples of a problem are not:
    the interval says how far another draw of problems could move the mean, which is what a benchmark
    comparison needs.
    """
    table = _finite(values)
    if table.ndim not in (1, 2):
        raise ValueError(f"values must be [problems] or [problems, columns], got shape {table.shape}")
    return _percentiles(table.mean(axis=0), _bootstrap_means(table[np.newaxis], resamples, seed), level)


def bootstrap_seeds_interval(
    values: ArrayLike, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Percentile interval of the mean over seeds and problems; values [seeds, problems] or with columns.

    Seeds and problems are crossed factors and both are resampled, independently. With one seed this is
    `bootstrap_interval`. With two or three it still understates the spread between seeds (the bootstrap
    variance of S seeds is (S−1)/S of the unbiased one): report the number of seeds beside it.
    """
    table = _finite(values)
    if table.ndim not in (2, 3):
        raise ValueError(f"values must be [seeds, problems] or with columns, got shape {table.shape}")
    return _percentiles(table.mean(axis=(0, 1)), _bootstrap_means(table, resamples, seed), level)


def paired_bootstrap(
    a: ArrayLike, b: ArrayLike, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> PairedDifference:
    """Mean of a − b over the same problems, [problems] or [seeds, problems] each, with interval and p.

    Both policies see the same resampled problems (and seeds, paired by position; one side may have a single
    seed, as the base model has). p = 2·min(#{d* ≤ 0}, #{d* ≥ 0}) with one added to count and total, so it is
    never 0; it is 1 where a and b agree on every problem.
    """
    first, second = np.atleast_2d(_finite(a)), np.atleast_2d(_finite(b))
    seeds = {len(first), len(second)}
    if first.shape[1] != second.shape[1] or (len(seeds) > 1 and 1 not in seeds):
        got = f"{first.shape} and {second.shape}"
        raise ValueError(f"a and b must hold the same problems (and seeds), got shapes {got}")
    difference = first - second
    means = _bootstrap_means(difference, resamples, seed)
    tail = min((means <= 0).sum(), (means >= 0).sum())
    estimate, low, high = _percentiles(difference.mean(axis=(0, 1)), means, level)
    p_value = min(1.0, 2 * (1 + float(tail)) / (resamples + 1))
    return PairedDifference(float(estimate), float(low), float(high), p_value)


def wilcoxon_signed_rank(a: ArrayLike, b: ArrayLike) -> SignedRank:
    """Two-sided Wilcoxon signed-rank test of paired values [problems] (scipy's; the paper's test).

    Zero differences are dropped (Wilcoxon's own treatment) and ties share the mean rank; differences are
    rounded to 12 decimals first, so that rounding noise neither counts as a difference nor breaks ties. Where
    no pair differs there is nothing to test: p = 1 and `differing` = 0. The p-value is exact up to 50 pairs
    without ties or zeros and up to 13 pairs with them, else the tie-corrected normal approximation. Below 6
    differing pairs it cannot go under 0.05.
    """
    first, second = _finite(a), _finite(b)
    if first.ndim != 1 or first.shape != second.shape:
        got = f"{first.shape} and {second.shape}"
        raise ValueError(f"a and b must be [problems] of equal length, got shapes {got}")
    difference = np.round(first - second, 12)
    differing = int(np.count_nonzero(difference))
    if differing == 0:
        return SignedRank(0.0, 1.0, 0)
    from scipy import stats  # half a second of import that estimating alone does not need

    result = stats.wilcoxon(difference)
    return SignedRank(float(result.statistic), float(result.pvalue), differing)


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


def _bootstrap_means(table: Floats, resamples: int, seed: int) -> Floats:
    """Means of `resamples` bootstrap draws of [seeds, problems, …]: [resamples, …]."""
    rng = np.random.default_rng(seed)
    seeds, problems = table.shape[:2]

    def draw(size: int, of: int) -> Floats:
        return rng.multinomial(of, np.full(of, 1 / of), size=size).astype(np.float64)

    sums = []
    for start in range(0, resamples, 500):  # bounds the memory at 500 × problems
        size = min(500, resamples - start)
        over_problems = np.tensordot(draw(size, problems), table, axes=(1, 1))  # [size, seeds, …]
        sums.append(np.einsum("bs,bs...->b...", draw(size, seeds), over_problems))
    means: Floats = np.concatenate(sums) / (seeds * problems)
    return means


def _percentiles(estimate: Floats, means: Floats, level: float) -> Interval:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return Interval(estimate, low, high)


def _finite(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"values must be finite and at least one, got {array.size} values of shape {array.shape}")
    return array
