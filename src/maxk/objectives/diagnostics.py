"""How far off-policy a batch is, as numbers for the training log.

    diagnose(objective, rewards, log_ratios, ks=(1, 4, 8))
    → {"frac_unusable": 0.25, "train_max@1": 0.31, …, "ratio_q50": 1.01, "clip_fraction": 0.08, …}

Groups with a reward or log-ratio that is NaN or infinite are counted in `frac_unusable` and left out of everything
else. The fraction of groups with equal rewards is TRL's own `frac_reward_zero_std`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from maxk.objectives import MaxAtK, Objective
from maxk.objectives.off_policy import BonLoo1FirstOrder, BonOffPolicyExact
from maxk.objectives.subsets import best_of_k_weights, unusable_groups

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
        report["first_order_error"] = first_order_error(rewards, log_ratios.clamp(low, high), objective.k_at(progress))
    return report


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
    size = exact.abs().sum().item()
    return (first_order - exact).abs().sum().item() / size if size else 0.0
