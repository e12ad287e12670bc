"""GRPO with the advantages of a max@k objective: the smallest seam in TRL's GRPOTrainer (the only importer of trl).

No parent code is copied; a few small overrides do it.

1. `_calculate_rewards` keeps the gathered reward matrix that the parent computes.
2. `_generate_and_score_completions` replaces the parent's advantages by the objective's.
3. π_old is what the loss's own pass gave a micro-batch in its first iteration. TRL makes one more pass for it, over
   sequences batched otherwise, which costs time and in 16 bits rounds otherwise: for whole completions of 200 tokens
   ratios of 0.6 to 1.7 were seen of a policy that had not moved (docs/results-mini.md).
4. Off-policy objectives need the current ratios ρ = π_θ/π_old of whole groups at every optimiser step, while TRL
   shuffles single sequences over micro-batches. Where a micro-batch holds whole groups, `_prepare_inputs` puts them
   together again and `_get_per_token_logps_and_entropies` renews the advantages from the forward pass that the loss
   makes anyway, so ratios are free. Elsewhere `_prepare_inputs` makes one forward pass without gradient over the
   optimiser step's micro-batches and gathers the ratios of split groups over processes. Weights are the same, because
   parameters do not move within an optimiser step.
5. `ratio: sequence` turns TRL's length-normalised sequence loss into that of `surrogates.sequence_surrogate` by a
   factor on the advantage (see `_sequence_factor`).
6. `_prepare_inputs` puts sequences of like length into one micro-batch and cuts it to its longest, where TRL pads all
   to the longest of the generation batch.

What differs from TRL's defaults, to follow the paper (Sections 3.1 and 4.4): loss_type "grpo" (mean over a completion's
tokens, then over completions; TRL: "dapo"), β = 0.01 without importance weights on the KL term (TRL: 0, with), learning
rate from the config (TRL: 1e-6), constant after warm-up, no weight decay, `num_iterations` from the config, no
dropout, and no importance-sampling correction of vLLM's samples (TRL: on, and it may drop whole completions).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from maxk.errors import UserError
from maxk.objectives import Objective
from maxk.objectives.diagnostics import diagnose, group_max_at_k

# Of policy and reference before the first step, in nats a token: in bfloat16 up to 0.0003 was seen, and 4.3 with a
# reference that had lost half its weights.
REFERENCE_KL = 0.01


class MaxkTrainer(GRPOTrainer):
    """GRPOTrainer whose advantages come from `objective`."""

    _buffered_inputs: list[dict[str, Any]] | None  # the parent's micro-batches of the last generation batch
    num_iterations: int  # the parent's μ

    def __init__(self, *args: Any, objective: Objective, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.objective = objective
        self._gathered_rewards: Tensor  # [groups of all processes, n], of the last generation batch
        self._renewing: dict[str, Any] | None = None  # the micro-batch of the loss at work, with what its pass renews
        whole_groups = self.args.per_device_train_batch_size % self.num_generations == 0
        one_batch = self.args.steps_per_generation * self.accelerator.num_processes == 1
        self._free_ratios = whole_groups and (one_batch or not objective.batch_scaled)

    @property
    def progress(self) -> float:
        """Share of the training done, in [0, 1]."""
        return float(self.state.global_step / self.state.max_steps)

    @property
    def _stale(self) -> bool:
        """Whether the policy has moved since it drew the batch at hand, and the objective wants to know."""
        iteration = self._step // self.args.steps_per_generation % self.num_iterations
        return bool(self.objective.off_policy and self.model.training and iteration > 0)

    # ---- rewards → advantages
    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        rewards: Tensor = super()._calculate_rewards(*args, **kwargs)
        size = self.num_generations if self.model.training else self.num_generations_eval
        self._gathered_rewards = rewards[:, 0].view(-1, size)
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        iterations, self.num_iterations = self.num_iterations, 1  # at one the parent makes no pass for π_old
        try:
            output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        finally:
            self.num_iterations = iterations
        if not self.model.training:
            self._log_evaluation(self._gathered_rewards)
            return output
        advantages = self.objective(self._gathered_rewards, progress=self.progress)
        self._replace_logged_advantages(advantages.flatten())
        self._log_diagnostics(self._gathered_rewards)
        output["advantages"] = self._local(advantages)
        output["rewards"] = self._local(self._gathered_rewards)
        output["row"] = torch.arange(len(inputs), device=advantages.device)  # its place in the process's share
        return output

    def _local(self, groups: Tensor) -> Tensor:
        """This process's share of a gathered [groups, n], flat."""
        share = groups.numel() // self.accelerator.num_processes
        first = self.accelerator.process_index * share
        return groups.flatten()[first : first + share]

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
        position = int(self._step % self.args.steps_per_generation)
        if self._buffered_inputs is not before:
            whole = self.objective.off_policy and self._free_ratios
            self._buffered_inputs = _by_length(self._buffered_inputs, self.num_generations if whole else 1)
        elif self._stale and not self._free_ratios and position == 0:
            self._refresh_advantages(self._buffered_inputs)
        return self._buffered_inputs[position]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        self._renewing = dict(inputs) if self.model.training else None
        try:
            loss: Tensor = super()._compute_loss(model, self._renewing or inputs)
            if self._renewing is not None:
                inputs["old_per_token_logps"] = self._renewing["old_per_token_logps"]
        finally:
            self._renewing = None
        if self.beta and self.model.training and self.state.global_step == 0:
            require_same_reference(self._metrics["train"]["kl"][-1], self.temperature)
        return loss

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        """The parent reads advantages and π_old from its inputs after this pass; a contract test holds it to that."""
        output = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._renewing is not None:
            self._renewing.setdefault("old_per_token_logps", output[0].detach())  # the first iteration's
            self._renew_advantages(self._renewing, per_token_logps=output[0].detach())
        return output

    def _renew_advantages(self, inputs: dict[str, Any], per_token_logps: Tensor) -> None:
        log_ratios = _log_ratios(inputs, per_token_logps)
        if self._stale and self._free_ratios:
            grouped, rewards = (x.view(-1, self.num_generations) for x in (log_ratios, inputs["rewards"]))
            inputs["advantages"] = self.objective(rewards, grouped, progress=self.progress).flatten()
            self._log_diagnostics(rewards, grouped)
        if self.importance_sampling_level == "sequence":
            lengths, advantages = inputs["completion_mask"].sum(-1), inputs["advantages"]
            factor = _sequence_factor(log_ratios, lengths, advantages, self.epsilon_low, self.epsilon_high)
            inputs["advantages"] = advantages * factor
            # TRL's own clip ratios look at the geometric mean and see nothing of this.
            clipped = ((factor == 0) & (advantages != 0)).float().mean().item()
            self._metrics["train"]["clip_ratio/sequence"].append(clipped)

    @torch.no_grad()
    def _refresh_advantages(self, batches: list[dict[str, Any]]) -> None:
        """Advantages of all micro-batches of the optimiser step from one forward pass without gradient."""
        ratios = torch.zeros(sum(len(batch["row"]) for batch in batches), device=self.accelerator.device)
        for batch in batches:
            ratios[batch["row"]] = _log_ratios(batch, self._current_logps(batch)).to(ratios.dtype)
        grouped = self.accelerator.gather(ratios).view(-1, self.num_generations)
        advantages = self._local(self.objective(self._gathered_rewards, grouped, progress=self.progress))
        self._log_diagnostics(self._gathered_rewards, grouped)
        for batch in batches:
            batch["advantages"] = advantages[batch["row"]]

    def _current_logps(self, batch: dict[str, Any]) -> Tensor:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        kept = batch["completion_ids"].size(1)
        logps: Tensor = self._get_per_token_logps_and_entropies(self.model, ids, mask, kept)[0]
        return logps

    # ---- diagnostics
    def _log_diagnostics(self, rewards: Tensor, log_ratios: Tensor | None = None) -> None:
        sizes = (1, self.num_generations) if log_ratios is None else ()
        for name, value in diagnose(self.objective, rewards, log_ratios, sizes, self.progress).items():
            self._metrics["train"][name].append(value)

    def _log_evaluation(self, rewards: Tensor) -> None:
        graded = rewards[~rewards.isnan().any(dim=1)].double()
        for k in _powers_of_two(rewards.shape[1]):
            self._metrics["eval"][f"max@{k}"].append(group_max_at_k(graded, k))


