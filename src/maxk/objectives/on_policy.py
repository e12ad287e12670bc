"""Objectives for the best of k on samples of the current policy.

They start from subsets I of size k and the weights r̃_i = C(n,k)⁻¹ Σ_{I∋i} max_I r (paper, eq. 9). O(n) after sorting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import TYPE_CHECKING, Literal

from maxk.objectives.group import z_scores
from maxk.objectives.objective import MaxAtK
from maxk.objectives.subsets import (
    best_of_k_weights,
    centred,
    steps,
    subset_maxima,
    sum_above,
    sum_below,
    unsort,
    zero_where_equal,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class BonLoo1(MaxAtK):
    """A_i = C(n,k)⁻¹ Σ_{I∋i} (max_I r − max_{I∖i} r) (paper, Appendix A; Walder & Karkhanis 2025).

    What i adds to the subsets it is in. With rewards ascending and r_(0) = 0, max_I r − max_{I∖i} r is the sum of the
    steps r_(t) − r_(t−1), t ≤ i, that lie above the rest of I. The rest lies below step t, among the first t−1 members,
    in C(t−1, k−1) ways:

        A_(i) = C(n,k)⁻¹ Σ_{t≤i} (r_(t) − r_(t−1))·C(t−1, k−1).

    Unbiased on-policy for ∇max@k. Raw, ≥ 0 for k ≥ 2. All-equal groups give 0 for k ≥ 2. k = 1 has no rest to compare
    with: A_i = r_i/n, REINFORCE without baseline, in all-equal groups too. k = n rewards only a unique best, by its
    lead over the second.
    """

    type = "bon_loo1"
    label = "BoN LOO-1"

    def advantages(self, rewards: Tensor, k: int) -> Tensor:
        ascending, order = rewards.sort(dim=1)
        return unsort((steps(ascending) * best_of_k_weights(rewards, k)).cumsum(dim=1), order)


@dataclass(frozen=True, kw_only=True)
class BonLoo2(MaxAtK):
    """Leave-two-out advantage: what i is worth as the k-th member, against what every other member would be.

        A_i = (k/n)·(n−1)⁻¹ Σ_{j≠i} mean_J [max(r_i, max_J r) − max(r_j, max_J r)], J ⊆ [n]∖{i,j}, |J| = k−1.

    The baseline is the mean of the others' worth measured without i, hence unbiased; exchanging i and j flips the sign,
    so advantages sum to 0. These are the properties that MaxPO (arXiv 2606.06080) states for its leave-two-out
    baseline; its abstract was at hand, not its formula, so this is our derivation of it. The sum collapses, because the
    baseline is max@k of the group without i:

        A_i = n/(n−k) · (r̃_i − mean r̃).

    So centring r̃ by the group mean is unbiased up to the factor n/(n−k) (for k = 1 RLOO's n/(n−1)). Raw. All-equal
    groups give 0; so does k = n, where two cannot be left out.
    """

    type = "bon_loo2"
    label = "BoN leave-two-out"
    zero_gradient_at_n = True

    def advantages(self, rewards: Tensor, k: int) -> Tensor:
        n = rewards.shape[1]
        return zero_where_equal(centred(subset_maxima(rewards, k)) * (n / (n - k) if k < n else 0.0), rewards)


@dataclass(frozen=True, kw_only=True)
class BonMean(MaxAtK):
    """z-score (as `grpo`) of r̃_i = C(n,k)⁻¹ Σ_{I∋i} max_I r (paper, eq. 9 and Section 4.3).

    Standardised, and therefore biased for ∇max@k. k = 1 is `grpo` on r/n; k = n gives every member the same r̃ and so
    no gradient; all-equal groups give 0.
    """

    type = "bon_mean"
    label = "BoN mean"
    zero_gradient_at_n = True

    def advantages(self, rewards: Tensor, k: int) -> Tensor:
        return zero_where_equal(z_scores(subset_maxima(rewards, k)), rewards)


@dataclass(frozen=True, kw_only=True)
class BonDistill(MaxAtK):
    """A_i = n·w_i − 1, w_i the chance that i is the best of a random k-subset; ties share it evenly.

    Trains one sample to be like the best of k. Σ_i A_i ∇log π_i / n is unbiased on-policy for E[∇log π(y*)], y* the
    best of k draws. That is −∇KL(best of k ‖ π) with the best of k held fixed: the forward half of BOND's divergence
    (arXiv 2407.14622), or supervised training on the best of k, less a constant weight, which has no expected gradient.
    With rewards ascending,

        w_(i) = mean of C(t−1, k−1)/C(n,k) over the places t of its ties.

    Only the order of rewards counts. Advantages sum to 0; of distinct rewards the best gets k − 1. Standardised. k = 1
    and all-equal groups give 0; at k = n the best of the group gets n − 1, all others −1. O(n²), for the ties.
    """

    type = "bon_distill"
    label = "BoN distillation"

    def advantages(self, rewards: Tensor, k: int) -> Tensor:
        ascending, order = rewards.sort(dim=1)
        ties = (ascending[:, :, None] == ascending[:, None, :]).to(rewards.dtype)
        chances = ties @ best_of_k_weights(rewards, k) / ties.sum(dim=2)
        return zero_where_equal(unsort(chances * rewards.shape[1] - 1, order), rewards)


@dataclass(frozen=True, kw_only=True)
class PasskAnalytic(MaxAtK):
    """A_i = (s_i − E[max]) / (√(E[max²] − E[max]²) + 1e-6), s_i the mean of max_I r over the k-subsets I that hold i.

    The analytic advantage of "Pass@k Training" (arXiv 2508.10751), written for any rewards: its authors have binary
    ones, for which the variance is pass@k·(1 − pass@k), and add the same 1e-6. Expectations run over all k-subsets of
    the group. The direction is that of `bon_mean`, the scale the spread of subsets in place of members. Standardised.
    All-equal groups give 0, and so does k = n.
    """

    type = "passk_analytic"
    label = "Analytic pass@k"
    zero_gradient_at_n = True

    def advantages(self, rewards: Tensor, k: int) -> Tensor:
        weights = best_of_k_weights(rewards, k)
        ascending = rewards.sort(dim=1).values
        mean = (ascending * weights).sum(dim=1, keepdim=True)
        variance = ((ascending - mean).square() * weights).sum(dim=1, keepdim=True)
        gains = subset_maxima(rewards, k) * (rewards.shape[1] / k) - mean
        return zero_where_equal(gains / (variance.sqrt() + 1e-6), rewards)


@dataclass(frozen=True, kw_only=True)
class TopM(MaxAtK):
    """Objectives for the mean of the best m of k."""

    m: int
    """How many of the best of k count, 1 ≤ m ≤ k: the policy is trained for the mean of their rewards."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.m > min(self.ks):
            raise ValueError(f"{self.type}: m = {self.m} is more than k = {min(self.ks)}; 1 ≤ m ≤ k is needed")


@dataclass(frozen=True, kw_only=True)
class BonTopM(TopM):
    """A_i = C(n,k)⁻¹ Σ_{I∋i} (f(I) − f(I∖i)), f(I) = (sum of the m largest rewards of I) / m.

    `bon_loo1` for the mean of the best m of k in place of the best. By steps as there: step t of the sorted rewards
    counts 1/m for i if fewer than m others of I lie at or above it,

        A_(i) = C(n,k)⁻¹ Σ_{t≤i} (r_(t) − r_(t−1))/m · Σ_{j<m} C(t−1, k−1−j)·C(n−t, j).

    Unbiased on-policy for ∇E f. Raw. m = 1 is `bon_loo1`; m = k is the mean reward without a baseline. All-equal groups
    give 0 for m < k.
    """

    type = "bon_topm"
    label = "BoN top-m"

    def advantages(self, rewards: Tensor, k: int) -> Tensor:
        ascending, order = rewards.sort(dim=1)
        weights = rewards.new_tensor(_top_m_weights(rewards.shape[1], k, self.m))
        return unsort((steps(ascending) * weights).cumsum(dim=1), order)


@lru_cache
def _top_m_weights(n: int, k: int, m: int) -> list[float]:
    """Σ_{j<m} C(t−1, k−1−j)·C(n−t, j) / (m·C(n,k)) for t = 1..n, from exact integers."""
    ways = [sum(_comb(t - 1, k - 1 - j) * _comb(n - t, j) for j in range(m)) for t in range(1, n + 1)]
    return [count / (m * comb(n, k)) for count in ways]


@dataclass(frozen=True, kw_only=True)
class OrderStatistic(MaxAtK):
    """A_i = (k/n)·(mean of f over the k-subsets with i − mean of f over those without), f a mean of order statistics.

    OrderGrad's L-statistics (arXiv 2606.06096) in our scale, which is k/n of theirs. The baseline never uses i, so
    Σ_i A_i ∇log π_i is unbiased on-policy for ∇E f of k draws; advantages sum to 0. f = max is `bon_loo2`. Raw.
    All-equal groups give 0; so does k = n, where no subset is without i.
    """

    type = "order_statistic"
    label = "Order statistic"
    zero_gradient_at_n = True

    statistic: Literal["top", "rank", "trimmed"] = "top"
    """What the policy is trained for, of the rewards of k draws: the mean of the m best (`top`), the m-th best
    (`rank`), or the mean without the m best and the m worst (`trimmed`; with m = (k−1)//2 the median)."""

    m: int = 1
    """The m of `statistic`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(self.ranks(k) for k in self.ks):
            limit = "2m < k" if self.statistic == "trimmed" else "m ≤ k"
            raise ValueError(f"{self.type}: {limit} is needed, got m = {self.m}, k = {min(self.ks)}")

    def ranks(self, k: int) -> range:
        """The ranks, 1 the lowest of k, whose mean is the statistic; empty where m does not fit k."""
        return (
            {
                "top": range(k - self.m + 1, k + 1),
                "rank": range(k - self.m + 1, k - self.m + 2),
                "trimmed": range(self.m + 1, k - self.m + 1),
            }[self.statistic]
            if self.m <= k
            else range(0)
        )

    def advantages(self, rewards: Tensor, k: int) -> Tensor:
        n = rewards.shape[1]
        if k == n:
            return rewards.new_zeros(rewards.shape)
        ascending, order = rewards.sort(dim=1)
        own, above, below = map(rewards.new_tensor, _rank_weights(n, k, self.ranks(k)))
        with_i = ascending * own + sum_above(ascending * above) + sum_below(ascending * below)
        return zero_where_equal(unsort(centred(with_i) * (n / (n - k)), order), rewards)


@lru_cache
def _rank_weights(n: int, k: int, ranks: range) -> tuple[list[float], list[float], list[float]]:
    """How often the t-th of n has one of the ranks in a k-subset that holds i, for t = i, above and below i.

    Divided by C(n,k) and the number of ranks; from exact integers, for t = 1..n.
    """

    def share(ways: Callable[[int, int], int]) -> list[float]:
        return [sum(ways(t, j) for j in ranks) / (len(ranks) * comb(n, k)) for t in range(1, n + 1)]

    return (
        share(lambda t, j: _comb(t - 1, j - 1) * _comb(n - t, k - j)),
        share(lambda t, j: _comb(t - 2, j - 2) * _comb(n - t, k - j)),
        share(lambda t, j: _comb(t - 1, j - 1) * _comb(n - t - 1, k - j - 1)),
    )


def _comb(n: int, k: int) -> int:
    """C(n, k), 0 where n or k is negative."""
    return comb(n, k) if n >= 0 and k >= 0 else 0
