"""How far off-policy a batch is, as numbers for the training log.

    diagnose(objective, rewards, log_ratios, ks=(1, 4, 8))
    → {"frac_unusable": 0.25, "train_max@1": 0.31, …, "ratio_q50": 1.01, …}

Groups with a reward or log-ratio that is NaN or infinite are counted in `frac_unusable` and left out of everything
else. The fraction of groups with equal rewards is TRL's own `frac_reward_zero_std`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from maxk.objectives import MaxAtK, Objective
from maxk.objectives.off_policy import BonLoo1FirstOrder, BonOffPolicy, BonOffPolicyExact
from maxk.objectives.subsets import (
    best_of_k_weights,
    centred,
    degenerate_groups,
    first_order_subset_maxima,
    unusable_groups,
)

QUANTILES = {"ratio_min": 0.0, "ratio_q01": 0.01, "ratio_q50": 0.5, "ratio_q99": 0.99, "ratio_max": 1.0}


@torch.no_grad()
def diagnose(
    objective: Objective,
    rewards: Tensor,
    log_ratios: Tensor | None = None,
    ks: Sequence[int] = (1,),
    progress: float = 0.0,
) -> dict[str, float]:
    """All diagnostics of a batch [groups, n]; those of ratios only if `log_ratios` are given. Skips `ks` above n."""
    unusable = unusable_groups(rewards, log_ratios)
    report = {"frac_unusable": unusable.double().mean().item()}
    if unusable.all():
        return report
    rewards = rewards[~unusable].double()
    report |= {f"train_max@{k}": group_max_at_k(rewards, k) for k in ks if k <= rewards.shape[1]}
    if log_ratios is None:
        return report
    log_ratios = log_ratios[~unusable].double()
    report |= ratio_quantiles(log_ratios) | {"ess_fraction": ess_fraction(log_ratios)}
    low, high = objective.log_ratio_range
    report["clip_fraction"] = ((log_ratios < low) | (log_ratios > high)).double().mean().item()
    if isinstance(objective, MaxAtK):
        k, clamped = objective.k_at(progress), log_ratios.clamp(low, high)
        report["first_order_error"] = first_order_error(rewards, clamped, k)
        if isinstance(objective, BonOffPolicy):
            report["paper_weights_error"] = paper_weights_error(rewards, clamped, k)
    return report


def frac_no_gradient(advantages: Tensor) -> float:
    """Fraction of groups whose advantages [groups, n] are all 0, unusable ones among them: they teach nothing."""
    return (advantages == 0).all(dim=1).double().mean().item()


def group_max_at_k(rewards: Tensor, k: int) -> float:
    """Mean over groups of the unbiased max@k of their n rewards."""
    return (rewards.sort(dim=1).values @ best_of_k_weights(rewards, k)).mean().item()


def ratio_quantiles(log_ratios: Tensor) -> dict[str, float]:
    """Quantiles of ρ over all completions, extremes included."""
    at = torch.tensor(list(QUANTILES.values()), dtype=log_ratios.dtype, device=log_ratios.device)
    return dict(zip(QUANTILES, log_ratios.flatten().quantile(at).exp().tolist(), strict=True))


def ess_fraction(log_ratios: Tensor) -> float:
    """Kish's effective sample size (Σρ)²/Σρ² of each group over n, averaged: 1 on-policy, 1/n at worst."""
    twice_log_sum = 2 * log_ratios.logsumexp(dim=1)
    return ((twice_log_sum - (2 * log_ratios).logsumexp(dim=1)).exp() / log_ratios.shape[1]).mean().item()


def first_order_error(rewards: Tensor, log_ratios: Tensor, k: int) -> float:
    """Σ|first-order − exact| / Σ|exact| of leave-one-out advantages: what dropping higher orders of δ costs.

    0 where no group has a signal.
    """
    exact = BonOffPolicyExact(k=k, clamp_log_ratio=None)(rewards, log_ratios)
    first_order = BonLoo1FirstOrder(k=k, clamp_log_ratio=None)(rewards, log_ratios)
    return _relative_error(first_order, exact)


def paper_weights_error(rewards: Tensor, log_ratios: Tensor, k: int) -> float:
    """The same for the paper's weights, w′ against the products of eq. 10, both centred as `bon_offpolicy` uses them.

    Groups of equal rewards, which it gives no gradient, do not count.
    """
    signal = ~degenerate_groups(rewards)
    first_order = first_order_subset_maxima(rewards, log_ratios.expm1(), k)
    return _relative_error(centred(first_order)[signal], centred(exact_subset_maxima(rewards, log_ratios, k))[signal])


def exact_subset_maxima(rewards: Tensor, log_ratios: Tensor, k: int) -> Tensor:
    """S_i = C(n,k)⁻¹ Σ_{I∋i} max_I r Π_{l∈I∖i} ρ_l: the paper's eq. 10 without the own ratio. Only for diagnostics.

    By recursion over the size m of subsets, sums in place of means: what i adds (`bon_offpolicy_exact`) and, without
    i, the maxima of all (m−1)-subsets less those of the ones that hold i,

        S_i^m = C(n,m) A_i^m + Σ_J max_J r Π_J ρ − ρ_i S_i^{m−1},    Σ_J = Σ_i ρ_i S_i^{m−1} / (m−1).
    """
    ratios, sums = log_ratios.exp(), rewards
    for m in range(2, k + 1):
        held = ratios * sums
        added = BonOffPolicyExact(k=m, clamp_log_ratio=None)(rewards, log_ratios) * math.comb(rewards.shape[1], m)
        sums = added + held.sum(dim=1, keepdim=True) / (m - 1) - held
    return sums / math.comb(rewards.shape[1], k)


def _relative_error(found: Tensor, exact: Tensor) -> float:
    """Σ|found − exact| / Σ|exact|; 0 where all is 0."""
    size = exact.abs().sum().item()
    return (found - exact).abs().sum().item() / size if size else 0.0
