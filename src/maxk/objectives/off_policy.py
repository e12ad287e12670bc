"""Objectives for the best of k on samples of an older policy: weights with the ratios ρ of whole groups.

`log_ratios` are log ρ_i = log π_θ(y_i|x) − log π_old(y_i|x) of whole completions; δ = ρ − 1. The own ratio is left out
of every weight, because PPO's surrogate multiplies by it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from maxk.objectives.group import z_scores
from maxk.objectives.objective import MaxAtK
from maxk.objectives.on_policy import TopM
from maxk.objectives.subsets import (
    MAX_EXPONENT,
    best_of_k_weights,
    centred,
    clamped,
    degenerate_groups,
    first_order_subset_maxima,
    numbers_before,
    one_fewer,
    one_more,
    prefix_products,
    ranks,
    steps,
    subset_maxima,
    sum_above,
    sum_below,
    tilted,
    unsort,
    zero_where_equal,
)

if TYPE_CHECKING:
    from torch import Tensor

# Below this fraction of the largest r̃, its spread over a batch is rounding, not signal.
SPREAD_FLOOR = 1e-12


@dataclass(frozen=True, kw_only=True)
class _ClampedLogRatios(MaxAtK):
    """Off-policy objectives that bound the variance by clamping log ρ."""

    off_policy = True

    clamp_log_ratio: float | None = math.log(1.2)
    """log ρ is clamped to ± this number (default: log 1.2): less variance, but a bias; null: no clamp."""

    @property
    def log_ratio_range(self) -> tuple[float, float]:
        limit = self.clamp_log_ratio or math.inf
        return -limit, limit

    def _bounded(self, log_ratios: Tensor, k: int) -> Tensor:
        """Clamped log-ratios, of which k add up to a finite ratio in any case."""
        limit = min(self.clamp_log_ratio or math.inf, MAX_EXPONENT / k)
        return log_ratios.clamp(-limit, limit)


@dataclass(frozen=True, kw_only=True)
class BonOffPolicyExact(_ClampedLogRatios):
    """A_i = C(n,k)⁻¹ Σ_{I∋i} (max_I r − max_{I∖i} r) Π_{l∈I∖i} ρ_l: `bon_loo1`, exact off-policy.

    The paper (Section 3.3) calls the sum over subsets exponentially hard. Summed by steps as in `bon_loo1`, the subsets
    whose rest lies below step t weigh Σ_J Π_{l∈J} ρ_l over the (k−1)-subsets J of the t−1 members below: the elementary
    symmetric polynomial e_{k−1}, which a recursion over the degree builds for all prefixes at once,

        A_(i) = C(n,k)⁻¹ Σ_{t≤i} (r_(t) − r_(t−1))·e_{k−1}(ρ_(1), …, ρ_(t−1)).

    With sequence-level ratios the gradient Σ_i ρ_i A_i ∇log π_i is unbiased for ∇max@k at any drift within the clamp.
    Raw, ≥ 0 for k ≥ 2, not centred: subtracting a group mean from off-policy weights shrinks and then reverses the
    gradient as ratios spread (docs/derivation.md). Equal to `bon_loo1` at ρ = 1, with the same degenerate cases.
    O(n·k).
    """

    type = "bon_offpolicy_exact"
    label = "Exact off-policy BoN"

    def advantages(self, rewards: Tensor, log_ratios: Tensor, k: int) -> Tensor:
        ascending, order = rewards.sort(dim=1)
        log_rho = clamped(log_ratios, self.clamp_log_ratio).gather(1, order)
        return unsort((steps(ascending) * prefix_products(log_rho, k)).cumsum(dim=1), order)


@dataclass(frozen=True, kw_only=True)
class BonLoo1FirstOrder(_ClampedLogRatios):
    """`bon_offpolicy_exact` with 1 + Σ_{l∈I∖i} δ_l in place of Π_{l∈I∖i} ρ_l (as Section 3.3).

        A_(i) = C(n,k)⁻¹ Σ_{t≤i} (r_(t) − r_(t−1))·[C(t−1, k−1) + C(t−2, k−2)·Σ_{l<t} δ_(l)]

    Exact for k ≤ 2, where at most one δ occurs. For larger k it may be negative where several ratios are far below 1.
    The clamp is on log ρ as in the exact form. Raw. O(n).
    """

    type = "bon_loo1_firstorder"
    label = "First-order off-policy BoN LOO-1"

    def advantages(self, rewards: Tensor, log_ratios: Tensor, k: int) -> Tensor:
        ascending, order = rewards.sort(dim=1)
        delta = self._bounded(log_ratios, 1).gather(1, order).expm1()
        first = best_of_k_weights(rewards, k)
        second = one_fewer(first, k, 1)
        return unsort((steps(ascending) * (first + second * sum_below(delta))).cumsum(dim=1), order)


@dataclass(frozen=True, kw_only=True)
class BonOffPolicyLoo2(_ClampedLogRatios):
    """`bon_loo2`, exact off-policy: i as the k-th member against every other member j, with the same companions J.

        A_i = (k/n)·(n−1)⁻¹ Σ_{j≠i} mean_J [(max(r_i, max_J r) − max(r_j, max_J r)) Π_{l∈J} ρ_l],
        J ⊆ [n]∖{i,j}, |J| = k−1.

    What is subtracted never uses i, so with sequence-level ratios the gradient is unbiased for ∇max@k at any drift
    within the clamp: this is what centring `bon_offpolicy_exact` would have to be (docs/derivation.md). By steps, with
    rewards ascending,

        A_(i) = [Σ_{t≤i} step_t·(t−k)·e_{k−1}(ρ below t) − Σ_{t>i} step_t·(n−t+1)·e_{k−1}(ρ below t, without i)]
                / ((n−k)·C(n,k)).

    A subset below t without i splits into a part below i and a part between: Σ_a e_a(below i)·e_{k−1−a}(between). One
    pass up and one down gather both, the second for all t at once (`subsets.tilted`). Raw. Depends on differences of
    rewards only; all-equal groups give exactly 0, and so does k = n. O(n·k).
    """

    type = "bon_offpolicy_loo2"
    label = "Exact off-policy BoN leave-two-out"
    zero_gradient_at_n = True

    def advantages(self, rewards: Tensor, log_ratios: Tensor, k: int) -> Tensor:
        n = rewards.shape[1]
        ascending, order = rewards.sort(dim=1)
        members, to_means = tilted(self._bounded(log_ratios, k).gather(1, order), k)
        below, step = list(numbers_before(members, k - 1)), steps(ascending).tensor_split(n, dim=1)
        gain, loss = rewards.new_empty(rewards.shape), rewards.new_empty(rewards.shape)
        none = rewards.new_ones(len(rewards), 1)  # the chance that none at or above i is drawn
        between = rewards.new_zeros(len(rewards), k)  # by the number drawn between i and t, summed over t
        for i in reversed(range(n)):
            drawn, other = members[i]
            loss[:, i] = (other * below[i] * between.flip(1)).sum(dim=1)
            none = none * other
            gain[:, i : i + 1] = step[i] * none * (i + 1 - k) * below[i][:, -1:]
            between = one_more(between, drawn, other)
            between[:, :1] += step[i] * none * (n - i)
        advantages = (gain.cumsum(dim=1) - loss) * to_means / max(1, n - k)  # k = n: all terms are 0
        return unsort(advantages, order)


@dataclass(frozen=True, kw_only=True)
class BonLoo2FirstOrder(_ClampedLogRatios):
    """`bon_offpolicy_loo2` with 1 + Σ_{l∈J} δ_l in place of Π_{l∈J} ρ_l (as Section 3.3).

    Exact for k ≤ 2, where J has at most one member. Raw. All-equal groups give 0, and so does k = n. O(n).
    """

    type = "bon_loo2_firstorder"
    label = "First-order off-policy BoN leave-two-out"
    zero_gradient_at_n = True

    def advantages(self, rewards: Tensor, log_ratios: Tensor, k: int) -> Tensor:
        n = rewards.shape[1]
        ascending, order = rewards.sort(dim=1)
        delta = self._bounded(log_ratios, 1).gather(1, order).expm1()
        first = best_of_k_weights(rewards, k)  # C(t−1, k−1)/C(n,k), and with one or two of the members below t fixed:
        second = one_fewer(first, k, 1)
        step, t, sums = steps(ascending), ranks(rewards), sum_below(delta)
        gain = (step * (t - k) * (first + second * sums)).cumsum(dim=1)
        lost = step * (t - k) * (n - t + 1)
        apart, paired = first / (t - 1).clamp(min=1), second / (t - 2).clamp(min=1)
        loss = sum_above(lost * (apart + paired * sums)) - delta * sum_above(lost * paired)
        return unsort((gain - loss) / max(1, n - k), order)  # k = n: all terms are 0


@dataclass(frozen=True, kw_only=True)
class BonOffPolicyTopM(_ClampedLogRatios, TopM):
    """`bon_topm`, exact off-policy: A_i = C(n,k)⁻¹ Σ_{I∋i} (f(I) − f(I∖i)) Π_{l∈I∖i} ρ_l.

    f is the sum of the m largest rewards over m. By steps, with rewards ascending,

        A_(i) = C(n,k)⁻¹ Σ_{t≤i} step_t/m · Σ_{j<m} e_{k−1−j}(ρ below t)·e_j(ρ at or above t, without i).

    The last factor splits at i into Σ_u e_{j−u}(from t to below i)·e_u(above i). One pass up gathers, for every u, what
    lies below i, for all t and j at once (`subsets.tilted`). Unbiased with sequence-level ratios for ∇E f at any drift
    within the clamp. m = 1 is `bon_offpolicy_exact`. Raw. All-equal groups give 0 for m < k. O(n·k).
    """

    type = "bon_offpolicy_topm"
    label = "Exact off-policy BoN top-m"

    def advantages(self, rewards: Tensor, log_ratios: Tensor, k: int) -> Tensor:
        ascending, order = rewards.sort(dim=1)
        members, to_means = tilted(self._bounded(log_ratios, k).gather(1, order), k)
        above = list(numbers_before(members[::-1], self.m - 1))[::-1]
        step, total = steps(ascending).tensor_split(rewards.shape[1], dim=1), rewards.new_empty(rewards.shape)
        lower = rewards.new_zeros(len(rewards), self.m)  # by the number drawn below i, k − m … k − 1, summed over t
        for i, below in enumerate(numbers_before(members, k - 1)):
            drawn, other = members[i]
            lower = lower + step[i] * below[:, k - self.m :]
            total[:, i] = (other * lower * above[i].flip(1)).sum(dim=1)
            lower = one_more(lower, drawn, other)
        return unsort(total * to_means / self.m, order)


@dataclass(frozen=True, kw_only=True)
class BonOffPolicy(MaxAtK):
    """The paper's first-order off-policy weights (Section 3.3, Appendix E), made usable as a PPO advantage.

        s_i = Σ_j w'_ij r_j / C(n,k) = C(n,k)⁻¹ Σ_{I∋i} (1 + Σ_{l∈I∖i} δ_l)·max_I r, δ in ±clamp_delta

    variant "surrogate": A_i = (s_i − mean s) / RMS of r̃ − mean r̃ over the batch. The own δ_i is left out because the
    surrogate multiplies by ρ_i; the scale is one number for the batch, taken on-policy, so a group in which nearly all
    subsets tie is not blown up. Pass whole batches: the RMS is over all groups given whose rewards differ, so groups
    without a signal do not enlarge the advantages of the others. At ρ = 1 this is the centred r̃ in units of its RMS.

    variant "literal", for study: z-score of s_i + δ_i·r̃_i, the printed weights with the own δ_i. It is unstable: where
    most members tie at the maximum, r̃ has no spread and the z-score turns tiny δ into advantages of order one.

    Standardised by batch (surrogate) or group (literal). All-equal groups give 0, k = n gives 0 (no spread on-policy to
    measure the scale by). O(n).
    """

    type = "bon_offpolicy"
    label = "Off-policy BoN (paper)"
    off_policy = True
    batch_scaled = True
    zero_gradient_at_n = True

    clamp_delta: float = 0.2
    """δ = ρ − 1 is clamped to ± this number (Listing 3; the paper does not give its value)."""

    variant: Literal["surrogate", "literal"] = "surrogate"
    """`literal`: the weights as printed, own δ included, as a z-score in the group; for study."""

    @property
    def log_ratio_range(self) -> tuple[float, float]:
        low = math.log1p(-self.clamp_delta) if self.clamp_delta < 1 else -math.inf
        return low, math.log1p(self.clamp_delta)

    def advantages(self, rewards: Tensor, log_ratios: Tensor, k: int) -> Tensor:
        delta = log_ratios.expm1().clamp(-self.clamp_delta, self.clamp_delta)
        on_policy, weighted = subset_maxima(rewards, k), first_order_subset_maxima(rewards, delta, k)
        if self.variant == "literal":
            return zero_where_equal(z_scores(weighted + delta * on_policy), rewards)
        spread = centred(on_policy)[~degenerate_groups(rewards)].square().mean().sqrt()
        if not spread > SPREAD_FLOOR * on_policy.abs().amax():
            return rewards.new_zeros(rewards.shape)
        return zero_where_equal(centred(weighted) / spread, rewards)
