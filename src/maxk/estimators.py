"""Rewards of n samples a problem → max@k and pass@k, and what their means over problems are worth.

max@k is the expected best reward of k fresh samples, pass@k the chance that one of them is right. Both are
estimated without bias from n ≥ k samples by averaging over all C(n, k) subsets (Chen et al. 2021, arXiv
2107.03374; the paper's Appendix C.1). With rewards sorted ascending, r_1 ≤ … ≤ r_n,

    max@k = Σ_{i=k..n} w_i r_i,   w_i = C(i−1, k−1) / C(n, k),        pass@k = 1 − C(n−c, k) / C(n, k),

where w_i is the share of k-subsets whose best member is the i-th. No binomial coefficient is ever formed: the
weights are a running product from w_n = k/n, so nothing overflows and n = 10,000 is as exact as n = 10.

    max_at_k([[0.0, 0.5, 1.0, 1.0]], [1, 2, 4])   → [[0.625, 0.9166…, 1.0]]
    pass_at_k(n=256, c=3, k=128)                  → 0.876…

`maxk.statistics` has intervals and tests for their means over problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


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