def require_same_reference(kl: float, temperature: float) -> None:
    """Before the first step policy and reference are one model: their KL is rounding, which grows as 1/temperature².

    Raises UserError where it is more, or no number.
    """
    if kl <= REFERENCE_KL / min(1.0, temperature) ** 2:
        return
    raise UserError(
        f"before the first step the KL of the policy to its reference is {kl:.3g} nats a token, where it must be 0: "
        "the reference model is not the base policy (weights lost on their way to several processes?)"
        if math.isfinite(kl)
        else f"the base policy gives no probabilities: before the first step its KL to itself is {kl}"
    )


def _log_ratios(inputs: dict[str, Any], per_token_logps: Tensor) -> Tensor:
    """log π_θ(y|x) − log π_old(y|x) of whole completions [B]."""
    ratios: Tensor = ((per_token_logps - inputs["old_per_token_logps"]) * inputs["completion_mask"]).sum(-1)
    return ratios


def _sequence_factor(log_ratios: Tensor, lengths: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """What makes TRL's sequence loss the clipped surrogate of whole-completion ratios, as a factor on the advantage.

    TRL's loss has the gradient s·A·Σ_t ∇log π_t with s = ρ^(1/length), the geometric mean of the token ratios ("luspo"
    multiplies by the length, which cancels the mean's 1/length). The factor ρ/s makes it ρ·A·∇log π(y|x), and 0 where
    PPO would clip: a good completion already made likelier by 1 + ε, a bad one made less likely by 1 − ε.
    """
    ratios = log_ratios.exp()
    clipped = ((advantages > 0) & (ratios > 1 + high)) | ((advantages < 0) & (ratios < 1 - low))
    return torch.where(clipped, 0.0, (log_ratios - log_ratios / lengths).exp())


def _by_length(batches: list[dict[str, Any]], together: int) -> list[dict[str, Any]]:
    """The same sequences in as many micro-batches, by length of completion, each cut to its longest.

    `together` sequences that were generated side by side stay so (a group, or 1). Which micro-batch holds a sequence
    changes no gradient; padding that nobody needs would be computed like tokens.
    """
    generated = torch.cat([batch["row"] for batch in batches]).argsort()
    lengths = torch.cat([batch["completion_mask"].sum(1) for batch in batches])[generated]
    units = lengths.view(-1, together).amax(1).argsort(stable=True)
    order = generated.view(-1, together)[units].flatten()
    merged = {
        key: torch.cat([batch[key] for batch in batches])[order] if value.ndim else value
        for key, value in batches[0].items()
    }
    return [_cut(batch) for batch in split_tensor_dict(merged, len(batches))]


def _cut(batch: dict[str, Any]) -> dict[str, Any]:
    """A micro-batch without the columns that are padding in all its sequences: prompts' first, completions' last."""
    prompt, completion = (int(batch[f"{part}_mask"].sum(1).max()) for part in ("prompt", "completion"))
    return {
        key: value[:, -prompt:] if key.startswith("prompt_") else value[:, :completion] if value.ndim > 1 else value
        for key, value in batch.items()
    }


def _powers_of_two(limit: int) -> list[int]:
    return [2**i for i in range(limit.bit_length()) if 2**i <= limit]
