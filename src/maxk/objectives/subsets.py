"""Sums over the subsets of a group, by cumulative sums over its sorted members.

All functions take [groups, n] in float64. Those that begin with "ascending" in their arguments expect rewards sorted
ascending (ratios permuted alike); `unsort` puts a result back. Ties need no care: equal rewards make equal subsets.

Only calling a function imports torch: the configuration imports this module (see `maxk.objectives.objective`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from maxk.errors import needs_extra

if TYPE_CHECKING:
    from torch import Tensor

# A log-ratio without a clamp is kept within ±this, so that sums of log-ratios stay finite.
MAX_LOG_RATIO = 1e4
# e to this power is still far from the largest float.
MAX_EXPONENT = 600


# ---- on-policy
def best_of_k_weights(like: Tensor, k: int) -> Tensor:
    """C(t−1, k−1)/C(n, k) for t = 1..n, as a running product from k/n at the top: no binomial is formed."""
    t = ranks(like)
    ratios = (t + 1 - k).clamp(min=0) / t
    ratios[-1] = 1
    return (k / like.shape[1] * ratios.flip(0).cumprod(0)).flip(0)


def one_fewer(weights: Tensor, k: int, step: int) -> Tensor:
    """C(t−s, k−s)/C(n,k) → C(t−s−1, k−s−1)/C(n,k) for s = `step`: a factor (k−s)/(t−s), zero for t ≤ s."""
    t = ranks(weights)
    return (weights * (k - step) / (t - step).clamp(min=1)).masked_fill(t <= step, 0.0)


def subset_maxima(rewards: Tensor, k: int) -> Tensor:
    """r̃_i = C(n,k)⁻¹ Σ_{I∋i} max_I r, from the paper's w_ii = C(i−1,k−1) and w_ij = C(j−2,k−2) in O(n)."""
    ascending, order = rewards.sort(dim=1)
    best = best_of_k_weights(rewards, k)
    return unsort(ascending * best + sum_above(ascending * one_fewer(best, k, 1)), order)


# ---- off-policy
def first_order_subset_maxima(rewards: Tensor, delta: Tensor, k: int) -> Tensor:
    """C(n,k)⁻¹ Σ_{I∋i} (1 + Σ_{l∈I∖i} δ_l) max_I r: the paper's w′ without the own δ_i, in O(n).

    With D_j = Σ_{l<j} δ_l, Appendix E reads w′_ii = C(i−1,k−1) + C(i−2,k−2) D_i and, for j > i,
    w′_ij = C(j−2,k−2) (1 + δ_j) + C(j−3,k−3) (D_j − δ_i), of which only the last term couples i and j.
    """
    ascending, order = rewards.sort(dim=1)
    delta = delta.gather(1, order)
    below = sum_below(delta)
    best = best_of_k_weights(rewards, k)
    pair = one_fewer(best, k, 1)
    triple = one_fewer(pair, k, 2)
    own = ascending * (best + pair * below)
    above = sum_above(ascending * (pair * (1 + delta) + triple * below))
    return unsort(own + above - delta * sum_above(ascending * triple), order)


def prefix_products(log_rho: Tensor, k: int) -> Tensor:
    """e_{k−1}(ρ_1 … ρ_{t−1}) / C(n,k) for t = 1..n.

    e_m over the first t members is Σ_{s≤t} ρ_s·e_{m−1} over the first s−1: one cumulative sum for each degree. All
    terms are ≥ 0, so nothing cancels. With ρ relative to the group's largest, a product of up to 31 ratios fits
    float64 with room for log-ratios of ±5 and more; higher degrees take the same sums in log space, at about five
    times the cost.
    """
    if k <= 32:
        top = log_rho.amax(dim=1, keepdim=True)
        rho = (log_rho - top).exp()
        sums = rho.new_ones(rho.shape)
        for _ in range(k - 1):
            sums = sum_below(rho * sums)
        log_sums = sums.log() + (k - 1) * top
    else:
        log_sums = log_rho.new_zeros(log_rho.shape)
        for _ in range(k - 1):
            log_sums = _shifted((log_rho + log_sums).logcumsumexp(dim=1), -math.inf)
    log_subsets = math.log(math.comb(log_rho.shape[1], k))
    return (log_sums - log_subsets).exp().clamp(max=sys.float_info.max)


Members = list[tuple["Tensor", "Tensor"]]
"""For every member the chance that it is drawn, and that it is not, each [groups, 1]."""


