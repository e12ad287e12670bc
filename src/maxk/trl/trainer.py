"""The trainer: overrides of GRPOTrainer, described in maxk.trl."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer

from maxk.estimators import usual_ks
from maxk.objectives.diagnostics import diagnose, frac_no_gradient, group_max_at_k, ratio_quantiles
from maxk.objectives.subsets import unusable_groups
from maxk.trl import trees
from maxk.trl.ahead import Ahead, Lookahead, Prompts
from maxk.trl.microbatches import by_length
from maxk.trl.options import Given, as_objective, no_reference_model, require_supported
from maxk.trl.ratios import log_ratios, loss_mask, sequence_factor
from maxk.trl.vllm import request_groups, return_no_logprobs


class MaxkTrainer(GRPOTrainer):
    """GRPOTrainer whose advantages come from `objective`; every other argument is GRPOTrainer's.

    objective     a type of maxk.objectives ("bon_loo1", the default), a mapping ({"type": "bon_loo1", "k": 4}), an
                  objective, or a function of rewards [groups, n] that returns advantages of the same shape. Where k is
                  left out it is half of `num_generations`.
    old_policy    π_old of the ratios: "trainer" is the policy at generation as the trainer computes it, "sampler" the
                  log-probabilities that vLLM (or `rollout_func`) returned, which include its numerical differences.
    kl_reference  "base" is TRL's reference model. With "old" the penalty `beta` is on the KL to π_old (paper, eq. 4),
                  without a reference model; it is logged as `kl_old`.
    generate_ahead  whether a vLLM server draws the next generation batch while this one trains. Its completions are
                  then of the policy of one batch ago, which needs `old_policy="sampler"`.

    A completion that all reward functions return None for is ungraded, and its whole group gets zero advantages.
    Raises ValueError for options of GRPOConfig that would change what the objective means (docs/trainer.md).
    """

    _buffered_inputs: list[dict[str, Any]] | None  # the parent's micro-batches of the last generation batch
    num_iterations: int  # the parent's μ

    def __init__(
        self,
        *args: Any,
        objective: Given = "bon_loo1",
        old_policy: Literal["trainer", "sampler"] = "trainer",
        kl_reference: Literal["base", "old"] = "base",
        generate_ahead: bool = False,
        **kwargs: Any,
    ) -> None:
        given = inspect.signature(GRPOTrainer.__init__).bind(self, *args, **kwargs).arguments
        config = given.get("args") or GRPOConfig  # the class holds the defaults
        self.objective = as_objective(objective, config.num_generations)
        self.old_policy, self.kl_reference = old_policy, kl_reference
        require_supported(config, self.objective, old_policy, kl_reference, generate_ahead, given)
        with no_reference_model(config, kl_reference):
            super().__init__(*args, **kwargs)
        if self._is_vlm and self.objective.off_policy:
            raise ValueError("MaxkTrainer: off-policy objectives do not support models with image inputs")
        if self._is_vlm and generate_ahead:
            raise ValueError("MaxkTrainer: generate_ahead=True does not support models with image inputs")
        self._combined_rewards: Tensor  # [completions of all processes] that were graded last
        self._rewards: Tensor  # [groups of all processes, n] of the last generation batch
        self._generated_at = self._recomputed_at = -1  # optimiser steps done at generation, and at the last recomputing
        self._loss_inputs: dict[str, Any] | None = None  # of the loss being computed
        self._one_step = self.args.gradient_accumulation_steps % self.args.steps_per_generation == 0
        self._in_pass_ratios = self._can_hold_groups()
        self._shares_prefixes = self._can_share_prefixes()
        if self.use_vllm and not self._uses_sampler_logps():
            return_no_logprobs(self.vllm_generation)
        if self.use_vllm and self.vllm_mode == "colocate" and self.args.vllm_tensor_parallel_size == 1:
            request_groups(self.vllm_generation)
        self._lookahead = Lookahead(iter(()))
        self._lookahead_from = 0  # TRL's `_step` at the first batch of the lookahead
        self._ahead: Ahead | None = None
        if generate_ahead:
            self._ahead = Ahead(self.vllm_generation, lambda: bool(self.model.training), self._upcoming)

    def _can_hold_groups(self) -> bool:
        """Whether micro-batches can be made of all the groups that the objective needs together."""
        whole_groups = self.args.per_device_train_batch_size % self.num_generations == 0
        one_batch = self.args.steps_per_generation * self.accelerator.num_processes == 1
        return self._one_step and whole_groups and (one_batch or not self.objective.batch_scaled)

    def _can_share_prefixes(self) -> bool:
        """Whether trees support the model, and completions are few and short enough.

        On a GPU trees took longer and more memory (`benchmarks/README.md`), and flash attention takes no masks.
        """
        on_cpu = self.accelerator.device.type == "cpu"
        small = self.num_generations * self.max_completion_length <= trees.NODES
        return on_cpu and small and not self.aux_loss_enabled and trees.supports(self.model.config)

    def _uses_sampler_logps(self) -> bool:
        corrected = self.vllm_importance_sampling_correction or self.off_policy_mask_threshold is not None
        return bool(corrected or self.old_policy == "sampler")

    @property
    def progress(self) -> float:
        """Fraction of the training that is done, in [0, 1]."""
        return float(self.state.global_step / self.state.max_steps)

    @property
    def _policy_moved(self) -> bool:
        """Whether an optimiser step was taken since generation."""
        return bool(self.state.global_step != self._generated_at)

    @property
    def _stale(self) -> bool:
        """Whether the objective's advantages depend on ratios other than 1."""
        drifted = self._policy_moved or self.old_policy == "sampler"
        return bool(self.objective.off_policy and self.model.training and drifted)

    # ---- rewards → advantages
    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        rewards: Tensor = super()._calculate_rewards(*args, **kwargs)
        self._combined_rewards = combined(rewards, self.reward_weights.to(rewards.device))
        if len(self.reward_func_names) > 1:
            self._log_best_of_functions(rewards)
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        iterations, self.num_iterations = self.num_iterations, 1  # at one the parent makes no pass for π_old
        try:
            output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        finally:
            self.num_iterations = iterations
        if not self.model.training:
            self._log_evaluation(self._combined_rewards.view(-1, self.num_generations_eval))
            return output
        self._rewards = self._combined_rewards.view(-1, self.num_generations)
        self._generated_at, self._recomputed_at = self.state.global_step, -1
        advantages = self.objective(self._rewards, progress=self.progress)
        self._replace_logged_advantages(advantages.flatten())
        self._log_diagnostics(advantages, self._rewards)
        output["advantages"] = self._local(advantages)
        output["rewards"] = self._local(self._rewards)
        output["row"] = torch.arange(len(inputs), device=advantages.device)  # position in this process's batch
        if self.old_policy == "sampler":
            output["old_per_token_logps"] = output["sampling_per_token_logps"]
        return output

    # ---- generation
    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> Any:
        if self._ahead is not None:
            if not self._lookahead.reads(epoch_iterator):  # a new epoch, or a new training
                self._lookahead = Lookahead(epoch_iterator)
                self._ahead.forget()
            epoch_iterator = self._lookahead.next(num_batches, self._steps_to_next_generation)
            self._lookahead_from = self._step
        return super().get_batch_samples(epoch_iterator, num_batches, device)

    @property
    def _steps_to_next_generation(self) -> int:
        return int(self.args.num_iterations * self.args.steps_per_generation)

    def _upcoming(self) -> Prompts | None:
        """Prompts of the generation batch after this one; None at the end of an epoch, and of the training."""
        place = self._step - self._lookahead_from + self._steps_to_next_generation
        left = (self.state.max_steps - self.state.global_step) * self.args.gradient_accumulation_steps
        if place >= min(left, len(self._lookahead.seen)):
            return None
        found: Prompts = self._tokenize_prompts([row["prompt"] for row in self._lookahead.seen[place]])[0]
        return found

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        if self._ahead is not None:
            self._ahead.wait()  # the parent may give the server new weights
        completion_ids, logprobs = super()._generate_single_turn(*args, **kwargs)
        return completion_ids, logprobs or None  # [] if vLLM was configured to return none

    def _local(self, groups: Tensor) -> Tensor:
        """This process's part of a gathered [groups, n], flat."""
        size = groups.numel() // self.accelerator.num_processes
        first = self.accelerator.process_index * size
        return groups.flatten()[first : first + size]

    def _replace_logged_advantages(self, advantages: Tensor) -> None:
        """The parent has already logged its own advantages of this batch."""
        for _ in range(len(advantages)):
            self._logs["advantages"].pop()
        self._logs["advantages"].extend(advantages.tolist())

    # ---- off-policy: current ratios of whole groups
    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        before = self._buffered_inputs
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        if not self.model.training or self._buffered_inputs is None:
            return inputs
        # Several optimiser steps on one generation batch need random micro-batches, and images have rows of their own.
        if self._buffered_inputs is not before and self._one_step and not self._is_vlm:
            whole = self.objective.off_policy and self._in_pass_ratios
            self._buffered_inputs = by_length(self._buffered_inputs, self.num_generations if whole else 1)
        if self._stale and not self._in_pass_ratios and self._recomputed_at != self.state.global_step:
            self._recompute_advantages(self._buffered_inputs)
        return self._buffered_inputs[int(self._step % self.args.steps_per_generation)]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        if not self.model.training:
            loss: Tensor = super()._compute_loss(model, inputs)
            return loss
        self._loss_inputs = dict(inputs)
        try:
            with self._penalty_to_old() if self.kl_reference == "old" else nullcontext():
                loss = super()._compute_loss(model, self._loss_inputs)
            inputs["old_per_token_logps"] = self._loss_inputs["old_per_token_logps"]
        finally:
            self._loss_inputs = None
        return loss

    @contextmanager
    def _penalty_to_old(self) -> Iterator[None]:
        """The parent's β for a training loss alone: at generation it would make a pass for a reference model."""
        self.beta = self.args.beta
        try:
            yield
        finally:
            self.beta = 0.0
        self._metrics["train"]["kl_old"] += self._metrics["train"].pop("kl")

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        """The parent reads advantages and π_old from its inputs after this pass; a contract test checks that."""
        output = self._logps_and_entropies(*args, **kwargs)
        if self._loss_inputs is not None:
            self._update_loss_inputs(self._loss_inputs, output[0].detach())
        return output

    def _logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, kept: int, *args: Any, **kwargs: Any
    ) -> Any:
        if not self._shares_prefixes:
            return super()._get_per_token_logps_and_entropies(model, input_ids, attention_mask, kept, *args, **kwargs)
        size = kwargs.get("batch_size") or len(input_ids)
        compute_entropy = kwargs.get("compute_entropy", False)
        logps, entropies = [], []
        for ids, mask in zip(torch.split(input_ids, size), torch.split(attention_mask, size), strict=True):
            tree = trees.build(ids, mask, kept)
            with self.accelerator.autocast():
                log_probs, entropy = self._of_nodes(model, tree.inputs, compute_entropy)
            logps.append(tree.spread(log_probs))
            if entropy is not None:
                entropies.append(tree.spread(entropy))
        return torch.cat(logps), torch.cat(entropies) if entropies else None, None

    def _of_nodes(self, model: Any, inputs: dict[str, Tensor], compute_entropy: bool) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities of the labels, and entropies if they are wanted: [prompts, nodes] each.

        TRL's head computes logits twice to save memory, which a small vocabulary does not need.
        """
        if self.model.config.vocab_size > trees.VOCABULARY or self.args.cast_lm_head_to_fp32:
            output = model(**inputs, fused_lm_head=True)
            return output.log_probs, output.entropy if compute_entropy else None
        text = {name: value for name, value in inputs.items() if name != "shift_labels"}
        logits = model(**text, use_cache=False).logits
        log_p = (logits.float() / self.temperature).log_softmax(-1)
        own = log_p.gather(-1, inputs["shift_labels"].clamp(min=0)[..., None])[..., 0]
        return own, -(log_p.exp() * log_p).sum(-1) if compute_entropy else None

    def _update_loss_inputs(self, inputs: dict[str, Any], logps: Tensor) -> None:
        """π_old of the first pass, and advantages at the current ratios."""
        mask, old = loss_mask(inputs), inputs.get("old_per_token_logps")
        # vLLM gives NaN where it has no number; such a token counts as unchanged.
        old = logps if old is None else torch.where(old.isnan(), logps, old)
        inputs["old_per_token_logps"] = old
        if self.kl_reference == "old":
            # A sampler's log-probability of a token that the mask hides is 0, at which k3 overflows.
            inputs["ref_per_token_logps"] = torch.where(mask.bool(), old, logps)
        if "sampling_per_token_logps" in inputs and not self._policy_moved:
            self._log_sampler_drift(log_ratios(logps, inputs["sampling_per_token_logps"], mask))
        ratios = log_ratios(logps, old, mask)
        if self._stale and self._in_pass_ratios:
            grouped, rewards = (x.view(-1, self.num_generations) for x in (ratios, inputs["rewards"]))
            advantages = self.objective(rewards, grouped, progress=self.progress)
            inputs["advantages"] = advantages.flatten()
            self._log_diagnostics(advantages, rewards, grouped)
        if self.importance_sampling_level == "sequence":
            inputs["advantages"] = self._with_sequence_ratios(inputs["advantages"], ratios, mask.sum(-1).clamp(min=1))

    def _with_sequence_ratios(self, advantages: Tensor, ratios: Tensor, lengths: Tensor) -> Tensor:
        factor = sequence_factor(ratios, lengths, advantages, self.epsilon_low, self.epsilon_high)
        # TRL's own clip ratios look at the geometric mean and do not see this clipping.
        clipped = ((factor == 0) & (advantages != 0)).float().mean().item()
        self._metrics["train"]["clip_ratio/sequence"].append(clipped)
        return advantages * factor

    @torch.no_grad()
    def _recompute_advantages(self, batches: list[dict[str, Any]]) -> None:
        """Advantages of all micro-batches at the current policy, from one forward pass without gradient."""
        ratios = torch.zeros(sum(len(batch["row"]) for batch in batches), device=self.accelerator.device)
        for batch in batches:
            of_batch = log_ratios(self._current_logps(batch), batch["old_per_token_logps"], loss_mask(batch))
            ratios[batch["row"]] = of_batch.to(ratios.dtype)
        grouped = self.accelerator.gather(ratios).view(-1, self.num_generations)
        advantages = self.objective(self._rewards, grouped, progress=self.progress)
        self._log_diagnostics(advantages, self._rewards, grouped)
        local = self._local(advantages)
        for batch in batches:
            batch["advantages"] = local[batch["row"]]
        self._recomputed_at = self.state.global_step

    def _current_logps(self, batch: dict[str, Any]) -> Tensor:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        kept = batch["completion_ids"].size(1)
        logps: Tensor = self._get_per_token_logps_and_entropies(self.model, ids, mask, kept)[0]
        return logps

    # ---- diagnostics
    def _log_diagnostics(self, advantages: Tensor, rewards: Tensor, ratios: Tensor | None = None) -> None:
        """Of groups [groups, n]."""
        self._metrics["train"]["frac_no_gradient"].append(frac_no_gradient(advantages))
        sizes = {*usual_ks(self.num_generations), *self.objective.ks} if ratios is None else ()
        for name, value in diagnose(self.objective, rewards, ratios, sorted(sizes), self.progress).items():
            self._metrics["train"][name].append(value)

    def _log_sampler_drift(self, ratios: Tensor) -> None:
        """Quantiles of π_θ/π_sampler, from log-ratios [B], before the first step on a batch.

        They are the sampler's rounding, and with `generate_ahead` the policy's move during a batch, too.
        """
        for name, value in ratio_quantiles(ratios.double()).items():
            self._metrics["train"][f"sampler_{name}"].append(value)

    def _log_best_of_functions(self, rewards: Tensor) -> None:
        """max@n of every reward function [completions, functions], over groups that it graded whole.

        Their max@1 is TRL's `rewards/NAME/mean`.
        """
        mode, n = ("train", self.num_generations) if self.model.training else ("eval", self.num_generations_eval)
        for name, values in zip(self.reward_func_names, rewards.T, strict=True):
            groups = values.reshape(-1, n)
            graded = groups[~unusable_groups(groups)].double()
            if len(graded):
                self._metrics[mode][f"rewards/{name}/max@{n}"].append(group_max_at_k(graded, n))

    def _log_evaluation(self, rewards: Tensor) -> None:
        graded = rewards[~rewards.isnan().any(dim=1)].double()
        for k in usual_ks(rewards.shape[1]):
            self._metrics["eval"][f"max@{k}"].append(group_max_at_k(graded, k))


def combined(rewards: Tensor, weights: Tensor) -> Tensor:
    """One reward per completion from those of several functions, as TRL combines them: [N, functions] → [N].

    The weighted sum, in which a function that returned None (NaN) does not count; NaN where all did.
    """
    return (rewards * weights).nansum(dim=1).masked_fill(rewards.isnan().all(dim=1), torch.nan)
