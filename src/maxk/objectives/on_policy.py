"""Objectives for the best of k on samples of the current policy.

They start from subsets I of size k and the weights r̃_i = C(n,k)⁻¹ Σ_{I∋i} max_I r (paper, eq. 9). O(n) after sorting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from maxk.objectives.group import z_scores
from maxk.objectives.objective import MaxAtK
from maxk.objectives.subsets import best_of_k_weights, centred, steps, subset_maxima, unsort, zero_where_equal

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
