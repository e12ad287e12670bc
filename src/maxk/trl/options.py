"""The trainer's objective from what the user gave, and the options of GRPOConfig that it works with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from maxk.objectives import Objective, make

Given = (
    str | Mapping[str, Any] | Callable[..., Tensor]
)  # anything that `maxk.objectives.make` takes, including an Objective


def as_objective(given: Given, n: int) -> Objective:
    """The objective for groups of n completions.

    Raises ValueError if it is unknown, if it gives no gradient for such groups, and if it returns NaN or infinity
    for them or for groups of equal rewards.
    """
    if isinstance(given, str):
        given = {"type": given}
    if isinstance(given, Mapping):
        given = {"k": max(1, n // 2), **given}
    objective = make(given)
    # All different, and half of them 1: of the first, an objective of binary rewards would see a single success.
    different = torch.stack([torch.linspace(0, 1, n), (torch.arange(n) >= n // 2).float()])
    equal = torch.stack([torch.zeros(n), torch.ones(n)])  # a z-score divides by their spread
    for progress in (0.0, 1.0):  # schedules of k are extreme at the ends
        advantages = objective(torch.cat([different, equal]), progress=progress)
        if advantages[:2].abs().max() < 1e-6:
            tried = different.tolist()
            raise ValueError(f"objective {given!r} gives no gradient for groups of {n} with rewards {tried}")
    return objective


def require_supported(
    config: Any,
    objective: Objective,
    old_policy: str,
    kl_reference: str,
    generate_ahead: bool,
    given: Mapping[str, Any],
) -> None:
    """Raises ValueError naming every option that would change what the objective's advantages or π_old mean.

    given: the arguments of GRPOTrainer, by name.
    """
    has_rollout = given.get("rollout_func") is not None
    refused = [
        *_unsupported(config, objective),
        *_unsupported_old_policy(config, old_policy, has_rollout),
        *_unsupported_kl_reference(config, kl_reference),
        *(_unsupported_ahead(config, old_policy, given) if generate_ahead else ()),
    ]
    if refused:
        raise ValueError(f"MaxkTrainer: {'; '.join(refused)}")


def _unsupported(config: Any, objective: Objective) -> Iterator[str]:
    sequence, loss = config.importance_sampling_level == "sequence", config.loss_type
    if config.scale_rewards != "group":
        yield f"scale_rewards={config.scale_rewards!r} has no effect: the objective sets the scale; leave it out"
    if config.multi_objective_aggregation != "sum_then_normalize":
        yield (
            f"multi_objective_aggregation={config.multi_objective_aggregation!r}: an objective needs one reward per "
            "completion; use 'sum_then_normalize'"
        )
    if sequence and loss != "luspo":
        yield f"importance_sampling_level='sequence' needs loss_type='luspo', got {loss!r}"
    if sequence and config.delta is not None:
        yield "delta clips token ratios; with importance_sampling_level='sequence' leave it out"
    if sequence and config.top_entropy_quantile < 1:
        yield "top_entropy_quantile drops tokens of a completion; it needs importance_sampling_level='token'"
    if sequence and _corrects_tokens(config):
        yield (
            f"vllm_importance_sampling_mode={config.vllm_importance_sampling_mode!r} corrects single tokens; with "
            "importance_sampling_level='sequence' use a sequence mode"
        )
    if config.mask_truncated_completions and (sequence or objective.off_policy):
        yield "mask_truncated_completions hides ratios of truncated completions that the objective needs"
    if objective.off_policy and loss in ("sapo", "vespo"):
        yield f"loss_type={loss!r} replaces the ratio by a function of it, which an off-policy objective cannot use"
    if loss == "cispo" and (config.epsilon_high or config.epsilon) < 1:
        yield "loss_type='cispo' clamps ratios to epsilon_high, which must be at least 1 (TRL suggests 5.0)"


def _unsupported_old_policy(config: Any, old_policy: str, has_rollout: bool) -> Iterator[str]:
    if old_policy not in ("trainer", "sampler"):
        yield f"old_policy must be 'trainer' or 'sampler', got {old_policy!r}"
    if old_policy == "sampler" and not (config.use_vllm or has_rollout):
        yield "old_policy='sampler' needs the log-probabilities that vLLM or a rollout_func returns"
    if old_policy == "sampler" and config.use_vllm and config.vllm_importance_sampling_correction:
        yield "old_policy='sampler' would be corrected twice; set vllm_importance_sampling_correction=False"


def _unsupported_kl_reference(config: Any, kl_reference: str) -> Iterator[str]:
    if kl_reference not in ("base", "old"):
        yield f"kl_reference must be 'base' or 'old', got {kl_reference!r}"
    if kl_reference == "old" and not config.beta:
        yield f"kl_reference='old' needs a beta above 0, got {config.beta}"
    if kl_reference == "old" and config.sync_ref_model:
        yield "sync_ref_model=True needs a reference model, and kl_reference='old' has none"
    if kl_reference == "old" and config.importance_sampling_level == "sequence" and config.use_bias_correction_kl:
        yield "kl_reference='old' with importance_sampling_level='sequence' needs use_bias_correction_kl=False"


def _unsupported_ahead(config: Any, old_policy: str, given: Mapping[str, Any]) -> Iterator[str]:
    if not config.use_vllm or config.vllm_mode != "server" or given.get("rollout_func") is not None:
        yield "generate_ahead=True needs a vLLM server (use_vllm=True, vllm_mode='server', no rollout_func)"
        return
    if given.get("tools") or given.get("environment_factory"):
        yield "generate_ahead=True foresees one turn; it works without tools and environments"
    if old_policy != "sampler":
        yield "generate_ahead=True draws from an older policy than the trainer's; it needs old_policy='sampler'"
    if config.world_size > 1:
        yield f"generate_ahead=True works with one training process, not with {config.world_size}"


@contextmanager
def no_reference_model(config: Any, kl_reference: str) -> Iterator[None]:
    """GRPOTrainer loads a reference model, or copies an adapter for it, unless it is constructed with β = 0."""
    if kl_reference == "base":
        yield
        return
    beta, config.beta = config.beta, 0.0
    try:
        yield
    finally:
        config.beta = beta


def _corrects_tokens(config: Any) -> bool:
    corrects = config.use_vllm and config.vllm_importance_sampling_correction
    return bool(corrects and config.vllm_importance_sampling_mode.startswith("token"))
