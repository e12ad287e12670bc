"""Rewards of a group of completions → one advantage each, aligned with Best-of-N.

    objective = make({"type": "bon_offpolicy_exact", "k": 4})
    advantages = objective(rewards, log_ratios)  # [groups, n] each; log_ratios = log π_θ(y|x)/π_old(y|x)

A group is n completions y_1 … y_n of one prompt x with rewards r_i. PPO's surrogate multiplies an advantage by the
completion's own ratio ρ_i = π_θ(y_i|x)/π_old(y_i|x), so an objective's gradient is Σ_i ρ_i A_i ∇log π_θ(y_i|x).

`group`       one reward each, no subsets: GRPO and its relatives
`on_policy`   the best of k, samples of the current policy
`off_policy`  the best of k, samples of an older policy
`objective`   the base class, the registry and `make`; `subsets` the sums over subsets, `schedule` a k that changes,
              `diagnostics` numbers for the training log

Scale. "Standardised" advantages have unit standard deviation in a group; "raw" ones are on the scale of rewards, and
because Σ_i stands where GRPO's loss has a mean over members, they are about n times smaller than a score per member. A
smaller advantage against an unchanged KL coefficient β is a stronger pull to the base policy: compare at matched KL, or
scale β along (docs/objectives.md).
"""

from __future__ import annotations

from maxk.objectives import group, off_policy, on_policy  # registers their objectives
from maxk.objectives.objective import OBJECTIVES, MaxAtK, Objective, make
from maxk.objectives.schedule import Schedule
from maxk.objectives.subsets import degenerate_groups

__all__ = [
    "OBJECTIVES",
    "MaxAtK",
    "Objective",
    "Schedule",
    "degenerate_groups",
    "group",
    "make",
    "off_policy",
    "on_policy",
]
