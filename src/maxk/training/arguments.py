"""TRL's arguments for a training configuration, and the order of its problems.

The arguments differ from TRL's defaults to follow the paper (Sections 3.1 and 4.4): loss_type "grpo" (mean over a
completion's tokens, then over completions; TRL: "dapo"), β = 0.01 (TRL: 0), importance weights on the KL term only
where it is measured from π_old (TRL: always), the configured learning rate (TRL: 1e-6), constant after warm-up, no
weight decay, no dropout, and no importance-sampling correction of vLLM's samples unless the configuration asks for it
(TRL: on, and it drops whole completions).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from trl import GRPOConfig

from maxk.artifacts import models
from maxk.config import Training
from maxk.errors import UserError, counted
from maxk.trl.vllm import UNUSED_UTILIZATION

if TYPE_CHECKING:
    from peft import LoraConfig


ABOVE_ANY_ENTROPY = 1e9  # nats per token; TRL applies the coefficient at or below its target


def schedule(config: Training, problems: int, seed: int) -> list[int]:
    """Indices of the problems in training order: a new permutation every epoch, cut to whole generation batches.

    The order of all epochs is fixed beforehand, as one pass over a longer dataset: a sampler that shuffles every epoch
    would start again with its first permutation when a killed run resumes.
    """
    count = config.generation_batches(problems) * config.prompts_per_step
    generator = torch.Generator().manual_seed(seed)
    epochs = [torch.randperm(problems, generator=generator) for _ in range(-(-count // problems))]
    return torch.cat(epochs)[:count].tolist()


def milestones(config: Training, prompts: int, count: int) -> list[int]:
    """Generation batches after which the policy is kept: `count` evenly spaced points, without the end.

    `prompts` is the length of the `schedule`. Raises UserError if there are fewer batches than points.
    """
    batches = prompts // config.prompts_per_step
    if batches < count:
        made = counted(batches, "generation batch", "generation batches")
        raise UserError(f"milestones={count} of a training of {made}; set at most {batches}")
    return [round(batches * number / count) for number in range(1, count)]


def arguments(
    config: Training, folder: Path, seed: int, prompts: int, revision: str | None = None, **reporting: Any
) -> GRPOConfig:
    """TRL's arguments; `prompts` is the length of the `schedule`, `revision` the commit of the base model.

    `reporting` holds those of `maxk.tracking.reporters`; without them TRL reports to no tracker.
    """
    on_gpu = torch.cuda.is_available()
    return GRPOConfig(
        output_dir=str(folder),
        seed=seed,
        # For policy and reference. With several processes, accelerate places or shards the models. TRL 1.16 leaves
        # device_map out under DDP and DeepSpeed, but under FSDP it would spread both models over all GPUs.
        model_init_kwargs={
            **models.SAFE,
            **({} if revision is None else {"revision": revision}),
            **({"device_map": None} if config.processes > 1 else {}),
        },
        shuffle_dataset=False,
        max_steps=prompts // config.prompts_per_step * config.steps_per_batch,
        per_device_train_batch_size=config.per_device_batch_size,
        gradient_accumulation_steps=config.micro_batches // config.minibatches,
        steps_per_generation=config.micro_batches,
        num_generations=config.num_generations,
        num_iterations=config.iterations,
        max_completion_length=config.max_tokens,
        temperature=config.temperature,
        top_p=config.top_p,
        # "luspo" sums over tokens, which sequence-level ratios need.
        loss_type="grpo" if config.ratio == "token" else "luspo",
        importance_sampling_level=config.ratio,
        beta=config.kl_coefficient,
        # r·k3 of samples of π_old is an unbiased estimate of a token's KL(π_θ ‖ π_old). Sequence-level ratios give TRL
        # the geometric mean, whose product with k3 is no less biased than k3 alone.
        use_bias_correction_kl=config.kl_reference == "old" and config.ratio == "token",
        epsilon=config.clip,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=config.warmup_steps,
        weight_decay=0.0,
        max_grad_norm=config.max_grad_norm,
        disable_dropout=True,  # with dropout, a policy's ratio to itself is not 1
        use_cpu=not on_gpu,  # several processes on the CPU need it to find each other
        bf16=config.precision == "bfloat16" or (config.precision == "auto" and on_gpu),
        gradient_checkpointing=config.gradient_checkpointing,
        torch_compile=config.torch_compile,
        logging_steps=1,
        # Between generation batches, so that a resumed run samples what it would have sampled.
        save_steps=config.checkpoint_every * config.steps_per_batch,
        save_total_limit=2,
        dataloader_pin_memory=on_gpu,
        disable_tqdm=True,
        **{"report_to": [], **reporting},
        **_entropy(config),
        **_generation(config),
        **_evaluation(config),
    )


def _entropy(config: Training) -> dict[str, Any]:
    bonus = config.entropy_bonus
    if bonus is None:
        return {}
    if bonus.like is not None:  # `callbacks.FollowEntropy` moves the coefficient; TRL applies and stores it
        unmoved = {"entropy_coef_delta": 0.0, "entropy_target": ABOVE_ANY_ENTROPY}
        limits = {"entropy_coef_min": -bonus.largest, "entropy_coef_max": bonus.largest}
        return {"use_adaptive_entropy": True, **unmoved, **limits}
    if bonus.target is None:
        return {"entropy_coef": bonus.coefficient}
    return {
        "entropy_coef": bonus.coefficient,
        "use_adaptive_entropy": True,
        "entropy_target": bonus.target,
        "entropy_coef_delta": bonus.step,
        "entropy_coef_max": bonus.largest,
    }


def _generation(config: Training) -> dict[str, Any]:
    chosen = config.generator
    if chosen.backend == "transformers":
        return {}
    corrected = chosen.importance_sampling != "none"
    return {
        "use_vllm": True,
        "vllm_mode": chosen.mode,
        "vllm_server_base_url": chosen.url,
        "vllm_gpu_memory_utilization": UNUSED_UTILIZATION if chosen.kv_cache_gb else chosen.gpu_memory_utilization,
        "vllm_tensor_parallel_size": chosen.tensor_parallel,
        "vllm_max_model_length": chosen.max_model_len,
        "vllm_importance_sampling_correction": corrected,
        "vllm_importance_sampling_mode": chosen.importance_sampling if corrected else "sequence_mask",  # TRL's default
        "vllm_importance_sampling_clip_max": chosen.importance_sampling_max,
        "generation_kwargs": _vllm_parameters(config),
    }


def _vllm_parameters(config: Training) -> dict[str, Any] | None:
    """TRL decodes the tokens itself: vLLM makes text only where it has to find stop strings."""
    if config.stop:
        return {"stop": list(config.stop), "include_stop_str_in_output": True}
    return {"detokenize": False} if config.generator.mode == "colocate" else None


def _evaluation(config: Training) -> dict[str, Any]:
    if config.evaluation is None:
        return {}
    groups = max(1, config.per_device_batch_size // config.num_generations)
    return {
        "eval_strategy": "steps",
        "eval_steps": config.evaluation.every * config.steps_per_batch,
        "per_device_eval_batch_size": groups * config.num_generations,
    }


def lora(config: Training) -> LoraConfig | None:
    """peft's configuration of the adapters; None without `training.lora`."""
    if config.lora is None:
        return None
    from peft import LoraConfig

    targets = config.lora.target_modules
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        target_modules=targets if isinstance(targets, str) else list(targets),
    )
