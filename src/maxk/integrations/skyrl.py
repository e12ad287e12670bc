"""SkyRL's advantage estimator `maxk`.

    from maxk.integrations import skyrl

    skyrl.register({"type": "bon_loo1", "k": 4})  # before the trainer starts
    # trainer.algorithm.advantage_estimator=maxk

On-policy objectives only: SkyRL shows its estimators no log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from maxk.integrations.groups import Spec, on_policy_objective, require_plain_rewards, token_advantages

if TYPE_CHECKING:
    from torch import Tensor


def register(spec: Spec, name: str = "maxk") -> None:
    """Registers the objective as the advantage estimator `name`."""
    from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry

    AdvantageEstimatorRegistry.register(name, estimator(spec))


def estimator(spec: Spec) -> Any:
    """A function by the contract of `AdvantageEstimatorRegistry`."""
    objective = on_policy_objective(spec, "SkyRL")

    def advantages(
        token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[Any], config: Any = None, **_: Any
    ) -> tuple[Tensor, Tensor]:
        if getattr(config, "use_kl_in_reward", False):
            require_plain_rewards(objective)
        return token_advantages(objective, token_level_rewards, response_mask, index)

    return advantages
