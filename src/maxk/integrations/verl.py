"""verl's advantage estimator `maxk`, and a reward function for code.

verl loads this module by the entry point group `verl.plugins` wherever maxk is installed:

    python -m verl.trainer.main_ppo algorithm.adv_estimator=maxk \\
        +algorithm.maxk.type=bon_loo1 +algorithm.maxk.k=4 actor_rollout_ref.rollout.n=8 …

    reward.custom_reward_function.path=pkg://maxk.integrations.verl
    reward.custom_reward_function.name=compute_score

On-policy objectives only: verl 0.9.1 shows its estimators no log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maxk.errors import needs_extra
from maxk.integrations import code_reward
from maxk.integrations.groups import on_policy_objective, require_plain_rewards, token_advantages

with needs_extra("maxk.integrations.verl", "torch"):
    from torch import Tensor

from verl.trainer.ppo.core_algos import register_adv_est


@register_adv_est("maxk")
def advantages(
    token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[Any], config: Any = None, **_: Any
) -> tuple[Tensor, Tensor]:
    """(advantages, returns) [batch, tokens] of the objective `algorithm.maxk`; `index` names each row's prompt."""
    spec = config.get("maxk") if config is not None else None
    if spec is None:
        raise ValueError("algorithm.maxk is not set: name an objective, such as +algorithm.maxk.type=bon_loo1")
    objective = on_policy_objective(dict(spec), "verl")
    if config.get("use_kl_in_reward", False):
        require_plain_rewards(objective)
    return token_advantages(objective, token_level_rewards, response_mask, index)


def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None) -> dict[str, float]:
    """The fraction of tests passed; `ground_truth` holds the tests, see `maxk.integrations.code_reward`."""
    return code_reward.score(solution_str, ground_truth)
