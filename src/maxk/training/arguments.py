"""TRL's arguments for a training configuration, and the order of its problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from trl import GRPOConfig

from maxk.artifacts import models
from maxk.config import Training


def schedule(config: Training, problems: int, seed: int) -> list[int]:
    """Indices of the problems in the order of training: every epoch a new permutation, in whole generation batches.

    The whole order is laid out beforehand, as one pass over a longer dataset, because a sampler that is shuffled anew
    each epoch would start again from its first permutation when a killed run resumes.
    """
    batches = max(1, round(config.epochs * problems / config.prompts_per_step))
    count = batches * config.prompts_per_step
    generator = torch.Generator().manual_seed(seed)
    epochs = [torch.randperm(problems, generator=generator) for _ in range(-(-count // problems))]
    return torch.cat(epochs)[:count].tolist()


def arguments(config: Training, folder: Path, seed: int, prompts: int, revision: str | None = None) -> GRPOConfig:
    """TRL's arguments for a configuration; `prompts` is the length of the `schedule`, `revision` the base's commit."""
    on_gpu = torch.cuda.is_available()
    return GRPOConfig(
        output_dir=str(folder),
        seed=seed,
        # Of policy and reference. Of several processes each has them whole until accelerate places or shards them: TRL
        # 1.16 sees to that under DDP and DeepSpeed, but under FSDP would spread both over all GPUs.
        model_init_kwargs={
            **models.SAFE,
            **({} if revision is None else {"revision": revision}),
            **({"device_map": None} if config.processes > 1 else {}),
        },
        shuffle_dataset=False,
        max_steps=prompts // config.prompts_per_step * config.iterations,
        per_device_train_batch_size=config.per_device_batch_size,
        gradient_accumulation_steps=config.accumulation,
        steps_per_generation=config.accumulation,
        num_generations=config.num_generations,
        num_iterations=config.iterations,
        max_completion_length=config.max_tokens,
        temperature=config.temperature,
        top_p=config.top_p,
        # "luspo" with sequence-level ratios sums over tokens, as a whole completion's ratio asks for.
        loss_type="grpo" if config.ratio == "token" else "luspo",
        importance_sampling_level=config.ratio,
        beta=config.kl_coefficient,
        use_bias_correction_kl=False,
        epsilon=config.clip,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=config.warmup_steps,
        weight_decay=0.0,
        max_grad_norm=config.max_grad_norm,
        disable_dropout=True,  # or the ratio and the KL of a policy to itself would not be 1 and 0
        use_cpu=not on_gpu,  # or several processes on the CPU would not find one another
        bf16=config.precision == "bfloat16" or (config.precision == "auto" and on_gpu),
        gradient_checkpointing=config.gradient_checkpointing,
        logging_steps=1,
        # Between generation batches, so that a resumed run draws what it would have drawn.
        save_steps=config.checkpoint_every * config.iterations,
        save_total_limit=2,
        dataloader_pin_memory=on_gpu,
        report_to=[],
        disable_tqdm=True,
        **_generation(config),
        **_evaluation(config),
    )


def _generation(config: Training) -> dict[str, Any]:
    chosen = config.generator
    if chosen.backend == "transformers":
        return {}
    return {
        "use_vllm": True,
        "vllm_mode": chosen.mode,
        "vllm_server_base_url": chosen.url,
        "vllm_gpu_memory_utilization": chosen.gpu_memory_utilization,
        "vllm_tensor_parallel_size": chosen.tensor_parallel,
        "vllm_importance_sampling_correction": False,
    }


def _evaluation(config: Training) -> dict[str, Any]:
    if config.evaluation is None:
        return {}
    return {
        "eval_strategy": "steps",
        "eval_steps": config.evaluation.every * config.iterations,
        # Whole groups, about as many completions as a training micro-batch holds.
        "per_device_eval_batch_size": config.num_generations
        * max(1, config.per_device_batch_size // config.num_generations),
    }


def lora(config: Training) -> LoraConfig | None:
    """The adapters that a configuration asks for."""
    if config.lora is None:
        return None
    targets = config.lora.target_modules
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        target_modules=targets if isinstance(targets, str) else list(targets),
    )
