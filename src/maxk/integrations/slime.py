"""slime's rewards, replaced by the advantages of an objective before they are spread over tokens.

    --advantage-estimator grpo --custom-reward-post-process-path maxk.integrations.slime.post_process_rewards
    --custom-config-path maxk.yaml        # maxk: {type: bon_loo1, k: 4}

slime's own hook for advantages runs on one data-parallel rank, which need not hold whole groups; this one sees all
samples of a rollout. On-policy objectives only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maxk.integrations.groups import group_advantages, on_policy_objective


def post_process_rewards(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """(raw rewards, advantages) of a rollout's samples, in order; a sample's `group_index` names its prompt."""
    import torch

    spec = getattr(args, "maxk", None)
    if spec is None:
        raise ValueError(
            "maxk is not set: name an objective in --custom-config-path, such as maxk: {type: bon_loo1, k: 4}"
        )
    rewards = [float(sample.get_reward_value(args)) for sample in samples]
    groups = [sample.group_index for sample in samples]
    flat = torch.tensor(rewards, dtype=torch.float64)
    return rewards, group_advantages(on_policy_objective(spec, "slime"), flat, groups).tolist()
