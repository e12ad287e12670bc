"""Every training key reaches TRL, and the order of problems is that of the configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import tiny
from accelerate.commands.config.config_args import load_config_from_file
from transformers import LlamaForCausalLM

from maxk.config import EntropyBonus, Generator, Heldout, Lora, Training
from maxk.errors import UserError
from maxk.resources import launcher
from maxk.training.arguments import arguments, lora, milestones, schedule
from maxk.trl.vllm import UNUSED_UTILIZATION

TRAINING = Training(
    datasets=("any",), prompts_per_step=4, per_device_batch_size=8, num_generations=4, max_tokens=12, learning_rate=1e-3
)


def changed(**keys: Any) -> Training:
    return TRAINING.model_copy(update=keys)


# ---- the order of problems
def test_schedule_permutes_every_epoch_anew() -> None:
    order = schedule(changed(epochs=3.0), problems=8, seed=1)
    epochs = [order[i : i + 8] for i in (0, 8, 16)]
    assert all(sorted(epoch) == list(range(8)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert order == schedule(changed(epochs=3.0), problems=8, seed=1)
    assert order != schedule(changed(epochs=3.0), problems=8, seed=2)


@pytest.mark.parametrize(("epochs", "problems", "batches"), [(1.0, 10, 2), (0.5, 8, 1), (0.01, 8, 1), (2.0, 3, 2)])
def test_schedule_is_whole_batches_also_where_sizes_do_not_divide(epochs: float, problems: int, batches: int) -> None:
    order = schedule(changed(epochs=epochs), problems, seed=0)
    assert len(order) == batches * TRAINING.prompts_per_step
    assert set(order) <= set(range(problems))


# ---- arguments
@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("per_device_batch_size", 4, {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}),
        ("num_generations", 8, {"num_generations": 8, "steps_per_generation": 4}),
        ("max_tokens", 9, {"max_completion_length": 9}),
        ("temperature", 0.7, {"temperature": 0.7}),
        ("top_p", 0.9, {"top_p": 0.9}),
        ("learning_rate", 0.5, {"learning_rate": 0.5, "lr_scheduler_type": "constant_with_warmup"}),
        ("warmup_steps", 7, {"warmup_steps": 7}),
        ("kl_coefficient", 0.02, {"beta": 0.02, "use_bias_correction_kl": False}),
        ("kl_reference", "old", {"beta": 0.01, "use_bias_correction_kl": True}),
        ("clip", 0.1, {"epsilon": 0.1, "epsilon_high": None}),
        ("entropy_bonus", None, {"entropy_coef": 0.0, "use_adaptive_entropy": False}),
        (
            "entropy_bonus",
            EntropyBonus(coefficient=0.02),
            {"entropy_coef": 0.02, "use_adaptive_entropy": False},
        ),
        (
            "entropy_bonus",
            EntropyBonus(target=0.4, step=0.01, largest=0.5),
            {"entropy_coef": 0.0, "use_adaptive_entropy": True, "entropy_target": 0.4, "entropy_coef_delta": 0.01}
            | {"entropy_coef_max": 0.5},
        ),
        (
            "entropy_bonus",
            EntropyBonus(like="grpo", largest=0.5),
            {"use_adaptive_entropy": True, "entropy_coef_delta": 0.0, "entropy_target": 1e9}
            | {"entropy_coef": 0.0, "entropy_coef_min": -0.5, "entropy_coef_max": 0.5},
        ),
        ("ratio", "token", {"loss_type": "grpo", "importance_sampling_level": "token"}),
        ("ratio", "sequence", {"loss_type": "luspo", "importance_sampling_level": "sequence"}),
        ("max_grad_norm", 0.3, {"max_grad_norm": 0.3, "weight_decay": 0.0}),
        ("iterations", 3, {"num_iterations": 3, "max_steps": 4 * 3}),
        ("minibatches", 2, {"gradient_accumulation_steps": 1, "steps_per_generation": 2, "max_steps": 4 * 2}),
        ("checkpoint_every", 5, {"save_steps": 5}),
        ("precision", "bfloat16", {"bf16": True}),
        ("gradient_checkpointing", True, {"gradient_checkpointing": True}),
        ("torch_compile", True, {"torch_compile": True}),
        ("evaluation", Heldout(every=5, problems=9), {"eval_steps": 5, "per_device_eval_batch_size": 8}),
        (
            "generator",
            Generator(backend="vllm", gpu_memory_utilization=0.4, tensor_parallel=2, max_model_len=99),
            {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.4}
            | {"vllm_tensor_parallel_size": 2, "vllm_max_model_length": 99}
            | {"vllm_importance_sampling_correction": False, "generation_kwargs": {"detokenize": False}},
        ),
        (
            "generator",
            Generator(backend="vllm", kv_cache_gb=4, gpu_memory_utilization=0.4),
            {"vllm_gpu_memory_utilization": UNUSED_UTILIZATION},
        ),
        (
            "generator",
            Generator(backend="vllm", mode="server", url="http://node1:8000"),
            {"vllm_mode": "server", "vllm_server_base_url": "http://node1:8000", "generation_kwargs": None},
        ),
        (
            "generator",
            Generator(backend="vllm", importance_sampling="token_truncate", importance_sampling_max=2.0),
            {"vllm_importance_sampling_correction": True, "vllm_importance_sampling_mode": "token_truncate"}
            | {"vllm_importance_sampling_clip_max": 2.0},
        ),
    ],
)
def test_every_key_reaches_trl(key: str, value: Any, expected: dict[str, Any], tmp_path: Path) -> None:
    args = arguments(changed(**{key: value}), tmp_path, seed=5, prompts=16)
    assert {name: getattr(args, name) for name in expected} == expected
    assert (args.seed, args.disable_dropout, args.shuffle_dataset) == (5, True, False)


def test_whole_completions_have_no_importance_weights_on_the_kl(tmp_path: Path) -> None:
    args = arguments(changed(kl_reference="old", ratio="sequence"), tmp_path, seed=0, prompts=16)
    assert not args.use_bias_correction_kl


def test_steps_count_iterations(tmp_path: Path) -> None:
    """Checkpoints and evaluations fall between generation batches."""
    training = changed(iterations=3, checkpoint_every=2, evaluation=Heldout(every=5, problems=9))
    args = arguments(training, tmp_path, seed=0, prompts=16)
    assert (args.save_steps, args.eval_steps) == (6, 15)


def test_the_nucleus_reaches_generation(letters_model: str, tmp_path: Path) -> None:
    args = arguments(changed(top_p=0.8, temperature=0.6), tmp_path, seed=0, prompts=16)
    trainer = tiny.make_trainer(letters_model, args)
    assert (trainer.generation_config.top_p, trainer.generation_config.temperature) == (0.8, 0.6)


def test_adapters_are_those_of_the_configuration() -> None:
    assert lora(TRAINING) is None
    found = lora(changed(lora=Lora(rank=2, alpha=4, target_modules=("q_proj", "v_proj"))))
    assert (found.r, found.lora_alpha, found.target_modules) == (2, 4, {"q_proj", "v_proj"})


@pytest.mark.parametrize(("processes", "device_map"), [(1, "auto"), (2, None)])
def test_revision_and_device_map_reach_policy_and_reference(
    processes: int, device_map: str | None, letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out, TRL says `auto` where it sees no DDP and no DeepSpeed: on two GPUs under FSDP2 each process then spread
    both models over both, and the first forward pass ended in "tensors on cuda:0 and cuda:1"."""
    asked: list[tuple[str | None, str | None]] = []
    load = LlamaForCausalLM.from_pretrained.__func__

    def spy(cls: type, name: str, **kwargs: Any) -> Any:
        asked.append((kwargs.pop("revision", None), kwargs.pop("device_map")))
        return load(cls, name, **kwargs)

    monkeypatch.setattr(LlamaForCausalLM, "from_pretrained", classmethod(spy))
    on_gpu = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    monkeypatch.setattr("trl.trainer.utils.PartialState", lambda: on_gpu)  # on a CPU it never says `auto`
    args = arguments(changed(processes=processes), tmp_path, seed=0, prompts=8, revision="abc123")
    tiny.make_trainer(letters_model, args, processing_class=tiny.tokenizer(letters_model))
    assert asked == [("abc123", device_map)] * 2


