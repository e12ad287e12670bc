"""Objectives without subsets: each advantage from the rewards of the group alone. O(n)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maxk.objectives.objective import Objective
from maxk.objectives.subsets import centred, zero_where_equal

if TYPE_CHECKING:
    from torch import Tensor

# Added to the standard deviation, as TRL's GRPOTrainer does: `grpo` then equals the stock trainer.
STD_EPSILON = 1e-4


def z_scores(values: Tensor) -> Tensor:
    """(v − mean) / (std + 1e-4) within each group; std has Bessel's correction. Exactly 0 for equal values."""
    return zero_where_equal(centred(values) / (values.std(dim=1, keepdim=True) + STD_EPSILON), values)


@dataclass(frozen=True, kw_only=True)
class Grpo(Objective):
    """A_i = (r_i − mean r) / (std r + 1e-4): z-score within the group (paper, eq. 5; Shao et al. 2024).

    Equal to TRL's GRPOTrainer with scale_rewards="group". Standardised. All-equal groups give exactly 0.
    """

    type = "grpo"
    label = "GRPO"

    def advantages(self, rewards: Tensor) -> Tensor:
        return z_scores(rewards)


@dataclass(frozen=True, kw_only=True)
class GrpoBinary(Objective):
    """`grpo` on 1[r_i = 1]: only a completion that passes every test counts (paper, Section 2.1 and Table 1).

    Groups without a full pass, or with nothing else, give 0.
    """

    type = "grpo_binary"
    label = "GRPO, binary reward"
    plain_rewards = True

    def advantages(self, rewards: Tensor) -> Tensor:
        return z_scores((rewards == 1).to(rewards.dtype))


@dataclass(frozen=True, kw_only=True)
class BonMaxMean(Objective):
    """A_i = (r_i − mean r)·1[r_i = max r] (paper, Appendix A; Chow et al. 2024).

    The group is one draw of Best-of-n: k = n. All members tied at the maximum get the advantage. Raw. All-equal groups
    give 0.
    """

    type = "bon_max_mean"
    label = "BoN-max mean"
    best_of_group = True

    def advantages(self, rewards: Tensor) -> Tensor:
        is_best = rewards == rewards.amax(dim=1, keepdim=True)
        return zero_where_equal(centred(rewards) * is_best, rewards)


@dataclass(frozen=True, kw_only=True)
class BonMaxSecond(Objective):
    """A_i = (r_i − max{r_j : r_j < max r})·1[r_i = max r] (paper, Appendix A; Tang et al. 2025).

    The second best is the largest value strictly below the maximum, so a tie at the top still gives a signal;
    all-equal groups have none and give 0. k = n as in `bon_max_mean`. Raw.
    """

    type = "bon_max_second"
    label = "BoN-max second"
    best_of_group = True

    def advantages(self, rewards: Tensor) -> Tensor:
        best = rewards.amax(dim=1, keepdim=True)
        is_best = rewards == best
        second = rewards.masked_fill(is_best, -math.inf).amax(dim=1, keepdim=True)
        return (best - second).masked_fill(~(is_best & second.isfinite()), 0.0)


@dataclass(frozen=True, kw_only=True)
class MaxRl(Objective):
    """A_i = (r_i − mean r) / mean r (MaxRL, arXiv 2602.02710): the mean reward in place of GRPO's standard deviation.

    Made for binary rewards, where Σ_i A_i ∇log π_i / n is unbiased for Σ_{k<n} ∇pass@k / k, the first n−1 terms of
    ∇log pass@1: rare successes count for more. Needs rewards ≥ 0; groups whose mean is not above 0 give 0.
    """

    type = "maxrl"
    label = "MaxRL"
    plain_rewards = True

    def advantages(self, rewards: Tensor) -> Tensor:
        mean = rewards.mean(dim=1, keepdim=True)
        return zero_where_equal((centred(rewards) / mean).masked_fill(mean <= 0, 0.0), rewards)


@dataclass(frozen=True, kw_only=True)
class RsGrpo(Objective):
    """A_i = (e^{β(r_i − s)} − 1) / β with s = log(mean e^{βr}) / β (risk-sensitive GRPO, arXiv 2509.24261).

    The group's estimate of ∇ log(E e^{βr}) / β, which lies between ∇E r (β → 0) and that of the largest reward (β → ∞).
    Raw. All-equal groups give 0.
    """

    type = "rs_grpo"
    label = "RS-GRPO"

    beta: float = 2.0
    """β, the preference for risk: near 0 the mean reward counts, for large β the largest (its authors advise 2)."""

    def advantages(self, rewards: Tensor) -> Tensor:
        tilted = self.beta * rewards
        log_mean = tilted.logsumexp(dim=1, keepdim=True) - math.log(rewards.shape[1])
        return zero_where_equal((tilted - log_mean).expm1() / self.beta, rewards)
