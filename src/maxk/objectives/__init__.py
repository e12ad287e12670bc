"""Rewards of a group of completions → one advantage each, aligned with Best-of-N.

    objective = make({"type": "bon_offpolicy_exact", "k": 4})
    advantages = objective(rewards, log_ratios)  # [groups, n] each; log_ratios = log π_θ(y|x)/π_old(y|x)

A group is n completions y_1 … y_n of one prompt x with rewards r_i in [0, 1]. PPO's surrogate multiplies an
advantage by the completion's own ratio ρ_i = π_θ(y_i|x)/π_old(y_i|x), so an objective's gradient is Σ_i ρ_i
A_i ∇log π_θ(y_i|x). The max@k objectives (`bon_*` with a k) start from subsets I of size k and use two sums,

    r̃_i = C(n,k)⁻¹ Σ_{I∋i} max_I r                                        (paper, eq. 9)
    A_i = C(n,k)⁻¹ Σ_{I∋i} (max_I r − max_{I∖i} r) Π_{l∈I∖i} ρ_l          (max over the empty set: 0)

of which the second is exact off-policy and costs O(n·k): see `bon_offpolicy_exact` and docs/objectives.md.

Every function below takes [groups, n] in float64 and any order of the members, sorts by reward and puts the
result back; ties are free because equal rewards make equal subsets. `Objective` adds what all share: dtype,
ungraded (NaN) rewards, the schedule of k. Complexity is per group; sorting's O(n log n) goes without saying.

Scale. "Standardised" advantages have unit standard deviation in a group; "raw" ones are on the scale of
rewards, and because Σ_i stands where GRPO's loss has a mean over members, they are about n times smaller than
a score per member. A smaller advantage against an unchanged KL coefficient β is a stronger pull to the base
policy: compare at matched KL, or scale β along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from maxk.objectives.types import (
    OBJECTIVE_TYPES,
    ObjectiveType,
    Schedule,
    kind_of,
    parameters,
    schedule,
    validate,
)

# Added to the standard deviation, as TRL's GRPOTrainer does: `grpo` then equals the stock trainer.
STD_EPSILON = 1e-4
# Below it the spread of r̃ over a batch is rounding, not signal.
SPREAD_FLOOR = 1e-12


# ---- the object
@dataclass(frozen=True)
class Objective:
    """An objective with its parameters bound: rewards (and log-ratios) → advantages, all [groups, n]."""

    type: str
    k: Schedule | None
    parameters: Mapping[str, Any]

    @property
    def kind(self) -> ObjectiveType:
        return OBJECTIVE_TYPES[self.type]

    @torch.no_grad()
    def __call__(self, rewards: Tensor, log_ratios: Tensor | None = None, progress: float = 0.0) -> Tensor:
        """Advantages of `rewards` [groups, n], same dtype and device; float64 inside.

        `log_ratios` are those of whole completions (token log-ratios summed), None where the samples are
        on-policy; on-policy objectives ignore them. `progress` in [0, 1] drives a schedule of k. A group with
        a NaN reward gets all-zero advantages, because an ungraded member leaves every subset that it is in
        without a maximum; so does a group of one. Values beyond the dtype saturate at its largest, they are
        never NaN.
        """
        n = _group_size(rewards, log_ratios)
        arguments = dict(self.parameters)
        if self.k is not None:
            arguments["k"] = _checked(self.k(progress), n)
        advantages = torch.zeros_like(rewards)
        graded = ~rewards.isnan().any(dim=1)
        if n == 1 or not graded.any():
            return advantages
        given = rewards[graded].double()
        if arguments.pop("binary", False):
            given = (given == 1).double()
        if self.kind.off_policy:
            drift = torch.zeros_like(rewards) if log_ratios is None else log_ratios.to(rewards.device)
            arguments["log_ratios"] = drift[graded].double()
        result = REGISTRY[self.type](given, **arguments)
        limit = torch.finfo(rewards.dtype).max
        advantages[graded] = result.clamp(-limit, limit).to(rewards.dtype)
        return advantages


def make(config: Mapping[str, Any]) -> Objective:
    """The objective of a config entry, say {"type": "bon_loo1", "k": 4}; ValueError where it is unknown.

    A `k` given to a type without one is ignored, so that all types can be made with one k for comparison.
    """
    kind = kind_of(config)
    spec = {key: value for key, value in config.items() if key != "k" or kind.uses_k}
    validate(spec)
    return Objective(spec["type"], schedule(spec) if kind.uses_k else None, parameters(spec))


def degenerate_groups(rewards: Tensor) -> Tensor:
    """Mask [groups] of those that teach nothing: all rewards equal (as in a group of one), or one NaN."""
    return ~(rewards.amax(dim=1) > rewards.amin(dim=1))  # a NaN makes both NaN, and NaN > NaN is false


# ---- one reward a member, no subsets
def grpo(rewards: Tensor) -> Tensor:
    """A_i = (r_i − mean r) / (std r + 1e-4): z-score within the group (paper, eq. 5; Shao et al. 2024).

    std has Bessel's correction, and with 1e-4 added the result equals TRL's GRPOTrainer
    (scale_rewards="group"). Standardised. All-equal groups give exactly 0. O(n).
    """
    scale = rewards.std(dim=1, keepdim=True) + STD_EPSILON
    return _zero_where_equal(_centred(rewards) / scale, rewards)


def grpo_binary(rewards: Tensor) -> Tensor:
    """`grpo` on 1[r_i = 1]: only a completion that passes every test counts (paper, Section 2.1 and Table 1).

    Groups without a full pass, or with nothing else, give 0.
    """
    return grpo((rewards == 1).to(rewards.dtype))


def bon_max_mean(rewards: Tensor) -> Tensor:
    """A_i = (r_i − mean r)·1[r_i = max r] (paper, Appendix A; Chow et al. 2024).

    The group is one draw of Best-of-n: k = n. All members tied at the maximum get the advantage. Raw.
    All-equal groups give 0. O(n).
    """
    best = rewards.amax(dim=1, keepdim=True)
    return _zero_where_equal(_centred(rewards) * (rewards == best), rewards)


def bon_max_second(rewards: Tensor) -> Tensor:
    """A_i = (r_i − max{r_j : r_j < max r})·1[r_i = max r] (paper, Appendix A; Tang et al. 2025).

    The second best is the largest value strictly below the maximum, so a tie at the top still teaches;
    all-equal groups have none and give 0. k = n as in `bon_max_mean`. Raw. O(n).
    """
    best = rewards.amax(dim=1, keepdim=True)
    is_best = rewards == best
    second = rewards.masked_fill(is_best, -math.inf).amax(dim=1, keepdim=True)
    return torch.where(is_best & second.isfinite(), best - second, 0.0)


# ---- max@k, on-policy
def bon_mean(rewards: Tensor, k: int) -> Tensor:
    """z-score (as `grpo`) of r̃_i = C(n,k)⁻¹ Σ_{I∋i} max_I r (paper, eq. 9 and Section 4.3).

    Standardised, and therefore biased for ∇max@k in scale. k = 1 is `grpo` on r/n; k = n gives every member
    the same r̃ and so no gradient; all-equal groups give 0. O(n).
    """
    return _zero_where_equal(grpo(_subset_maxima(rewards, k)), rewards)


def bon_loo1(rewards: Tensor, k: int) -> Tensor:
    """A_i = C(n,k)⁻¹ Σ_{I∋i} (max_I r − max_{I∖i} r) (paper, Appendix A; Walder & Karkhanis 2025).

    What i adds to the subsets it is in. With rewards ascending and r_(0) = 0, max_I r − max_{I∖i} r is the sum
    of the steps r_(t) − r_(t−1), t ≤ i, that lie above the rest of I. The rest lies below step t, among the
    first t−1 members, in C(t−1, k−1) ways:

        A_(i) = C(n,k)⁻¹ Σ_{t≤i} (r_(t) − r_(t−1))·C(t−1, k−1).

    Unbiased on-policy for ∇max@k. Raw, ≥ 0. All-equal groups give 0 for k ≥ 2. k = 1 has no rest to compare
    with: A_i = r_i/n, REINFORCE without baseline, in all-equal groups too. k = n rewards only a unique best, by
    its lead over the second. O(n).
    """
    ascending, order = rewards.sort(dim=1)
    return _unsort((_steps(ascending) * best_of_k_weights(rewards, k)).cumsum(dim=1), order)


def bon_loo2(rewards: Tensor, k: int) -> Tensor:
    """Leave-two-out advantage: what i is worth as the k-th member, against what every other member would be.

        A_i = (k/n)·(n−1)⁻¹ Σ_{j≠i} mean_J [max(r_i, max_J r) − max(r_j, max_J r)], J ⊆ [n]∖{i,j}, |J| = k−1.

    The baseline is the mean of the others' worth measured without i, hence unbiased; exchanging i and j flips
    the sign, so advantages sum to 0. These are the properties that MaxPO (arXiv 2606.06080) states for its
    leave-two-out baseline; its abstract was at hand, not its formula, so this is our derivation of it. The sum
    collapses, because the baseline is max@k of the group without i:

        A_i = n/(n−k) · (r̃_i − mean r̃).

    So centring r̃ by the group mean is unbiased up to the factor n/(n−k) (for k = 1 RLOO's n/(n−1)). Raw.
    All-equal groups give 0; so does k = n, where two cannot be left out. O(n).
    """
    n = rewards.shape[1]
    centred = _centred(_subset_maxima(rewards, k))
    return _zero_where_equal(centred * (n / (n - k) if k < n else 0.0), rewards)


# ---- max@k, off-policy
def bon_offpolicy_exact(rewards: Tensor, log_ratios: Tensor, k: int, clamp_log_ratio: float | None) -> Tensor:
    """A_i = C(n,k)⁻¹ Σ_{I∋i} (max_I r − max_{I∖i} r) Π_{l∈I∖i} ρ_l: `bon_loo1`, exact off-policy.

    The paper (Section 3.3) calls the sum over subsets exponentially hard. Summed by steps as in `bon_loo1`,
    the subsets whose rest lies below step t weigh Σ_J Π_{l∈J} ρ_l over the (k−1)-subsets J of the t−1 members
    below: the elementary symmetric polynomial e_{k−1}, which a recursion over the degree builds for all
    prefixes at once,

        A_(i) = C(n,k)⁻¹ Σ_{t≤i} (r_(t) − r_(t−1))·e_{k−1}(ρ_(1), …, ρ_(t−1)).

    i's own ratio is left out because PPO's surrogate multiplies by it: with sequence-level ratios the gradient
    Σ_i ρ_i A_i ∇log π_i is unbiased for ∇max@k at any drift. log ρ is clamped to ±`clamp_log_ratio` (None: not),
    which bounds the variance and costs bias beyond it. Raw, ≥ 0, not centred: subtracting a group mean from
    off-policy weights shrinks and then reverses the gradient as ratios spread. Equal to `bon_loo1` at ρ = 1,
    with the same degenerate cases. O(n·k).
    """
    ascending, order = rewards.sort(dim=1)
    log_rho = _clamped(log_ratios, clamp_log_ratio).gather(1, order)
    return _unsort((_steps(ascending) * _prefix_products(log_rho, k)).cumsum(dim=1), order)


def bon_loo1_firstorder(rewards: Tensor, log_ratios: Tensor, k: int, clamp_log_ratio: float | None) -> Tensor:
    """`bon_offpolicy_exact` with 1 + Σ_{l∈I∖i} δ_l in place of Π_{l∈I∖i} ρ_l, δ = ρ − 1 (as Section 3.3).

        A_(i) = C(n,k)⁻¹ Σ_{t≤i} (r_(t) − r_(t−1))·[C(t−1, k−1) + C(t−2, k−2)·Σ_{l<t} δ_(l)]

    Exact for k ≤ 2, where at most one δ occurs. For larger k it may be negative where several ratios are far
    below 1. The clamp is on log ρ as in the exact form. Raw. O(n).
    """
    ascending, order = rewards.sort(dim=1)
    delta = _clamped(log_ratios, clamp_log_ratio).gather(1, order).expm1()
    first = best_of_k_weights(rewards, k)
    second = _one_fewer(first, k, 1)
    return _unsort((_steps(ascending) * (first + second * _sum_below(delta))).cumsum(dim=1), order)


def bon_offpolicy(rewards: Tensor, log_ratios: Tensor, k: int, clamp_delta: float, variant: str) -> Tensor:
    """The paper's first-order off-policy weights (Section 3.3, Appendix E), made usable as a PPO advantage.

        s_i = Σ_j w'_ij r_j / C(n,k) = C(n,k)⁻¹ Σ_{I∋i} (1 + Σ_{l∈I∖i} δ_l)·max_I r, δ = ρ − 1 in ±clamp_delta

    variant "surrogate": A_i = (s_i − mean s) / RMS of r̃ − mean r̃ over the batch. The own δ_i is left out
    because the surrogate multiplies by ρ_i; the scale is one number a batch, taken on-policy, so a group in
    which nearly all subsets tie is not blown up. Pass whole batches: the RMS is over all graded groups given.
    At ρ = 1 this is the centred r̃ in units of its RMS.

    variant "literal", for study: z-score of s_i + δ_i·r̃_i, the printed weights with the own δ_i. It is
    unstable: where most members tie at the maximum, r̃ has no spread and the z-score turns tiny δ into
    advantages of order one.

    Standardised by batch (surrogate) or group (literal). All-equal groups give 0, k = n gives 0 (no spread
    on-policy to measure the scale by). O(n).
    """
    delta = log_ratios.expm1().clamp(-clamp_delta, clamp_delta)
    on_policy, weighted = _subset_maxima(rewards, k), _first_order_subset_maxima(rewards, delta, k)
    if variant == "literal":
        return _zero_where_equal(grpo(weighted + delta * on_policy), rewards)
    spread = _zero_where_equal(_centred(on_policy), rewards).square().mean().sqrt()
    if not spread > SPREAD_FLOOR:
        return torch.zeros_like(rewards)
    return _zero_where_equal(_centred(weighted) / spread, rewards)


REGISTRY: Mapping[str, Callable[..., Tensor]] = {
    "grpo": grpo,
    "grpo_binary": grpo_binary,
    "bon_max_mean": bon_max_mean,
    "bon_max_second": bon_max_second,
    "bon_mean": bon_mean,
    "bon_loo1": bon_loo1,
    "bon_loo2": bon_loo2,
    "bon_offpolicy": bon_offpolicy,
    "bon_offpolicy_exact": bon_offpolicy_exact,
    "bon_loo1_firstorder": bon_loo1_firstorder,
}


# ---- subset sums
def _subset_maxima(rewards: Tensor, k: int) -> Tensor:
    """r̃_i = C(n,k)⁻¹ Σ_{I∋i} max_I r, from the paper's w_ii = C(i−1,k−1) and w_ij = C(j−2,k−2) in O(n)."""
    ascending, order = rewards.sort(dim=1)
    best = best_of_k_weights(rewards, k)
    return _unsort(ascending * best + _sum_above(ascending * _one_fewer(best, k, 1)), order)


def _first_order_subset_maxima(rewards: Tensor, delta: Tensor, k: int) -> Tensor:
    """C(n,k)⁻¹ Σ_{I∋i} (1 + Σ_{l∈I∖i} δ_l) max_I r: the paper's w′ without the own δ_i, in O(n).

    With D_j = Σ_{l<j} δ_l, Appendix E reads w′_ii = C(i−1,k−1) + C(i−2,k−2) D_i and, for j > i,
    w′_ij = C(j−2,k−2) (1 + δ_j) + C(j−3,k−3) (D_j − δ_i), of which only the last term couples i and j.
    """
    ascending, order = rewards.sort(dim=1)
    delta = delta.gather(1, order)
    below = _sum_below(delta)
    best = best_of_k_weights(rewards, k)
    pair = _one_fewer(best, k, 1)
    triple = _one_fewer(pair, k, 2)
    own = ascending * (best + pair * below)
    above = _sum_above(ascending * (pair * (1 + delta) + triple * below))
    return _unsort(own + above - delta * _sum_above(ascending * triple), order)


def best_of_k_weights(like: Tensor, k: int) -> Tensor:
    """C(t−1, k−1)/C(n, k) for t = 1..n, as a running product from k/n at the top: no binomial is formed."""
    n = like.shape[1]
    t = torch.arange(n, 1, -1, dtype=like.dtype, device=like.device)
    ratios = torch.cat([t.new_ones(1), (t - k).clamp(min=0) / (t - 1)])
    return (k / n * ratios.cumprod(0)).flip(0)


def _one_fewer(weights: Tensor, k: int, step: int) -> Tensor:
    """C(t−s, k−s)/C(n,k) → C(t−s−1, k−s−1)/C(n,k) for s = `step`: a factor (k−s)/(t−s), for t ≤ s zero."""
    t = torch.arange(1, len(weights) + 1, dtype=weights.dtype, device=weights.device)
    return torch.where(t > step, weights * (k - step) / (t - step).clamp(min=1), 0.0)


def _prefix_products(log_rho: Tensor, k: int) -> Tensor:
    """e_{k−1}(ρ_1 … ρ_{t−1}) / C(n,k) for t = 1..n.

    e_m over the first t members is Σ_{s≤t} ρ_s·e_{m−1} over the first s−1: one cumulative sum a degree, all
    terms ≥ 0, so nothing cancels. With ρ relative to the group's largest, a product of up to 31 fits float64
    with room for log-ratios of ±5 and more; higher degrees take the same sums in log space, at about five times
    the cost.
    """
    if k <= 32:
        top = log_rho.amax(dim=1, keepdim=True)
        rho, sums = (log_rho - top).exp(), torch.ones_like(log_rho)
        for _ in range(k - 1):
            sums = _sum_below(rho * sums)
        log_sums = sums.log() + (k - 1) * top
    else:
        log_sums = torch.zeros_like(log_rho)
        for _ in range(k - 1):
            log_sums = pad((log_rho + log_sums)[:, :-1].logcumsumexp(dim=1), (1, 0), value=-math.inf)
    log_subsets = math.log(math.comb(log_rho.shape[1], k))
    return (log_sums - log_subsets).exp().clamp(max=torch.finfo(log_rho.dtype).max)


def _steps(ascending: Tensor) -> Tensor:
    """r_(t) − r_(t−1) with r_(0) = 0."""
    return torch.cat([ascending[:, :1], ascending.diff(dim=1)], dim=1)


def _sum_below(values: Tensor) -> Tensor:
    """Σ_{l<t} values_l for every t."""
    return pad(values[:, :-1].cumsum(dim=1), (1, 0))


def _sum_above(values: Tensor) -> Tensor:
    """Σ_{l>t} values_l for every t."""
    return pad(values[:, 1:].flip(1).cumsum(dim=1).flip(1), (0, 1))


def _unsort(values: Tensor, order: Tensor) -> Tensor:
    return torch.empty_like(values).scatter_(1, order, values)


def _centred(values: Tensor) -> Tensor:
    return values - values.mean(dim=1, keepdim=True)


def _zero_where_equal(values: Tensor, rewards: Tensor) -> Tensor:
    """Exact zeros where all rewards of a group are equal, in place of the rounding of their mean."""
    return values.masked_fill(degenerate_groups(rewards)[:, None], 0.0)


def _clamped(log_ratios: Tensor, limit: float | None) -> Tensor:
    """Log-ratios within ±limit; without a limit within ±10⁴, which keeps −inf (ρ = 0) from becoming NaN."""
    limit = 1e4 if limit is None else limit
    return log_ratios.clamp(-limit, limit)


def _group_size(rewards: Tensor, log_ratios: Tensor | None) -> int:
    if rewards.ndim != 2 or rewards.shape[1] == 0 or not rewards.is_floating_point():
        got = f"{rewards.dtype} {list(rewards.shape)}"
        raise ValueError(f"rewards must be a floating-point [groups, n] tensor, got {got}")
    if log_ratios is not None and log_ratios.shape != rewards.shape:
        got = f"{list(log_ratios.shape)} and {list(rewards.shape)}"
        raise ValueError(f"log_ratios and rewards must have the same shape, got {got}")
    return rewards.shape[1]


def _checked(k: int, n: int) -> int:
    if k > n:
        raise ValueError(f"k = {k} with n = {n} completions a group; 1 ≤ k ≤ n is needed")
    return k
