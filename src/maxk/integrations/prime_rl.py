"""The group scores of a prime-rl algorithm. prime-rl takes algorithms as classes in its own tree:

    # src/prime_rl/orchestrator/algo/maxk.py, listed in ALGORITHM_CLASSES
    from maxk.integrations.prime_rl import score_group
    from prime_rl.orchestrator.algo.base import Algorithm


    class MaxkAlgorithm(Algorithm):
        async def score_group(self, episodes):
            score_group(episodes, {"type": "bon_loo1", "k": 4})

On-policy objectives only; prime-rl clips by the ratio of trainer and sampler itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maxk.integrations.groups import Spec, on_policy_objective


def score_group(episodes: Sequence[Any], spec: Spec) -> None:
    """Assigns the objective's advantages to the trainable traces of one group of episodes."""
    import torch
    from prime_rl.orchestrator.algo.base import iter_trainable_traces
    from prime_rl.orchestrator.algo.routing import assign_advantages

    objective = on_policy_objective(spec, "prime-rl")
    traces = [trace for _, trace in iter_trainable_traces(list(episodes))]
    if not traces:
        return
    rewards = torch.tensor([[trace.reward for trace in traces]], dtype=torch.float64)
    for trace, advantage in zip(traces, objective(rewards)[0].tolist(), strict=True):
        assign_advantages(trace, advantage)
