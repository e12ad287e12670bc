"""maxk.trl.MaxkTrainer as anyone's TRL script uses it: GRPOTrainer with other advantages, and nothing else changed."""

from __future__ import annotations

import inspect
import os
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import fields
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig
from tiny import (
    DIFFERENT,
    GROUP,
    ROUNDING,
    WORDS,
    config,
    count_a,
    difference,
    laid_down,
    make_trainer,
    tokens,
    trained,
    weights,
)
from torch import Tensor
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import GRPOConfig, GRPOTrainer
from trl.generation import vllm_generation
from trl.generation.vllm_generation import extract_logprobs
from trl.trainer.utils import ensure_master_addr_port, split_tensor_dict

from maxk import objectives
from maxk.estimators import max_at_k
from maxk.trl import MaxkTrainer
from maxk.trl.microbatches import by_length
from maxk.trl.options import as_objective
from maxk.trl.trainer import combined
from maxk.trl.vllm import fixed_cache, own_port, request_groups
from surrogates import sequence_surrogate, token_surrogate

EXACT = {"type": "bon_offpolicy_exact", "k": 2, "clamp_log_ratio": None}


# ---- the contract with TRL
@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("_calculate_rewards", ["self", "inputs", "prompts", "completions", "completion_ids_list"]),
        ("_generate_and_score_completions", ["self", "inputs"]),
        ("_prepare_inputs", ["self", "generation_batch"]),
        ("_compute_loss", ["self", "model", "inputs"]),
    ],
)
def test_overridden_methods_have_the_signatures_we_rely_on(method: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(GRPOTrainer, method)).parameters) == parameters


def test_the_pass_of_the_parent_has_the_arguments_we_rely_on() -> None:
    parameters = list(inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)
    assert parameters[1:5] == ["model", "input_ids", "attention_mask", "logits_to_keep"]
    assert {"batch_size", "compute_entropy"} <= set(parameters)


def test_parent_reads_advantages_after_the_forward_pass() -> None:
    source = inspect.getsource(GRPOTrainer._compute_loss)
    assert source.index("_get_per_token_logps_and_entropies(") < source.index('inputs["advantages"]')
    assert source.index("_get_per_token_logps_and_entropies(") < source.index('inputs.get("old_per_token_logps")')
    assert len(re.findall(r"self\._get_per_token_logps_and_entropies\(", source)) == 1


