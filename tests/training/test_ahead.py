"""Generation one batch ahead, with a server that notes what it is asked, when, and with which weights."""

from __future__ import annotations

import copy
import re
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tiny import GROUP, config, make_trainer, tokens
from transformers import TrainerCallback
from trl import GRPOTrainer

from maxk.trl.trainer import MaxkTrainer

SERVER = {"use_vllm": True, "vllm_mode": "server", "vllm_importance_sampling_correction": False}
EXACT = {"type": "bon_offpolicy_exact", "k": 2, "clamp_log_ratio": None}
PROMPTS = ["a", "b", "c", "d", "ab", "bc", "cd", "da", "ba", "cb", "dc", "ad"]  # three generation batches
PATIENCE_S = 60.0


class Server:
    """In place of TRL's client of a vLLM server: completions that begin as their prompts do, at probability 1/2."""

    def __init__(self, generation_kwargs: dict[str, Any] | None, model: Any, **_: Any) -> None:
        self.logprobs, self.generation_kwargs, self.model = 0, generation_kwargs or {}, model
        self.weights = -1  # optimiser steps of the weights that it has
        self.asked: list[tuple[list[list[int]], int, bool]] = []  # prompts, weights, whether in another thread
        self.drawing = threading.Lock()
        self.steps_done = 0

    def sync_weights(self) -> None:
        assert not self.drawing.locked(), "weights change while completions are drawn"
        self.weights = self.steps_done

    def generate(self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any = None) -> Any:
        with self.drawing:
            aside = threading.current_thread() is not threading.main_thread()
            assert (profiler is None) == aside  # TRL's measures one call
            self.asked.append(([list(prompt) for prompt in prompts], self.weights, aside))
            completions = [[prompt[0], 2 + i % 3, 1] for i, prompt in enumerate(prompts)]
            return prompts, completions, [[[-0.7]] * 3 for _ in completions], [[[0]] * 3 for _ in completions]


class CountSteps(TrainerCallback):
    def __init__(self) -> None:
        self.server: Any = None

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.server.steps_done += 1


def ahead(
    model: str, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: type = Server, **options: Any
) -> GRPOTrainer:
    """A trainer over PROMPTS that generates ahead."""
    monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", kind)
    count = CountSteps()
    extra = {"objective": EXACT, "old_policy": "sampler", "generate_ahead": True, "rollout_func": None}
    trainer = make_trainer(model, config(folder, **SERVER, **options), callbacks=[count], **extra)
    trainer.train_dataset = Dataset.from_dict({"prompt": PROMPTS, "problem_id": PROMPTS})
    count.server = trainer.vllm_generation
    return trainer


def batches(trainer: GRPOTrainer) -> list[list[list[int]]]:
    """Token ids of the prompts of each generation batch, once per completion."""
    ids = [tokens(trainer.processing_class, prompt) for prompt in PROMPTS]
    return [[one for one in ids[i : i + 4] for _ in range(GROUP)] for i in range(0, len(ids), 4)]


