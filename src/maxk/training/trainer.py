"""GRPO with the advantages of a max@k objective: the smallest seam in TRL's GRPOTrainer (the only importer of trl).

Three overrides, no copied parent code:

1. `_calculate_rewards` keeps the gathered reward matrix that the parent computes.
2. `_generate_and_score_completions` replaces the parent's advantages by the objective's.
3. For off-policy objectives `_compute_loss` renews the advantages at every optimiser step. They need the whole group's
   current ratios ρ = π_θ/π_old; the forward pass that the loss makes anyway gives them, so they cost nothing. That is
   possible because a micro-batch holds whole groups: TRL shuffles single sequences over micro-batches, and
   `_prepare_inputs` puts the groups together again.

What differs from TRL's defaults, to follow the paper (Sections 3.1 and 4.4): loss_type "grpo" (mean over a
completion's tokens, then over completions; TRL: "dapo"), β = 0.01 without importance weights on the KL term (TRL: 0,
with), learning rate from the config (TRL: 1e-6), constant after warm-up, no weight decay, and `num_iterations` from
the config. Clipping acts on token-level ratios, as in TRL and GRPO; the objective's own ratios are those of whole
completions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from maxk.config import Training
from maxk.diagnostics import diagnose
from maxk.objectives import Objective


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


def arguments(config: Training, folder: Path, seed: int, prompts: int) -> GRPOConfig:
    """TRL's arguments for a configuration; `prompts` is the length of the `schedule`."""
    accumulation = config.prompts_per_step // config.microbatch_prompts
    return GRPOConfig(
        output_dir=str(folder),
        seed=seed,
        shuffle_dataset=False,
        max_steps=prompts // config.prompts_per_step * config.iterations,
        per_device_train_batch_size=config.microbatch_prompts * config.completions,
        gradient_accumulation_steps=accumulation,
        steps_per_generation=accumulation,
        num_generations=config.completions,
        num_iterations=config.iterations,
        max_completion_length=config.max_tokens,
        temperature=config.temperature,
        top_p=config.top_p,
        loss_type="grpo",
        beta=config.kl_coefficient,
        use_bias_correction_kl=False,
        epsilon=config.clip,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=config.warmup_steps,
        weight_decay=0.0,
        max_grad_norm=config.max_grad_norm,
        bf16=torch.cuda.is_available(),
        gradient_checkpointing=False,
        logging_steps=1,
        # Between generation batches, so that a resumed run draws what it would have drawn.
        save_steps=config.checkpoint_every * config.iterations,
        save_total_limit=2,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to=[],
        disable_tqdm=True,
    )


class MaxkTrainer(GRPOTrainer):
    """GRPOTrainer whose advantages come from `objective`."""

    _buffered_inputs: list[dict[str, Any]] | None  # the parent's micro-batches of the last generation batch

    def __init__(self, *args: Any, objective: Objective, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.objective = objective
        self._gathered_rewards: Tensor  # [groups of all processes, n], of the last generation batch
        self._renewing: dict[str, Any] | None = None  # the micro-batch whose advantages the next forward pass renews

    @property
    def progress(self) -> float:
        """Share of the training done, in [0, 1]."""
        return float(self.state.global_step / self.state.max_steps)

    # ---- rewards → advantages
    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        rewards: Tensor = super()._calculate_rewards(*args, **kwargs)
        size = self.num_generations if self.model.training else self.num_generations_eval
        self._gathered_rewards = rewards[:, 0].view(-1, size)
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return output
        advantages = self.objective(self._gathered_rewards, progress=self.progress).flatten()
        self._replace_logged_advantages(advantages)
        self._log_diagnostics(self._gathered_rewards)
        first = self.accelerator.process_index * len(inputs)
        local = slice(first, first + len(inputs))
        output["advantages"] = advantages[local]
        if self.objective.kind.off_policy:
            output["rewards"] = self._gathered_rewards.flatten()[local]
            output["group"] = torch.arange(len(inputs), device=advantages.device) // self.num_generations
        return output

    def _replace_logged_advantages(self, advantages: Tensor) -> None:
        """The parent has already logged its own advantages of this batch."""
        for _ in range(len(advantages)):
            self._logs["advantages"].pop()
        self._logs["advantages"].extend(advantages.tolist())

    # ---- off-policy: groups whole in a micro-batch, ratios from the loss's own forward pass
    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        buffered = self._buffered_inputs
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        fresh = self._buffered_inputs
        if not (self.model.training and self.objective.kind.off_policy and fresh and fresh is not buffered):
            return inputs
        self._buffered_inputs = regrouped = _regrouped(fresh)
        return regrouped[int(self._step % self.args.steps_per_generation)]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        stale = self.objective.kind.off_policy and self.model.training and "old_per_token_logps" in inputs
        self._renewing = dict(inputs) if stale else None
        try:
            loss: Tensor = super()._compute_loss(model, self._renewing or inputs)
            return loss
        finally:
            self._renewing = None

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        """The parent reads `inputs["advantages"]` after this pass; a contract test holds it to that."""
        output = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._renewing is not None:
            self._renew_advantages(self._renewing, per_token_logps=output[0].detach())
        return output

    def _renew_advantages(self, inputs: dict[str, Any], per_token_logps: Tensor) -> None:
        log_ratios = ((per_token_logps - inputs["old_per_token_logps"]) * inputs["completion_mask"]).sum(-1)
        log_ratios, rewards = (x.view(-1, self.num_generations) for x in (log_ratios, inputs["rewards"]))
        inputs["advantages"] = self.objective(rewards, log_ratios, progress=self.progress).flatten()
        self._log_diagnostics(rewards, log_ratios)

    def _log_diagnostics(self, rewards: Tensor, log_ratios: Tensor | None = None) -> None:
        sizes = (1, self.num_generations) if log_ratios is None else ()
        for name, value in diagnose(self.objective, rewards, log_ratios, sizes, self.progress).items():
            self._metrics["train"][name].append(value)


def _regrouped(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same sequences in as many micro-batches, with the members of every group side by side."""
    order = torch.cat([batch["group"] for batch in batches]).argsort(stable=True)
    merged = {
        key: torch.cat([batch[key] for batch in batches])[order] if value.ndim else value
        for key, value in batches[0].items()
    }
    return list(split_tensor_dict(merged, len(batches)))
