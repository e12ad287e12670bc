"""Rewards of n samples per problem → max@k and pass@k, and what their means over problems are worth.

max@k is the expected best reward of k fresh samples, pass@k the probability that one of them is correct. Both are
estimated without bias from n ≥ k samples by averaging over all C(n, k) subsets (Chen et al. 2021, arXiv
2107.03374; the paper's Appendix C.1). With rewards sorted ascending, r_1 ≤ … ≤ r_n,

    max@k = Σ_{i=k..n} w_i r_i,   w_i = C(i−1, k−1) / C(n, k),        pass@k = 1 − C(n−c, k) / C(n, k),

where w_i is the fraction of k-subsets whose best member is the i-th. No binomial coefficient is ever formed: the
weights are a running product from w_n = k/n, so nothing overflows and n = 10,000 is as exact as n = 10.

    max_at_k([[0.0, 0.5, 1.0, 1.0]], [1, 2, 4])   → [[0.625, 0.9166…, 1.0]]
    pass_at_k(n=256, c=3, k=128)                  → 0.876…

`maxk.statistics` has intervals and tests for their means over problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def max_at_k(rewards: ArrayLike, k: ArrayLike) -> Floats:
    """max@k of rewards [..., n] in any order: [...] for a scalar k, [..., len(k)] for a sequence; float64.

    rewards: any finite real numbers, of a reward model too; arrays, nested lists, or torch tensors on any device.
    One sort and one matrix product serve all problems and all k. Raises ValueError for NaN ("could not be graded") and
    infinite rewards, n = 0 and k outside 1..n: a k above n has no unbiased estimate, and none is made up.
    """
    rewards, ks = _reals("rewards", rewards), _one_or_several(k)
    if rewards.ndim == 0 or rewards.shape[-1] == 0:
        raise ValueError(f"rewards must be [..., n] with n ≥ 1 samples on the last axis, got shape {rewards.shape}")
    _check_finite(rewards)
    n = rewards.shape[-1]
    if ((ks < 1) | (ks > n)).any():
        wrong = ks[(ks < 1) | (ks > n)].flat[0]
        raise ValueError(
            f"k = {wrong} with n = {n} (the last axis of rewards, shape {rewards.shape}); 1 ≤ k ≤ n is needed"
        )
    weights = np.stack([best_of_k_weights(n, one) for one in np.atleast_1d(ks)], axis=-1)
    ascending = np.sort(rewards, axis=-1)
    # A mean of rewards lies between them; the clip removes the last bit of rounding (1.0000000000000002).
    estimate = np.clip(ascending @ weights, ascending[..., :1], ascending[..., -1:])
    return estimate if ks.ndim else estimate[..., 0][()]


def selected_at_k(visible: ArrayLike, hidden: ArrayLike, k: int) -> Floats:
    """Expected `hidden` value of the sample that has the best `visible` value among k; both [..., n] → [...].

    What Best-of-N gives with an imperfect verifier: samples are chosen by what can be seen (a test, a reward model) and
    judged by what cannot. Ties are broken evenly. Unbiased over all k-subsets; with hidden = visible it is `max_at_k`.
    """
    seen, judged = _reals("visible", visible), _reals("hidden", hidden)
    if seen.shape != judged.shape or seen.ndim == 0:
        raise ValueError(f"visible and hidden must be [..., n] alike, got shapes {seen.shape} and {judged.shape}")
    _check_finite(seen)
    _check_finite(judged)
    weights = best_of_k_weights(seen.shape[-1], k)
    order = np.argsort(seen, axis=-1)
    seen, judged = np.take_along_axis(seen, order, -1), np.take_along_axis(judged, order, -1)
    # Tied samples share the weight of their ranks: each gets the mean of it.
    rows = np.arange(seen.size // seen.shape[-1]).reshape(*seen.shape[:-1], 1)
    ties = (np.diff(seen, axis=-1, prepend=seen[..., :1]) > 0).cumsum(axis=-1) + rows * seen.shape[-1]
    shared = np.bincount(ties.ravel(), np.broadcast_to(weights, seen.shape).ravel())
    mean = shared / np.maximum(1, np.bincount(ties.ravel()))
    return np.asarray((mean[ties] * judged).sum(axis=-1))[()]


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> Floats:
    """pass@k of c correct samples among n, [...] for a scalar k, [..., len(k)] for a sequence; float64.

    n and c, whole numbers, broadcast against one another to [...]; k is taken as `max_at_k` takes it. Summed as
    Σ_{i>n−c} w_i, the fraction of k-subsets whose best member is one of the c correct ones: all terms are positive, so
    small values keep full relative precision (1 − C(n−c, k)/C(n, k) loses it by cancellation). Raises ValueError for
    counts that are no whole numbers, c outside 0..n and k outside 1..n.
    """
    (n, c), ks = _broadcast(n=n, c=c), _one_or_several(k)
    wrong = (c < 0) | (c > n)
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        raise ValueError(f"pass@k needs 0 ≤ c ≤ n, got c = {c[at]}, n = {n[at]}{_row(at)}")
    estimate = np.stack([_pass_at_k(n, c, one) for one in np.atleast_1d(ks)], axis=-1)
    return estimate if ks.ndim else estimate[..., 0][()]


def _pass_at_k(n: NDArray[np.int64], c: NDArray[np.int64], k: int) -> Floats:
    estimate = np.zeros(n.shape)
    for one in np.unique(n):
        from_the_top = np.cumsum(best_of_k_weights(one, k)[::-1])
        estimate[n == one] = np.concatenate([[0.0], from_the_top])[c[n == one]]
    return np.where(n - c < k, 1.0, np.minimum(estimate, 1.0))


def best_of_k_weights(n: Any, k: Any) -> Floats:
    """w_i = C(i−1, k−1)/C(n, k) for i = 1..n: the fraction of k-subsets whose best is the i-th sample, sorted.

    w_n = k/n and w_{i−1}/w_i = (i−k)/(i−1), so the weights are a running product of factors in [0, 1] from
    the top: O(n), no overflow, relative error of a few n·1e-16.
    """
    n, k = _whole("n", n), _whole("k", k)
    if not 1 <= k <= n:
        raise ValueError(f"k = {k} with n = {n} (samples per problem); 1 ≤ k ≤ n is needed")
    return _remembered(n, k).copy() if n <= _REMEMBERED else _best_of_k_weights(n, k)


def _best_of_k_weights(n: int, k: int) -> Floats:
    i = np.arange(n, 1, -1)
    ratios = np.maximum(i - k, 0) / (i - 1)
    weights: Floats = k / n * np.cumprod(np.concatenate([[1.0], ratios]))
    return weights[::-1]


_REMEMBERED = 10_000  # samples: 512 such weights are 40 MB
_remembered = lru_cache(maxsize=512)(_best_of_k_weights)


def _check_finite(rewards: Floats) -> None:
    wrong = ~np.isfinite(rewards)
    if wrong.any():
        *row, sample = np.argwhere(wrong)[0]
        value = rewards[(*row, sample)]
        meaning = " (NaN: could not be graded)" if np.isnan(value) else ""
        raise ValueError(f"reward {value}{meaning} of sample {sample}{_row(row)}; rewards must be finite numbers")


def _array(name: str, values: Any) -> NDArray[Any]:
    """Numbers as an array: anything numpy takes, and torch tensors on a GPU or with a gradient.

    Raises ValueError for masked entries, whose values numpy would take silently.
    """
    if np.ma.is_masked(values):
        raise ValueError(f"{name} with masked entries: select those that count")
    detach = getattr(values, "detach", None)
    try:
        return np.asarray(values if detach is None else detach().cpu())
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{name} must be a rectangular array of numbers ({error})") from None


def _reals(name: str, values: Any) -> Floats:
    """Real numbers as float64. A bfloat16 tensor, which numpy does not know, goes through torch's own float64.

    A complex one does not: torch would drop the imaginary parts.
    """
    if getattr(values, "dtype", None) is not None and hasattr(values, "double") and not values.is_complex():
        values = values.double()
    array = _array(name, values)
    if array.dtype.kind not in "biufO":
        raise ValueError(f"{name} must be real numbers, got {array.dtype}")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be real numbers ({error})") from None


def usual_ks(n: int) -> list[int]:
    """1, 2, 4, … and n: the default values of k for n samples per problem."""
    return sorted({n, *(2**i for i in range(n.bit_length()))})


def _integers(name: str, values: Any) -> NDArray[np.int64]:
    array = _array(name, values)
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must be whole numbers, got {values!r}")
    return array.astype(np.int64)


def _one_or_several(k: ArrayLike) -> NDArray[np.int64]:
    ks = _array("k", k)
    if ks.ndim > 1 or ks.size == 0:
        raise ValueError(f"k must be one number or a sequence of them, got shape {ks.shape}")
    return _integers("k", k)


def _whole(name: str, value: Any) -> int:
    found = _integers(name, value)
    if found.ndim:
        raise ValueError(f"{name} must be one whole number, got shape {found.shape}")
    return int(found)


def _broadcast(**values: Any) -> Sequence[NDArray[np.int64]]:
    arrays = [_integers(name, value) for name, value in values.items()]
    try:
        return np.broadcast_arrays(*arrays)
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(values, arrays, strict=True))
        raise ValueError(f"shapes must broadcast against one another, got {shapes}") from None


def _row(index: Sequence[int] | Any) -> str:
    return f" in row {', '.join(str(i) for i in index)}" if len(index) else ""