# ---- the objective
@pytest.mark.parametrize(
    "given",
    [
        "bon_loo1",
        {"type": "bon_loo1"},
        {"type": "bon_loo1", "k": 2},
        objectives.make({"type": "bon_loo1", "k": 2}),
        lambda rewards: objectives.make({"type": "bon_loo1", "k": 2})(rewards),
        None,
    ],
    ids=["name", "mapping", "with k", "object", "function", "default"],
)
def test_an_objective_is_given_in_many_ways(given: Any, letters_model: str, tmp_path: Path) -> None:
    """k is half of the completions where it is left out."""
    extra = {} if given is None else {"objective": given}
    trainer = make_trainer(letters_model, config(tmp_path), **extra)
    rewards = torch.rand(3, GROUP, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(trainer.objective(rewards), objectives.make({"type": "bon_loo1", "k": 2})(rewards))


def z_score(rewards: Tensor) -> Tensor:
    """Without an epsilon: 0/0 where all rewards are equal."""
    return (rewards - rewards.mean(dim=1, keepdim=True)) / rewards.std(dim=1, keepdim=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("bon_lo1", "did you mean 'bon_loo1'"),
        ({"type": "bon_loo1", "k": 5}, "k = 5 with n = 4"),
        ({"type": "bon_loo1", "k": {"schedule": "linear", "start": 1, "end": 8}}, "k = 8 with n = 4"),
        ({"type": "bon_mean", "k": 4}, "gives no gradient for groups of 4"),
        (lambda rewards: rewards.sum(dim=1), r"returned \[4\] for rewards \[4, 4\]"),
        (z_score, r"z_score returned nan for rewards \[0.0, 0.0, 0.0, 0.0\]"),
        (
            lambda rewards: 1 / (1 - rewards.mean(dim=1, keepdim=True).expand(-1, 4)),
            r"inf for rewards \[1.0, 1.0, 1.0, 1.0\]",
        ),
    ],
    ids=["unknown", "k above n", "schedule above n", "no gradient", "shape", "nan for zeros", "infinite for ones"],
)
def test_an_objective_that_cannot_work_is_refused_before_a_model_is_loaded(
    given: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        make_trainer("no-such-model", config(tmp_path), objective=given)


NEED_M = ("bon_topm", "bon_offpolicy_topm")


@pytest.mark.parametrize("name", [name for name in objectives.OBJECTIVES if name not in NEED_M])
def test_a_type_works_by_its_name_alone(name: str) -> None:
    assert as_objective(name, n=8).ks in ((), (4,))


@pytest.mark.parametrize("name", NEED_M)
def test_a_type_with_another_required_key_shows_the_mapping(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name} needs m: {{'type': '{name}', 'k': …, 'm': …}}")):
        as_objective(name, n=8)


def test_a_function_never_gives_an_ungraded_group_a_gradient(letters_model: str, tmp_path: Path) -> None:
    def centred(rewards: Tensor) -> Tensor:
        return rewards - rewards.mean(dim=1, keepdim=True)

    trainer = make_trainer(letters_model, config(tmp_path), objective=centred)
    advantages = trainer.objective(torch.tensor([[0.0, 1.0, torch.nan, 1.0], [0.0, 1.0, 0.0, 1.0]]))
    assert advantages.tolist() == [[0, 0, 0, 0], [-0.5, 0.5, -0.5, 0.5]]


# ---- advantages, and nothing else: with TRL's own advantages, every supported option trains as in TRL
LOSSES: dict[str, dict[str, Any]] = {
    "dapo": {},
    "grpo": {"loss_type": "grpo", "beta": 0.04},
    "bnpo": {"loss_type": "bnpo", "gradient_accumulation_steps": 1, "per_device_train_batch_size": 16},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "sapo": {"loss_type": "sapo"},
    "vespo": {"loss_type": "vespo"},
    "luspo of token ratios": {"loss_type": "luspo"},
    "two-sided clipping": {"delta": 1.5},
    "high-entropy tokens": {
        **{"top_entropy_quantile": 0.5, "gradient_accumulation_steps": 1, "per_device_train_batch_size": 16}
    },
    "entropy bonus": {"entropy_coef": 0.1, "loss_type": "grpo", "gradient_accumulation_steps": 1}
    | {"per_device_train_batch_size": 16},
    "no KL weights": {"beta": 0.04, "use_bias_correction_kl": False},
    "truncated completions masked": {"mask_truncated_completions": True},
    "off-policy mask": {"off_policy_mask_threshold": 0.1},
    "two batches a step": {"gradient_accumulation_steps": 4, "steps_per_generation": 2, "max_steps": 2},
}


def slow_but(kept: set[str], names: Iterable[str]) -> list[Any]:
    """Parameters, of which all but a few are slow tests: each is a training or two."""
    return [pytest.param(name, marks=[] if name in kept else [pytest.mark.slow]) for name in names]


@pytest.mark.parametrize(
    "name", slow_but({"dapo", "grpo", "cispo", "luspo of token ratios", "two batches a step"}, LOSSES)
)
def test_grpo_equals_the_stock_trainer(name: str, letters_model: str, tmp_path: Path) -> None:
    """Two iterations, so that ratios matter; micro-batches are composed otherwise, which must not."""
    options = {"num_iterations": 2, **LOSSES[name]}
    stock = trained(letters_model, config(tmp_path, **options), kind=GRPOTrainer)
    ours = trained(letters_model, config(tmp_path, **options), objective="grpo")
    assert difference(weights(stock.model), weights(ours.model), weights(letters_model)) < ROUNDING
    assert list(ours._logs["advantages"]) == pytest.approx(list(stock._logs["advantages"]), abs=1e-5)


def test_several_optimiser_steps_per_generation_batch_equal_the_stock_trainer(
    letters_model: str, tmp_path: Path
) -> None:
    """The order of sequences then decides which step they belong to: it stays TRL's."""
    options = {"gradient_accumulation_steps": 1, "steps_per_generation": 2, "max_steps": 4}
    stock = trained(letters_model, config(tmp_path, **options), kind=GRPOTrainer)
    ours = trained(letters_model, config(tmp_path, **options), objective="grpo")
    assert difference(weights(stock.model), weights(ours.model), weights(letters_model)) < ROUNDING


def test_objectives_train_differently(letters_model: str, tmp_path: Path) -> None:
    """The control of the tests above."""
    grpo = trained(letters_model, config(tmp_path), objective="grpo")
    loo = trained(letters_model, config(tmp_path), objective="bon_loo1")
    assert difference(weights(grpo.model), weights(loo.model), weights(letters_model)) > DIFFERENT
    assert list(grpo._logs["advantages"]) != pytest.approx(list(loo._logs["advantages"]), abs=1e-3)


def test_adapters_alone_are_trained(letters_model: str, tmp_path: Path) -> None:
    adapters = LoraConfig(task_type="CAUSAL_LM", r=2, target_modules="all-linear")
    trainer = trained(letters_model, config(tmp_path, beta=0.04), objective="bon_loo1", peft_config=adapters)
    trainable = {name for name, p in trainer.model.named_parameters() if p.requires_grad}
    assert trainable
    assert all("lora_" in name for name in trainable)


def test_evaluation_logs_max_at_k_of_its_own_number_of_completions(letters_model: str, tmp_path: Path) -> None:
    options = {"eval_strategy": "steps", "eval_steps": 1, "num_generations_eval": 8, "per_device_eval_batch_size": 16}
    trainer = trained(letters_model, config(tmp_path, **options))
    logged = {entry["step"]: entry for entry in trainer.state.log_history if "eval_max@8" in entry}
    for step in (1, 2):
        rewards = [count_a([WORDS[(3 * i + step) % len(WORDS)] for i in range(16)])]  # what `laid_down` lays down
        expected = max_at_k(np.reshape(rewards, (2, 8)), [1, 2, 4, 8]).mean(axis=0)
        assert [logged[step][f"eval_max@{k}"] for k in (1, 2, 4, 8)] == pytest.approx(list(expected))


def test_training_logs_max_at_k_of_the_groups(letters_model: str, tmp_path: Path) -> None:
    trainer = trained(letters_model, config(tmp_path, num_generations=8), objective={"type": "bon_loo1", "k": 3})
    first = trainer.state.log_history[0]
    ks = [1, 2, 3, 4, 8]  # the usual, and that of the objective
    assert {key for key in first if key.startswith("train_max@")} == {f"train_max@{k}" for k in ks}
    rewards = [count_a([WORDS[3 * i % len(WORDS)] for i in range(16)])]
    expected = max_at_k(np.reshape(rewards, (2, 8)), ks).mean(axis=0)
    assert [first[f"train_max@{k}"] for k in ks] == pytest.approx(list(expected))


# ---- options that would change what an objective means
@pytest.mark.parametrize(
    ("options", "extra", "message"),
    [
        ({"scale_rewards": "batch"}, {}, "scale_rewards='batch' has no effect"),
        ({"scale_rewards": False}, {}, "scale_rewards='none' has no effect"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, {}, "needs one reward per completion"),
        ({"importance_sampling_level": "sequence"}, {}, "needs loss_type='luspo', got 'dapo'"),
        ({"importance_sampling_level": "sequence", "loss_type": "grpo"}, {}, "needs loss_type='luspo', got 'grpo'"),
        ({"importance_sampling_level": "sequence", "loss_type": "luspo", "delta": 2.0}, {}, "delta"),
        (
            {"importance_sampling_level": "sequence", "loss_type": "luspo", "top_entropy_quantile": 0.2},
            {},
            "top_entropy_quantile",
        ),
        (
            {"importance_sampling_level": "sequence", "loss_type": "luspo", "use_vllm": True}
            | {"vllm_importance_sampling_mode": "token_mask"},
            {},
            "vllm_importance_sampling_mode='token_mask' corrects single tokens",
        ),
        ({"mask_truncated_completions": True}, {"objective": EXACT}, "mask_truncated_completions"),
        ({"loss_type": "sapo"}, {"objective": EXACT}, "loss_type='sapo'"),
        ({"loss_type": "vespo"}, {"objective": EXACT}, "loss_type='vespo'"),
        ({"loss_type": "cispo"}, {}, "epsilon_high, which must be at least 1"),
        ({}, {"old_policy": "vllm"}, "old_policy must be 'trainer' or 'sampler', got 'vllm'"),
        ({}, {"old_policy": "sampler", "rollout_func": None}, "needs the log-probabilities that vLLM"),
        ({"use_vllm": True}, {"old_policy": "sampler"}, "corrected twice"),
        ({"beta": 0.1}, {"kl_reference": "start"}, "kl_reference must be 'base' or 'old', got 'start'"),
        ({}, {"kl_reference": "old"}, "kl_reference='old' needs a beta above 0"),
        ({"beta": 0.1, "sync_ref_model": True}, {"kl_reference": "old"}, "sync_ref_model=True needs a reference"),
        (
            {"beta": 0.1, "importance_sampling_level": "sequence", "loss_type": "luspo"},
            {"kl_reference": "old"},
            "kl_reference='old' with importance_sampling_level='sequence' needs use_bias_correction_kl=False",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_options_without_meaning_are_refused_before_a_model_is_loaded(
    options: dict[str, Any], extra: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make_trainer("no-such-model", config(tmp_path, **options), **extra)


# Where and how it is computed, and what is logged of it.
EXECUTION = (
    *("model_init_kwargs", "trust_remote_code", "cast_lm_head_to_fp32", "ds3_gather_for_generation", "log_*"),
    *(
        "shuffle_dataset",
        "pad_to_multiple_of",
        "generation_batch_size",
        "max_completion_length",
        "chat_template_kwargs",
    ),
    *("cache_implementation", "vllm_mode", "vllm_model_impl", "vllm_enable_sleep_mode", "vllm_server_*"),
    *("vllm_group_port", "vllm_gpu_memory_utilization", "vllm_max_model_length", "vllm_tensor_parallel_size"),
    *("max_tool_calling_iterations", "num_completions_to_print", "use_transformers_*", "transformers_*"),
)


def test_every_option_of_trl_is_documented_or_about_execution(root: Path) -> None:
    """A new version of TRL may bring an option that changes what an objective means: this test names it."""
    documented = re.findall(r"`([a-z0-9_*]+)", (root / "docs" / "trainer.md").read_text(encoding="utf-8"))
    known = [*documented, *EXECUTION]
    common = {field.name for field in fields(TrainingArguments)}
    options = [field.name for field in fields(GRPOConfig) if field.name not in common]
    assert len(options) > 50
    assert [name for name in options if not any(fnmatch(name, one) for one in known)] == []


# ---- several reward functions
def brevity(completions: list[str], **_: Any) -> list[float | None]:
    """Grades completions of at most four letters only."""
    return [1 - len(text) / 5 if len(text) < 5 else None for text in completions]


def test_rewards_are_combined_by_their_weights_as_in_trl(letters_model: str, tmp_path: Path) -> None:
    start = weights(letters_model)

    def run(kind: type[GRPOTrainer], reward_weights: list[float], **extra: Any) -> Tensor:
        args = config(tmp_path, reward_weights=reward_weights, max_steps=1)
        return weights(trained(letters_model, args, kind=kind, rewards=[count_a, brevity], **extra).model)

    stock, ours = run(GRPOTrainer, [1.0, 0.5]), run(MaxkTrainer, [1.0, 0.5], objective="grpo")
    assert difference(stock, ours, start) < ROUNDING
    first, second = (run(MaxkTrainer, one, objective="bon_loo1") for one in ([1.0, 0.0], [0.0, 1.0]))
    assert difference(first, second, start) > DIFFERENT


def test_several_functions_log_their_own_best_of_the_group(letters_model: str, tmp_path: Path) -> None:
    """`train_max@4` is of the weighted sum; the best completion of one function need not be the best of the sum."""

    def count_b(completions: list[str], **_: Any) -> list[float | None]:
        return [None if i == 9 else text.count("b") / 4 for i, text in enumerate(completions)]

    def never(completions: list[str], **_: Any) -> list[float | None]:
        return [None for _ in completions]

    options = {"reward_weights": [1.0, 0.5, 1.0], "eval_strategy": "steps", "eval_steps": 1, "max_steps": 1}
    options |= {"num_generations_eval": 2, "per_device_eval_batch_size": 8}
    trainer = trained(letters_model, config(tmp_path, **options), rewards=[count_a, count_b, never])
    words = [WORDS[3 * i % len(WORDS)] for i in range(16)]  # what `laid_down` lays down
    [train] = [entry for entry in trainer.state.log_history if "loss" in entry]
    a, b = (np.array(one(words), dtype=float).reshape(-1, GROUP) for one in (count_a, count_b))
    assert train["rewards/count_a/max@4"] == pytest.approx(a.max(axis=1).mean())
    assert train["rewards/count_b/max@4"] == pytest.approx(b[[0, 1, 3]].max(axis=1).mean())
    assert train["train_max@4"] == pytest.approx((a + np.nan_to_num(b) / 2).max(axis=1).mean())
    assert not any("never/max@" in key for key in train)
    [evaluation] = [entry for entry in trainer.state.log_history if "eval_max@2" in entry]
    assert "eval_rewards/count_a/max@2" in evaluation


def test_one_function_logs_its_best_once(letters_model: str, tmp_path: Path) -> None:
    trainer = trained(letters_model, config(tmp_path, max_steps=1))
    assert not any(key.startswith("rewards/count_a/max@") for key in trainer.state.log_history[0])


def test_an_ungraded_completion_is_one_that_no_function_graded() -> None:
    rewards = torch.tensor([[1.0, 0.5], [1.0, torch.nan], [torch.nan, 0.5], [torch.nan, torch.nan]])
    total = combined(rewards, torch.tensor([2.0, -1.0]))
    assert total[:3].tolist() == [1.5, 2.0, -0.5]
    assert total[3].isnan()


# ---- off-policy: every advantage in every loss against a slow computation from whole groups
class Spy(MaxkTrainer):
    """Before each optimiser step, recomputes all advantages from plain forward passes; checks those that losses use."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        loss = super()._compute_loss(model, inputs)
        if self.model.training:
            self.used.append((self.state.global_step, inputs["row"], self._used_advantages))
            self.expected.setdefault(self.state.global_step, self._slow_advantages())
        return loss

    def _update_loss_inputs(self, inputs: dict[str, Any], logps: Tensor) -> None:
        super()._update_loss_inputs(inputs, logps)
        self._used_advantages = inputs["advantages"]

    def _slow_advantages(self) -> Tensor | None:
        """None before the first pass of a micro-batch, when its π_old is not known yet."""
        ratios = torch.zeros(self._rewards.numel())
        for batch in self._buffered_inputs:
            if "old_per_token_logps" not in batch:
                return None
            ratios[batch["row"]] = self._slow_log_ratios(batch)
        return self.objective(self._rewards, ratios.view_as(self._rewards), progress=self.progress).flatten()

    def _slow_log_ratios(self, batch: dict[str, Any]) -> Tensor:
        mask = batch["completion_mask"] * batch.get("tool_mask", 1)
        old = batch["old_per_token_logps"]
        with torch.no_grad():
            logps = plain_logps(self.model, batch, self.temperature)
        return ((logps - torch.where(old.isnan(), logps, old)) * mask).sum(-1)


def plain_logps(model: Any, batch: dict[str, Any], temperature: float = 1.0) -> Tensor:
    """Log-probabilities of the completions' tokens by the model's own logits."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=mask, position_ids=positions).logits / temperature
    kept = batch["completion_ids"].shape[1]
    return logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1)[:, -kept:]


def with_tools(prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
    """The second token of every completion comes from a tool."""
    output = laid_down(prompts, trainer)
    output["env_mask"] = [[int(i != 1) for i in range(len(ids))] for ids in output["completion_ids"]]
    return output


def with_logprobs(prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
    """A sampler that gives every token a probability e^0.1 times the trainer's, and one token none."""
    output, tokenizer = laid_down(prompts, trainer), trainer.processing_class
    output["logprobs"] = []
    for prompt, completion in zip(prompts, output["completion_ids"], strict=True):
        prompt_ids = tokens(tokenizer, prompt)
        batch = {"prompt_ids": prompt_ids, "completion_ids": completion}
        rows = {key: torch.tensor([ids]) for key, ids in batch.items()}
        masks = {f"{key[:-4]}_mask": torch.ones_like(ids) for key, ids in rows.items()}
        with torch.no_grad():
            logps = plain_logps(trainer.model, {**rows, **masks})[0] + 0.1
        output["logprobs"].append([None, *logps.tolist()[1:]])
    return output


LAYOUTS: dict[str, tuple[bool, dict[str, Any], dict[str, Any]]] = {
    # whether ratios come from the loss's own pass; options of GRPOConfig; further arguments
    "whole groups": (True, {"num_iterations": 3}, {}),
    "split groups": (
        False,
        {"num_iterations": 3, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8},
        {},
    ),
    "first order": (True, {"num_iterations": 2}, {"objective": {"type": "bon_loo1_firstorder", "k": 3}}),
    "scaled by the batch": (False, {"num_iterations": 2}, {"objective": {"type": "bon_offpolicy", "k": 2}}),
    "one batch": (
        True,
        {"num_iterations": 2, "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1},
        {"objective": {"type": "bon_offpolicy", "k": 2}},
    ),
    "two optimiser steps a batch": (
        False,
        {"gradient_accumulation_steps": 1, "steps_per_generation": 2, "num_iterations": 2, "max_steps": 8},
        {},
    ),
    "two batches an optimiser step": (
        True,
        {"gradient_accumulation_steps": 4, "steps_per_generation": 2, "num_iterations": 4, "max_steps": 4},
        {},
    ),
    "evaluation between iterations": (
        False,
        {"num_iterations": 2, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}
        | {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4},
        {},
    ),
    "another temperature": (True, {"num_iterations": 2, "temperature": 0.7}, {}),
    "tools": (True, {"num_iterations": 2}, {"rollout_func": with_tools}),
    "tools, split groups": (
        False,
        {"num_iterations": 2, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8},
        {"rollout_func": with_tools},
    ),
    "ratios to the sampler": (
        True,
        {"num_iterations": 2},
        {"old_policy": "sampler", "rollout_func": with_logprobs},
    ),
    "ratios to the sampler, two batches an optimiser step": (
        False,
        {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 16, "steps_per_generation": 8},
        {"old_policy": "sampler", "rollout_func": with_logprobs},
    ),
    "ratios to the sampler, split groups": (
        False,
        {"num_iterations": 2, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8},
        {"old_policy": "sampler", "rollout_func": with_logprobs},
    ),
}


QUICK = {"whole groups", "split groups", "scaled by the batch", "two optimiser steps a batch", "tools"}


@pytest.mark.parametrize("name", slow_but({*QUICK, "ratios to the sampler"}, LAYOUTS))
def test_off_policy_advantages_are_those_of_whole_groups_at_current_ratios(
    name: str, letters_model: str, tmp_path: Path
) -> None:
    in_pass, options, extra = LAYOUTS[name]
    Spy.used, Spy.expected = [], {}
    trainer = trained(letters_model, config(tmp_path, **options), kind=Spy, **{"objective": EXACT, **extra})
    assert trainer._in_pass_ratios is in_pass
    checked = 0
    on_policy = trainer.objective(trainer._rewards).flatten()
    for step, row, advantages in Spy.used:
        if (expected := Spy.expected[step]) is not None:
            # Log-ratios carry the rounding of at most 8 log-probabilities; advantages are of order 0.1.
            assert torch.allclose(advantages, expected[row], atol=1e-5, rtol=1e-4)
            checked += 1
    assert checked >= 4
    assert not torch.allclose(expected, on_policy, atol=1e-3)  # the policy has moved


def test_ratios_to_the_sampler_are_logged(letters_model: str, tmp_path: Path) -> None:
    """e^(−0.1) for each of a completion's tokens but the first, which got no probability: WORDS have 1 to 5 letters."""
    extra = {"old_policy": "sampler", "rollout_func": with_logprobs, "objective": EXACT}
    trainer = trained(letters_model, config(tmp_path, max_steps=1), **extra)
    [log] = [entry for entry in trainer.state.log_history if "loss" in entry]
    low, high = torch.tensor([-0.5, -0.1]).exp().tolist()
    assert log["sampler_ratio_min"] == pytest.approx(low, abs=1e-4)
    assert log["sampler_ratio_max"] == pytest.approx(high, abs=1e-4)
    assert log["ratio_max"] == pytest.approx(high, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({}, 2 * 3 * 2),
        ({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}, 2 * 3 * 8 + 2 * 2 * 8),
    ],
    ids=["in the loss", "apart"],
)
def test_no_forward_pass_is_made_for_the_old_policy(
    options: dict[str, Any], passes: int, letters_model: str, tmp_path: Path
) -> None:
    class Counting(MaxkTrainer):
        passes = 0

        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            Counting.passes += 1
            return super()._get_per_token_logps_and_entropies(*args, **kwargs)

    trained(letters_model, config(tmp_path, num_iterations=3, **options), kind=Counting, objective=EXACT)
    assert Counting.passes == passes


def test_off_policy_equals_on_policy_without_stale_samples(letters_model: str, tmp_path: Path) -> None:
    exact = trained(letters_model, config(tmp_path), objective=EXACT)
    loo = trained(letters_model, config(tmp_path), objective={"type": "bon_loo1", "k": 2})
    assert difference(weights(loo.model), weights(exact.model), weights(letters_model)) < ROUNDING


# ---- gradients
class Gradients(MaxkTrainer):
    """Keeps the gradient of every loss beside those of losses that a test writes out, on the same micro-batch."""

    def written_out(self, log_ratios: Tensor, mask: Tensor, inputs: dict[str, Any]) -> dict[str, Tensor]:
        """Means over completions by name; `log_ratios` [completions, tokens] are 0 where the mask is."""
        raise NotImplementedError

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        loss = super()._compute_loss(model, inputs)
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        log_ratios = (plain_logps(model, inputs) - inputs["old_per_token_logps"]) * mask
        got = self._gradient(loss)
        for name, mean in self.written_out(log_ratios, mask, inputs).items():
            self.pairs[name].append((got, self._gradient(mean / self.current_gradient_accumulation_steps)))
        return loss

    def _gradient(self, loss: Tensor) -> Tensor:
        parts = torch.autograd.grad(loss, list(self.model.parameters()), retain_graph=True)
        return torch.cat([part.flatten() for part in parts])


# ---- sequence-level ratios
class SequenceGradients(Gradients):
    def written_out(self, log_ratios: Tensor, mask: Tensor, inputs: dict[str, Any]) -> dict[str, Tensor]:
        of_completions = log_ratios.sum(-1)
        rewards = inputs["rewards"].view(-1, self.num_generations)
        advantages = self.objective(rewards, of_completions.detach().view_as(rewards)).flatten()
        return {"surrogate": -sequence_surrogate(of_completions, advantages, 0.2).mean()}


@pytest.mark.parametrize("rollout", [laid_down, with_tools])
def test_sequence_ratio_is_the_sequence_surrogate(rollout: Any, letters_model: str, tmp_path: Path) -> None:
    options = {"importance_sampling_level": "sequence", "loss_type": "luspo", "learning_rate": 0.003}
    args = config(tmp_path, num_iterations=3, **options)
    SequenceGradients.pairs = defaultdict(list)
    trained(letters_model, args, kind=SequenceGradients, objective=EXACT, rollout_func=rollout)
    pairs = SequenceGradients.pairs["surrogate"]
    assert len(pairs) == 2 * 3 * 2
    largest = max(wanted.norm() for _, wanted in pairs)
    for got, wanted in pairs:
        assert (got - wanted).norm() < ROUNDING * largest
    signals = [wanted.norm() > DIFFERENT * largest for _, wanted in pairs]
    assert sum(signals) >= 8  # a micro-batch in which everything is clipped has none


# ---- the KL to π_old
class PenaltyGradients(Gradients):
    """PPO's token surrogate with the KL written out, and the KL alone."""

    def written_out(self, log_ratios: Tensor, mask: Tensor, inputs: dict[str, Any]) -> dict[str, Tensor]:
        self.steps.append(self.state.global_step)
        surrogate = token_surrogate(log_ratios, inputs["advantages"], mask, 0.2)
        kl = ((log_ratios * log_ratios.exp() - log_ratios.exp() + 1) * mask).sum(-1)  # E_old[r log r − (r − 1)] = KL
        penalty = self.beta_given * kl
        return {name: (v / mask.sum(-1)).mean() for name, v in (("whole", penalty - surrogate), ("penalty", penalty))}


@pytest.mark.parametrize("rollout", [laid_down, with_tools])
def test_the_penalty_to_the_old_policy_is_its_kl(rollout: Any, letters_model: str, tmp_path: Path) -> None:
    kind = PenaltyGradients
    kind.pairs, kind.steps, kind.beta_given = defaultdict(list), [], 2.0
    options = {"num_iterations": 3, "learning_rate": 0.1, "loss_type": "grpo"}
    args = config(tmp_path, beta=2.0, use_bias_correction_kl=True, **options)
    extra = {"kind": kind, "kl_reference": "old", "objective": "bon_loo1", "rollout_func": rollout}
    trainer = trained(letters_model, args, **extra)
    largest = max(wanted.norm() for _, wanted in kind.pairs["whole"])
    for got, wanted in kind.pairs["whole"]:
        assert (got - wanted).norm() < ROUNDING * largest
    penalties = [wanted for _, wanted in kind.pairs["penalty"]]
    sizes = [(step % 3, float(one.norm() / largest)) for step, one in zip(kind.steps, penalties, strict=True)]
    assert len(sizes) == 2 * 3 * 2
    assert all(size < ROUNDING for iteration, size in sizes if iteration == 0)
    assert all(size > DIFFERENT for iteration, size in sizes if iteration > 0)
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert all("kl" not in entry for entry in log)
    assert [entry["kl_old"] > 1e-5 for entry in log] == [False, True, True] * 2


def test_the_penalty_to_the_old_policy_is_none_with_one_iteration(letters_model: str, tmp_path: Path) -> None:
    free = trained(letters_model, config(tmp_path))
    penalised = trained(letters_model, config(tmp_path, beta=5.0), kl_reference="old")
    assert difference(weights(free.model), weights(penalised.model), weights(letters_model)) < ROUNDING
    to_base = trained(letters_model, config(tmp_path, beta=5.0))
    assert difference(weights(free.model), weights(to_base.model), weights(letters_model)) > DIFFERENT


@pytest.mark.parametrize("adapted", [False, True], ids=["all weights", "adapters"])
def test_the_penalty_to_the_old_policy_takes_no_reference(adapted: bool, letters_model: str, tmp_path: Path) -> None:
    class Counting(MaxkTrainer):
        passes = 0

        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            Counting.passes += 1
            return super()._get_per_token_logps_and_entropies(*args, **kwargs)

    args = config(tmp_path, beta=0.1, num_iterations=3)
    adapters = LoraConfig(target_modules="all-linear") if adapted else None
    trainer = trained(letters_model, args, kind=Counting, kl_reference="old", peft_config=adapters)
    assert trainer.ref_model is None
    assert trainer.args.beta == 0.1
    assert Counting.passes == 2 * 3 * 2  # those of the losses


def test_hidden_tokens_do_not_reach_the_penalty(letters_model: str, tmp_path: Path) -> None:
    """A sampler says 0 of a tool's token, whose log-probability is below −100 here: exp of the difference overflows."""

    def rollout(prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
        output = with_tools(prompts, trainer)
        output["logprobs"] = [[None, 0.0, *[None] * (len(ids) - 2)] for ids in output["completion_ids"]]
        return output

    args = config(tmp_path, beta=0.1, temperature=0.001)
    trainer = trained(letters_model, args, kl_reference="old", old_policy="sampler", rollout_func=rollout)
    assert all(torch.isfinite(weight).all() for weight in weights(trainer.model))


def test_evaluation_goes_on_without_a_reference(letters_model: str, tmp_path: Path) -> None:
    args = config(tmp_path, beta=0.1, num_iterations=2, eval_strategy="steps", eval_steps=2)
    trainer = trained(letters_model, args, kl_reference="old")
    assert any("eval_max@1" in entry for entry in trainer.state.log_history)


# ---- vLLM, as far as it can be tried without it
class FakeEngine:
    """Stands in for TRL's colocated VLLMGeneration: completions from fixed words, n of them per request."""

    def __init__(self, generation_kwargs: dict[str, Any] | None, **_: Any) -> None:
        self.logprobs: int | None = 0
        self.generation_kwargs = generation_kwargs or {}
        self.requests: list[tuple[int, int, int | None]] = []  # number of prompts, n and logprobs of each call

    def sync_weights(self) -> None:
        pass

    def generate(
        self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any = None
    ) -> tuple[Any, Any, Any, Any]:
        n = self.generation_kwargs.get("n", 1)
        self.requests.append((len(prompts), n, self.logprobs))
        completions = [[prompt[0], 2 + i % 3, 1] for prompt in prompts for i in range(n)]
        outputs = [
            SimpleNamespace(outputs=[SimpleNamespace(logprobs=self._logprobs(ids)) for ids in completions[i : i + n]])
            for i in range(0, len(completions), n)
        ]
        return prompts, completions, *extract_logprobs(outputs)

    def _logprobs(self, ids: list[int]) -> list[dict[int, Any]] | None:
        if self.logprobs is None:
            return None
        return [{token: SimpleNamespace(rank=1, logprob=-1.0)} for token in ids]


@pytest.mark.parametrize(
    ("options", "extra", "asked"),
    [
        ({"vllm_importance_sampling_correction": False}, {}, None),
        ({}, {}, 0),
        ({"vllm_importance_sampling_mode": "token_truncate"}, {}, 0),
        ({"vllm_importance_sampling_correction": False}, {"old_policy": "sampler", "objective": EXACT}, 0),
    ],
    ids=["unused", "sequence correction", "token correction", "old policy"],
)
def test_vllm_gives_log_probabilities_only_where_they_are_used(
    options: dict[str, Any],
    extra: dict[str, Any],
    asked: int | None,
    letters_model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", FakeEngine)
    args = config(tmp_path, use_vllm=True, **options)
    trainer = make_trainer(letters_model, args, **{"rollout_func": None, **extra})
    trainer.train()
    assert set(trainer.vllm_generation.requests) == {(4, GROUP, asked)}
    for batch in trainer._buffered_inputs:  # a completion of FakeEngine begins as its prompt does
        first = batch["prompt_mask"].argmax(dim=1, keepdim=True)
        assert torch.equal(batch["completion_ids"][:, :1], batch["prompt_ids"].gather(1, first))
    batch = trainer._buffered_inputs[0]
    assert ("sampling_per_token_logps" in batch) == (asked is not None)
    assert ("importance_sampling_ratio" in batch) == (asked is not None and "old_policy" not in extra)


@pytest.mark.parametrize(
    ("prompts", "images", "expected"),
    [
        ([[2]] * 4 + [[3]] * 4, None, (2, 4)),
        ([[2]] * 4 + [[3]] * 2, None, (6, 1)),  # the rest of a group is in another process
        ([[2]] * 2 + [[3]] * 4 + [[2]] * 2, None, (8, 1)),
        ([[2]] * 4, [["image"]] * 4, (4, 1)),
    ],
    ids=["whole groups", "part of a group", "shifted groups", "images"],
)
def test_vllm_gets_one_request_per_group(prompts: list[list[int]], images: Any, expected: tuple[int, int]) -> None:
    given = {"detokenize": False}
    engine = FakeEngine(given)
    request_groups(engine)
    _, completions, *_ = engine.generate(prompts=prompts, images=images, num_generations=4)
    assert [request[:2] for request in engine.requests] == [expected]
    assert [completion[:1] for completion in completions] == prompts
    assert given == {"detokenize": False}


def test_trainings_that_start_together_take_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = []
    for _ in range(8):
        monkeypatch.delenv("MASTER_PORT", raising=False)
        own_port()
        ensure_master_addr_port()  # TRL's, when it starts vLLM
        ports.append(os.environ["MASTER_PORT"])
    assert len(set(ports)) == 8
    own_port()  # a launcher has set it
    assert os.environ["MASTER_PORT"] == ports[-1]


def test_engines_of_trl_get_a_cache_of_fixed_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those started within the context, whatever TRL passes besides."""
    monkeypatch.setattr("trl.generation.vllm_generation.LLM", dict, raising=False)
    started = []
    for size in (1.5, None):
        with fixed_cache(size):
            started.append(vllm_generation.LLM(seed=0))
    started.append(vllm_generation.LLM(seed=0))
    assert started == [{"seed": 0, "kv_cache_memory_bytes": 1_500_000_000}, {"seed": 0}, {"seed": 0}]


# ---- micro-batches
def padded(prompts: list[int], completions: list[int]) -> dict[str, Tensor]:
    """Sequences of these lengths as TRL lays them out; token ids count up from 1, padding is 0."""

    def rows(lengths: list[int], left: bool) -> Tensor:
        filled = [[*range(1, n + 1)] for n in lengths]
        width = max(lengths)
        return torch.tensor([[0] * (width - len(r)) + r if left else r + [0] * (width - len(r)) for r in filled])

    prompt_ids, completion_ids = rows(prompts, left=True), rows(completions, left=False)
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": (prompt_ids > 0).long(),
        "completion_ids": completion_ids,
        "completion_mask": (completion_ids > 0).long(),
        "ref_per_token_logps": -completion_ids.float(),
        "row": torch.arange(len(prompts)),
        "num_items_in_batch": torch.tensor(7),
    }


def shuffled(batch: dict[str, Tensor], order: list[int], parts: int) -> list[dict[str, Tensor]]:
    mixed = {key: value[order] if value.ndim else value for key, value in batch.items()}
    return split_tensor_dict(mixed, parts)


def test_microbatches_hold_similar_lengths_without_common_padding() -> None:
    batches = shuffled(padded([2, 3, 2, 1], [5, 1, 4, 2]), order=[3, 0, 2, 1], parts=2)
    short, long = by_length(batches, together=1)
    assert short["row"].tolist() == [1, 3]
    assert long["row"].tolist() == [2, 0]
    assert short["completion_ids"].tolist() == [[1, 0], [1, 2]]
    assert short["prompt_ids"].tolist() == [[1, 2, 3], [0, 0, 1]]
    assert long["completion_mask"].tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert long["prompt_mask"].tolist() == [[1, 1], [1, 1]]
    assert short["ref_per_token_logps"].tolist() == [[-1, 0], [-1, -2]]
    assert short["num_items_in_batch"] == 7


def test_groups_stay_together_in_the_order_of_generation() -> None:
    batches = shuffled(padded([2] * 6, [1, 6, 2, 2, 3, 1]), order=[5, 0, 4, 1, 2, 3], parts=3)
    arranged = by_length(batches, together=2)
    assert [batch["row"].tolist() for batch in arranged] == [[2, 3], [4, 5], [0, 1]]
    assert [batch["completion_ids"].shape[1] for batch in arranged] == [2, 3, 6]


# ---- ungraded and equal groups
@pytest.mark.parametrize("objective", ["grpo", "bon_mean", "bon_loo1"])
@pytest.mark.parametrize("value", [None, 0.0, 1.0])
def test_groups_without_signal_leave_the_policy_as_it_is(
    objective: str, value: float | None, letters_model: str, tmp_path: Path
) -> None:
    def flat(completions: list[str], **_: Any) -> list[float | None]:
        return [value for _ in completions]

    trainer = trained(letters_model, config(tmp_path, max_steps=1), objective=objective, rewards=flat)
    start = AutoModelForCausalLM.from_pretrained(letters_model)
    assert torch.equal(weights(trainer.model), weights(start))


def test_one_ungraded_completion_silences_its_group_only(letters_model: str, tmp_path: Path) -> None:
    def mostly(completions: list[str], **_: Any) -> list[float | None]:
        return [None if i == 1 else reward for i, reward in enumerate(count_a(completions))]

    trainer = trained(letters_model, config(tmp_path, max_steps=1), rewards=mostly)
    advantages = torch.tensor(list(trainer._logs["advantages"])).view(-1, GROUP)
    assert not advantages[0].any()
    assert advantages[1:].any(dim=1).all()
    assert weights(trainer.model).isfinite().all()
