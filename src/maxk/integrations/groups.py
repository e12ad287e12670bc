"""Advantages for trainers that hand over a flat batch, with a group id per completion."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from maxk.errors import counted
from maxk.objectives import Objective, make

if TYPE_CHECKING:
    from torch import Tensor

Spec = Mapping[str, Any] | str | Callable[..., Any]
"""What `maxk.objectives.make` takes, such as `{"type": "bon_loo1", "k": 4}`."""


def on_policy_objective(spec: Spec, tool: str) -> Objective:
    """The objective of a tool that passes rewards only.

    Raises ValueError for an objective that would silently be another one there: an off-policy objective, which needs
    the current log-probabilities, or a schedule of k, which needs the progress of training.
    """
    objective = make(spec)
    if objective.off_policy:
        raise ValueError(f"{objective.type} needs current log-probabilities, which {tool} does not pass to estimators")
    if len(objective.ks) > 1:
        raise ValueError(f"{objective.type}: {tool} does not pass the progress that a schedule of k needs; use one k")
    return objective


def require_plain_rewards(objective: Objective) -> None:
    """Raises ValueError for an objective that makes no sense of rewards less a KL (`use_kl_in_reward`)."""
    binary = getattr(objective, "binary", False)
    if binary or objective.plain_rewards:
        name = f"{objective.type} with binary: true" if binary else objective.type
        raise ValueError(
            f"{name} needs rewards from which no KL is subtracted: set use_kl_in_reward=False and use_kl_loss=True"
        )


def group_advantages(objective: Objective, rewards: Tensor, groups: Iterable[Hashable]) -> Tensor:
    """Advantages [batch] of rewards [batch]; rows with equal `groups` are completions of one prompt, in any order.

    Groups may differ in size, unless the objective is scaled by the whole batch. Raises ValueError for k > n, if the
    numbers of rewards and group ids differ, and for a row whose id is None: all such rows would pass for completions of
    one prompt.
    """
    import torch

    ids = groups.tolist() if hasattr(groups, "tolist") else list(groups)  # tensors in a list are never equal
    if len(ids) != len(rewards):
        raise ValueError(f"{counted(len(ids), 'group id')} for {counted(len(rewards), 'reward')}")
    members: dict[Hashable, list[int]] = defaultdict(list)
    for row, group in enumerate(ids):
        if group is None or group != group:  # NaN equals no other
            raise ValueError(f"completion {row} has no id of its prompt (uid, group_index, …): it is {group}")
        members[group].append(row)
    by_size: dict[int, list[list[int]]] = defaultdict(list)
    for rows in members.values():
        by_size[len(rows)].append(rows)
    if objective.batch_scaled and len(by_size) > 1:
        raise ValueError(f"{objective.type} needs groups of one size, got {sorted(by_size)}")
    advantages = torch.zeros_like(rewards)
    for same_size in by_size.values():
        index = torch.tensor(same_size, device=rewards.device)
        advantages[index] = objective(rewards[index])
    return advantages


def token_advantages(
    objective: Objective, token_level_rewards: Tensor, response_mask: Tensor, groups: Iterable[Hashable]
) -> tuple[Tensor, Tensor]:
    """(advantages, returns), both [batch, tokens]: the completion's advantage on each of its tokens, 0 on padding.

    A completion's reward is the sum of its `token_level_rewards` [batch, tokens].
    """
    advantages = group_advantages(objective, token_level_rewards.sum(dim=-1), groups)
    spread = advantages.unsqueeze(-1) * response_mask
    return spread, spread