# ---- the shipped accelerate files
@pytest.mark.parametrize("name", ["ddp", "fsdp2", "zero3"])
def test_shipped_accelerate_configs_are_what_accelerate_reads(name: str, root: Path) -> None:
    config = load_config_from_file(str(root / "config" / "accelerate" / f"{name}.yaml"))
    expected = {"ddp": "MULTI_GPU", "fsdp2": "FSDP", "zero3": "DEEPSPEED"}
    assert config.distributed_type == expected[name]
    assert config.mixed_precision == "no"


def test_the_configured_precision_decides_over_an_accelerate_file(tmp_path: Path) -> None:
    """The launcher's variable is set before the trainer's arguments, as in a process of `accelerate launch`."""
    file, program, seen = tmp_path / "own.yaml", tmp_path / "program.py", tmp_path / "seen"
    file.write_text("distributed_type: MULTI_CPU\nmixed_precision: bf16\nuse_cpu: true\nnum_processes: 1\n")
    program.write_text(f"import os; open({str(seen)!r}, 'w').write(os.environ['ACCELERATE_MIXED_PRECISION'])")
    launch = launcher._accelerate(changed(processes=1), str(file))
    subprocess.run([sys.executable, "-m", *launch, str(program)], check=True, cwd=tmp_path)
    with mock.patch.dict(os.environ, {"ACCELERATE_MIXED_PRECISION": seen.read_text()}):
        for precision, expected in {"float32": "no", "bfloat16": "bf16"}.items():
            found = arguments(changed(precision=precision), tmp_path, seed=0, prompts=8)
            assert found.mixed_precision == expected


@pytest.mark.parametrize(("prompts", "expected"), [(16 * 4, [4, 8, 12]), (6 * 4, [2, 3, 4])])
def test_milestones_are_evenly_spaced(prompts: int, expected: list[int]) -> None:
    assert milestones(TRAINING, prompts, 4) == expected
    assert milestones(TRAINING, prompts, 1) == []


def test_more_milestones_than_batches_are_refused() -> None:
    with pytest.raises(UserError, match="milestones=4 of a training of 3 generation batches; set at most 3"):
        milestones(TRAINING, 12, 4)
