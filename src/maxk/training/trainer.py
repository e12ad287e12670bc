"""The pipeline's trainer: MaxkTrainer that grades beside the GPU and checks its reference model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import StopStringCriteria

from maxk.artifacts import models
from maxk.errors import UserError
from maxk.grading import extract_program
from maxk.integrations.completions import text_of
from maxk.sampling import prefixes, stopping
from maxk.training.accelerate_config import REPLICATED
from maxk.trl import MaxkTrainer
from maxk.trl.vllm import fixed_cache, own_port, report_finished

# Nats per token before the first step. In bfloat16 0.0003 was seen, and 4.3 with a reference that had lost half of its
# weights.
REFERENCE_KL = 0.01

# With several processes on a CPU, transformers restores the optimiser to "cpu:0", which torch does not know.
torch.serialization.register_package(
    100, lambda _: None, lambda storage, location: storage if location == "cpu:0" else None
)


class PolicyTrainer(MaxkTrainer):
    """MaxkTrainer for problems with tests: every row of its datasets has a `problem_id`.

    reference_precision   "float32" or "bfloat16": the type of the reference model's weights.
    stop                  strings that end a completion; vLLM must be told of them, too (`arguments`).
    kv_cache_gb           size of colocated vLLM's cache; None: what `vllm_gpu_memory_utilization` leaves for it.

    Programs run while others are generated and while the reference model computes: a reward function with a method
    `early` is given completions as colocated vLLM ends them, one with `start` those of a whole batch. Raises UserError
    before the first step if the reference model differs from the policy.
    """

    def __init__(
        self,
        *args: Any,
        reference_precision: str = "float32",
        stop: Sequence[str] = (),
        kv_cache_gb: float | None = None,
        **kwargs: Any,
    ) -> None:
        own_port()
        with fixed_cache(kv_cache_gb):
            super().__init__(*args, **kwargs)
        self._stop = tuple(stop)
        self._problem_of: dict[tuple[int, ...], str] = {}  # by the token ids of its prompt, for the running batch
        self._grades_early = self.use_vllm and self.vllm_mode == "colocate"
        if self._grades_early:
            report_finished(self.vllm_generation, self._grade_early)
        if not self.use_vllm:
            self.model.generate = partial(self.model.generate, **self._generate_options())
        if reference_precision == "bfloat16" and self.ref_model is not None:
            self.ref_model.to(torch.bfloat16)

    def _generate_options(self) -> dict[str, Any]:
        """Stop strings and, where possible, the loop that computes equal prefixes once."""
        options: dict[str, Any] = {}
        if self._stop:
            options["stopping_criteria"] = [StopStringCriteria(self.processing_class, list(self._stop))]
        if self._generates_by_prefixes:
            options["custom_generate"] = prefixes.generate
        return options

    @property
    def _generates_by_prefixes(self) -> bool:
        """Whether every process holds all weights, and the cache holds keys and values of text alone."""
        replicated = self.accelerator.distributed_type.value in REPLICATED
        return replicated and not self._is_vlm and not models.has_recurrent_state(self.model.config)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._problem_ids = [row["problem_id"] for row in inputs]
        return super()._generate_and_score_completions(inputs)

    def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Cuts the padding that transformers appends to a stopped completion, and counts stopped completions."""
        if self._grades_early:
            self._problem_of = dict(zip(map(tuple, prompt_ids), self._problem_ids, strict=True))
        completion_ids, logprobs = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        cut = [stopping.cut(ids, self._stop, self.processing_class) if self._stop else None for ids in completion_ids]
        kept = [ids if short is None else short for ids, short in zip(completion_ids, cut, strict=True)]
        if logprobs is not None:
            logprobs = [row[: len(ids)] for row, ids in zip(logprobs, kept, strict=True)]
        self._stopped = [short is not None and short[-1] not in self.eos_token_ids for short in cut]
        return kept, logprobs

    def _log_stopped(self, texts: Sequence[str]) -> None:
        """The fractions of stopped completions, and of those that hold no program.

        The parent has counted stopped completions as clipped at the token limit.
        """
        lost = [stop and extract_program(text).program is None for stop, text in zip(self._stopped, texts, strict=True)]
        counts = torch.tensor([self._stopped, lost], dtype=torch.float, device=self.accelerator.device).T
        stopped_ratio, lost_ratio = self.accelerator.gather(counts).mean(dim=0).tolist()
        metrics = self._metrics["train" if self.model.training else "eval"]
        metrics["completions/stopped_ratio"].append(stopped_ratio)
        metrics["completions/lost_ratio"].append(lost_ratio)
        metrics["completions/clipped_ratio"][-1] -= stopped_ratio

    def _grade_early(self, prompt: Sequence[int], completions: list[Sequence[int]]) -> None:
        """Gives finished completions to the reward functions, but for those of another process's prompt."""
        problem = self._problem_of.get(tuple(prompt))
        if problem is None:
            return
        texts = self.processing_class.batch_decode(completions, skip_special_tokens=True)
        self._call_rewards("early", texts, [problem] * len(texts))

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        try:
            output: tuple[Any, ...] = super()._generate(prompts)
            _, _, _, completions, *_ = output
            if self._stop:
                self._log_stopped([text_of(one) for one in completions])
            self._call_rewards("start", completions, self._problem_ids)
        except BaseException:
            self._call_rewards("drop")  # the rest of the batch will not come
            raise
        return output

    def _call_rewards(self, method: str, *args: Any) -> None:
        """Calls a method of those reward functions that have it."""
        for reward in self.reward_funcs:
            if hasattr(reward, method):
                getattr(reward, method)(*args)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        loss: Tensor = super()._compute_loss(model, inputs)
        if self.kl_reference == "base" and self.beta and self.model.training and self.state.global_step == 0:
            require_same_reference(self._metrics["train"]["kl"][-1], self.temperature)
        return loss


def require_same_reference(kl: float, temperature: float) -> None:
    """Raises UserError if `kl`, the KL of the policy to its reference before the first step, is more than rounding.

    Rounding errors of log-probabilities grow as 1/temperature, their KL as 1/temperature².
    """
    if kl <= REFERENCE_KL / min(1.0, temperature) ** 2:
        return
    raise UserError(
        f"before the first step the KL of the policy to its reference is {kl:.3g} nats a token, where it must be 0: "
        "the reference model is not the base policy (were weights lost when they were spread over processes?)"
        if math.isfinite(kl)
        else f"the base policy's probabilities are not valid: before the first step its KL to itself is {kl}"
    )