@pytest.mark.parametrize("iterations", [1, 2])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_each_batch_is_drawn_once_from_the_policy_of_a_batch_ago(
    iterations: int, accumulated: int, letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"num_iterations": iterations, "max_steps": 3 * iterations, "gradient_accumulation_steps": accumulated}
    options |= {"per_device_train_batch_size": 16 // accumulated}
    trainer = ahead(letters_model, tmp_path, monkeypatch, **options)
    trainer.train()
    assert [asked[0] for asked in trainer.vllm_generation.asked] == batches(trainer)
    assert [asked[1:] for asked in trainer.vllm_generation.asked] == [(0, False), (0, True), (iterations, True)]
    for batch in trainer._buffered_inputs:
        assert torch.equal(batch["completion_ids"][:, 0], batch["prompt_ids"].gather(1, first_of(batch))[:, 0])
        shown = batch["old_per_token_logps"][batch["completion_mask"].bool()]
        assert torch.equal(shown, torch.full_like(shown, -0.7))


def first_of(batch: dict[str, Any]) -> torch.Tensor:
    return batch["prompt_mask"].argmax(dim=1, keepdim=True)


def test_the_next_batch_is_drawn_while_this_one_trains(
    letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither could end if the other had to end first."""
    trains, drawn = threading.Event(), threading.Event()

    class Slow(Server):
        def generate(self, *args: Any, **kwargs: Any) -> Any:
            if self.asked:
                assert trains.wait(PATIENCE_S)
            found = super().generate(*args, **kwargs)
            if len(self.asked) > 1:
                drawn.set()
            return found

    trainer = ahead(letters_model, tmp_path, monkeypatch, kind=Slow, max_steps=3)
    loss = trainer._compute_loss

    def waiting(*args: Any, **kwargs: Any) -> Any:
        trains.set()
        assert drawn.wait(PATIENCE_S)
        return loss(*args, **kwargs)

    trainer._compute_loss = waiting
    trainer.train()
    assert trainer.state.global_step == 3


def test_an_epoch_begins_with_a_batch_of_the_current_policy(
    letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = ahead(letters_model, tmp_path, monkeypatch, max_steps=6)
    trainer.train()
    assert [asked[0] for asked in trainer.vllm_generation.asked] == 2 * batches(trainer)
    assert [asked[1] for asked in trainer.vllm_generation.asked] == [0, 0, 1, 3, 3, 4]


def test_evaluation_uses_the_current_policy_and_keeps_what_was_drawn(
    letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 16, "max_steps": 3}
    trainer = ahead(letters_model, tmp_path, monkeypatch, **options)
    trainer.train()
    asked = trainer.vllm_generation.asked
    trained_on = [one for one in asked if one[0] in batches(trainer)]
    assert [one[0] for one in trained_on] == batches(trainer)
    assert [one[1] for one in asked if one not in trained_on] == [1, 2, 3]


def test_a_resumed_training_goes_on(letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first batch is of the policy it resumes with."""
    ahead(letters_model, tmp_path, monkeypatch, save_strategy="steps", save_steps=1, max_steps=1).train()
    trainer = ahead(letters_model, tmp_path, monkeypatch, max_steps=3)
    trainer.vllm_generation.steps_done = 1
    trainer.train(resume_from_checkpoint=True)
    assert [asked[0] for asked in trainer.vllm_generation.asked] == batches(trainer)[1:]
    assert [asked[1] for asked in trainer.vllm_generation.asked] == [1, 1]


@pytest.mark.parametrize(
    ("steps", "batches_asked"), [(2, 2), (1, 1)], ids=["before the epoch ends", "after the first batch"]
)
def test_nothing_is_drawn_beyond_the_end(
    steps: int, batches_asked: int, letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = ahead(letters_model, tmp_path, monkeypatch, max_steps=steps)
    trainer.train()
    assert [asked[0] for asked in trainer.vllm_generation.asked] == batches(trainer)[:batches_asked]


def test_a_second_training_begins_anew(letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = ahead(letters_model, tmp_path, monkeypatch, max_steps=2)
    trainer.train()
    trainer._step = trainer.vllm_generation.steps_done = 0
    trainer.train()
    assert [asked[0] for asked in trainer.vllm_generation.asked] == 2 * batches(trainer)[:2]
    assert [asked[1:] for asked in trainer.vllm_generation.asked[2:]] == [(0, False), (0, True)]


def test_several_steps_on_parts_of_a_batch(letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "steps_per_generation": 2}
    trainer = ahead(letters_model, tmp_path, monkeypatch, max_steps=6, **options)
    trainer.train()
    assert [asked[0] for asked in trainer.vllm_generation.asked] == batches(trainer)
    assert [asked[1] for asked in trainer.vllm_generation.asked] == [0, 0, 2]


def test_evaluation_takes_nothing_that_was_drawn_ahead(
    letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for the very prompts of the next batch."""
    options = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 16, "max_steps": 2}
    trainer = ahead(letters_model, tmp_path, monkeypatch, **options)
    shuffled = [*PROMPTS[6:8], *PROMPTS[4:6]]  # TRL's order of evaluation makes them the next batch's
    trainer.eval_dataset = Dataset.from_dict({"prompt": shuffled, "problem_id": shuffled})
    trainer.train()
    asked = trainer.vllm_generation.asked
    assert [one[0] for one in asked] == [batches(trainer)[i] for i in (0, 1, 1, 1)]
    assert [one[1:] for one in asked] == [(0, False), (0, True), (1, False), (2, False)]


def test_an_error_of_the_server_ends_the_training(
    letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Server):
        def generate(self, *args: Any, **kwargs: Any) -> Any:
            if self.asked:
                raise ConnectionError("the server is gone")
            return super().generate(*args, **kwargs)

    trainer = ahead(letters_model, tmp_path, monkeypatch, kind=Failing, max_steps=3)
    with pytest.raises(ConnectionError, match="the server is gone"):
        trainer.train()
    assert trainer.state.global_step == 1


def test_samples_of_an_older_policy_drift(letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server states the probabilities that the policy had, so only a batch of an older policy has other ratios."""

    class Honest(Server):
        def generate(self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any = None) -> Any:
            _, completions, _, ids = super().generate(prompts, images, num_generations, profiler)
            return prompts, completions, [self.logps(p, c) for p, c in zip(prompts, completions, strict=True)], ids

        def sync_weights(self) -> None:
            super().sync_weights()
            self.copy = copy.deepcopy(self.model)

        @torch.no_grad()
        def logps(self, prompt: list[int], completion: list[int]) -> list[list[float]]:
            logits = self.copy(torch.tensor([prompt + completion]), use_cache=False).logits
            found = logits[0, len(prompt) - 1 : -1].log_softmax(-1).gather(-1, torch.tensor(completion)[:, None])
            return found.tolist()

    trainer = ahead(letters_model, tmp_path, monkeypatch, kind=Honest, max_steps=3)
    trainer.train()
    drift = [entry["ratio_max"] for entry in trainer.state.log_history if "ratio_max" in entry]
    assert drift[0] == pytest.approx(1.0, abs=1e-4)
    assert all(value > 1.01 for value in drift[1:])
    assert all(one != other for one, other in pairwise(drift))


@pytest.mark.parametrize(
    ("options", "extra", "message"),
    [
        ({}, {}, "needs a vLLM server"),
        ({**SERVER, "vllm_mode": "colocate"}, {"old_policy": "sampler"}, "needs a vLLM server"),
        (SERVER, {"old_policy": "sampler"}, "no rollout_func"),
        (SERVER, {"rollout_func": None}, "it needs old_policy='sampler'"),
        (SERVER, {"rollout_func": None, "old_policy": "sampler", "tools": [len]}, "it works without tools"),
    ],
    ids=["no vLLM", "colocated", "rollout function", "ratios to the trainer", "tools"],
)
def test_what_cannot_run_ahead_is_refused(
    options: dict[str, Any], extra: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make_trainer("no-such-model", config(tmp_path, **options), kind=MaxkTrainer, generate_ahead=True, **extra)


def test_several_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = config(tmp_path, **SERVER)
    monkeypatch.setattr(type(args), "world_size", 2)
    with pytest.raises(ValueError, match="one training process, not with 2"):
        make_trainer("no-such-model", args, generate_ahead=True, old_policy="sampler", rollout_func=None)