def tilted(log_rho: Tensor, k: int) -> tuple[Members, Tensor]:
    """Products of ratios as probabilities, which neither overflow nor lose what counts in a group of any size.

    Each member l is drawn by itself with the chance xρ_l/(1 + xρ_l). Then the members of J and no others are drawn with
    the chance x^|J| Π_{l∈J} ρ_l / Π_l (1 + xρ_l): their product, up to a factor. About k − ½ are drawn on average, so
    that k − 1 is among the likeliest numbers.

    Returns the members, and the factor [groups, 1] from the chance of a (k−1)-subset to its product over C(n,k).
    """
    n = log_rho.shape[1]
    even = math.log((k - 0.5) / (n - k + 0.5))  # log x if all ratios are 1
    low, high = even - log_rho.amax(dim=1, keepdim=True), even - log_rho.amin(dim=1, keepdim=True)
    for _ in range(8):  # any x is right, if not too far off
        middle = (low + high) / 2
        many = (log_rho + middle).sigmoid().sum(dim=1, keepdim=True) > k - 0.5
        low, high = low.where(many, middle), middle.where(many, high)
    log_odds = log_rho + low
    log_all = log_odds.logaddexp(log_odds.new_zeros(())).sum(dim=1, keepdim=True)
    factor = (log_all - (k - 1) * low - math.log(math.comb(n, k))).exp()
    drawn, other = log_odds.sigmoid(), (-log_odds).sigmoid()
    return list(zip(drawn.tensor_split(n, dim=1), other.tensor_split(n, dim=1), strict=True)), factor


def one_more(numbers: Tensor, drawn: Tensor, other: Tensor) -> Tensor:
    """Chances [groups, …] that 0, 1, … are drawn → those with one more member."""
    return other * numbers + drawn * _shifted(numbers, 0.0)


def numbers_before(members: Members, most: int) -> Iterator[Tensor]:
    """For every member, the chances [groups, most + 1] that 0 … `most` of those before it are drawn."""
    numbers = members[0][0].new_zeros(len(members[0][0]), most + 1)
    numbers[:, 0] = 1
    for member in members:
        yield numbers
        numbers = one_more(numbers, *member)


def clamped(log_ratios: Tensor, limit: float | None) -> Tensor:
    """Log-ratios within ±limit; None: no clamp that matters."""
    limit = MAX_LOG_RATIO if limit is None else limit
    return log_ratios.clamp(-limit, limit)


# ---- sorted members
def steps(ascending: Tensor) -> Tensor:
    """r_(t) − r_(t−1) with r_(0) = 0."""
    return ascending.diff(dim=1, prepend=ascending.new_zeros(len(ascending), 1))


def sum_below(values: Tensor) -> Tensor:
    """Σ_{l<t} values_l for every t."""
    return _shifted(values.cumsum(dim=1), 0.0)


def sum_above(values: Tensor) -> Tensor:
    """Σ_{l>t} values_l for every t."""
    return sum_below(values.flip(1)).flip(1)


def unsort(values: Tensor, order: Tensor) -> Tensor:
    return values.scatter(1, order, values)


# ---- groups
def centred(values: Tensor) -> Tensor:
    return values - values.mean(dim=1, keepdim=True)


def require_tensors(rewards: Any, log_ratios: Any = None) -> None:
    """Raises TypeError for an array or a list: advantages would not be what the caller computes with.

    Every call comes here first, so a missing torch is told here, with the extra that holds it.
    """
    with needs_extra("maxk.objectives", "torch"):
        import torch

    given = {"rewards": rewards} if log_ratios is None else {"rewards": rewards, "log_ratios": log_ratios}
    for name, value in given.items():
        if not isinstance(value, torch.Tensor):
            got = type(value).__name__
            raise TypeError(f"{name} must be a torch tensor [groups, n], got {got}; torch.as_tensor({name}) makes one")


def unusable_groups(rewards: Tensor, log_ratios: Tensor | None = None) -> Tensor:
    """Mask [groups] of those with a reward or a log-ratio that is NaN or infinite. Raises TypeError for no tensors."""
    require_tensors(rewards, log_ratios)
    usable = rewards.isfinite().all(dim=1)
    return ~usable if log_ratios is None else ~(usable & log_ratios.to(rewards.device).isfinite().all(dim=1))


def degenerate_groups(rewards: Tensor, log_ratios: Tensor | None = None) -> Tensor:
    """Mask [groups] of those without a signal: unusable, or all rewards equal (as in a group of one)."""
    return unusable_groups(rewards, log_ratios) | (rewards.amax(dim=1) == rewards.amin(dim=1))


def zero_where_equal(values: Tensor, rewards: Tensor) -> Tensor:
    """Exact zeros where all rewards of a group are equal, in place of the rounding of their mean."""
    return values.masked_fill(degenerate_groups(rewards)[:, None], 0.0)


def ranks(like: Tensor) -> Tensor:
    """1 … n for the last dimension of `like`."""
    return like.new_ones(like.shape[-1]).cumsum(0)


def _shifted(values: Tensor, first: float) -> Tensor:
    """Values moved up by one place, with `first` in the first."""
    shifted = values.roll(1, dims=1)
    shifted[:, 0] = first
    return shifted
