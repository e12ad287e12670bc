"""OpenRLHF's reward function for code; pass this file's path:

    --reward.remote_url "$(python -c 'import maxk.integrations.openrlhf as m; print(m.__file__)')" \\
    --data.label_key tests

OpenRLHF 0.11.2 has no hook for advantages. Its `dr_grpo` centres rewards by their group's mean and scales no further.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maxk.integrations.code_reward import score


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
    """Rewards of prompt + completion texts (`queries`); a label holds the tests as `code_reward` takes them."""
    import torch

    completions = [query.rpartition(prompt)[2] for query, prompt in zip(queries, prompts, strict=True)]
    scores = [score(completion, tests) for completion, tests in zip(completions, labels, strict=True)]
    rewards = torch.tensor([one["score"] for one in scores])
    ungraded = torch.tensor([one["ungraded"] for one in scores])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {"ungraded": ungraded}}
