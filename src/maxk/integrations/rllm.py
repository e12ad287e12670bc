"""rLLM's advantage estimator `maxk`.

    from maxk.integrations import rllm

    rllm.register({"type": "bon_loo1", "k": 4})  # before the trainer starts
    # rllm.algorithm.adv_estimator=maxk

On-policy objectives only: rLLM shows its estimators no log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from maxk.integrations.groups import Spec, group_advantages, on_policy_objective


def register(spec: Spec, name: str = "maxk") -> None:
    """Registers the objective as the advantage estimator `name`."""
    from rllm.trainer.algorithms.advantage import register_adv_estimator

    register_adv_estimator(name)(estimator(spec))


def estimator(spec: Spec) -> Any:
    """A function by the contract of rLLM's registry: one array of rewards per group → (advantages, returns) alike."""
    objective = on_policy_objective(spec, "rLLM")

    def advantages(
        rewards: Sequence[np.ndarray[Any, Any]], algorithm_config: Any = None, **_: Any
    ) -> tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
        import torch

        sizes = [len(group) for group in rewards]
        flat = torch.from_numpy(np.concatenate([np.asarray(group, dtype=np.float64) for group in rewards]))
        groups = np.repeat(np.arange(len(sizes)), sizes).tolist()
        values = group_advantages(objective, flat, groups).numpy()
        spread = np.split(values, np.cumsum(sizes)[:-1])
        return spread, spread

    return advantages
