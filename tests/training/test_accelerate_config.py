"""Accelerate files are read as accelerate reads them, and combinations that fail silently are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from maxk.artifacts import files
from maxk.config import Lora, Training, read_yaml
from maxk.errors import UserError
from maxk.training.accelerate_config import require_sound, sharding

TRAINING = Training(datasets=("any",), prompts_per_step=4, per_device_batch_size=8, num_generations=4)


def test_shipped_files(root: Path) -> None:
    found = [sharding(read_yaml(root / f"config/accelerate/{name}.yaml")) for name in ("ddp", "fsdp2", "zero3")]
    assert found == [("MULTI_GPU", False), ("FSDP", False), ("DEEPSPEED", False)]
    require_sound(TRAINING.model_copy(update={"accelerate": str(root / "config/accelerate/fsdp2.yaml")}), 2)


def test_missing_deepspeed_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = TRAINING.model_copy(update={"accelerate": str(root / "config/accelerate/zero3.yaml")})
    monkeypatch.setattr("maxk.training.accelerate_config.has_deepspeed", lambda: True)
    require_sound(training, 2)
    monkeypatch.setattr("maxk.training.accelerate_config.has_deepspeed", lambda: False)
    with pytest.raises(UserError, match=r"zero3.yaml needs DeepSpeed, .* pip install --no-build-isolation deepspeed=="):
        require_sound(training, 2)


@pytest.mark.parametrize("name", ["fsdp2", "zero3"])
def test_adapters_on_sharded_weights_are_refused(name: str, root: Path) -> None:
    file = f"{root}/config/accelerate/{name}.yaml"
    training = TRAINING.model_copy(update={"accelerate": file, "lora": Lora(), "processes": 2})
    with pytest.raises(UserError, match=r"training\.lora: adapters cannot be merged into weights that .* shards"):
        require_sound(training, 2)
    require_sound(training.model_copy(update={"accelerate": file.replace(name, "ddp")}), 2)


@pytest.mark.parametrize("name", ["fsdp2", "zero3"])
def test_a_precision_of_its_own_for_a_sharded_reference_is_refused(name: str, root: Path) -> None:
    file = f"{root}/config/accelerate/{name}.yaml"
    training = TRAINING.model_copy(update={"accelerate": file, "reference_precision": "bfloat16", "processes": 2})
    with pytest.raises(UserError, match=r"training\.reference_precision: .* shards the reference model"):
        require_sound(training, 2)
    require_sound(training.model_copy(update={"accelerate": file.replace(name, "ddp")}), 2)


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        ({"bf16": {"enabled": True}}, "bf16.enabled is True"),
        ({"bf16": {"enabled": False}}, "bf16.enabled is False"),
        ({"fp16": {"enabled": True}}, "fp16.enabled is True"),
        ({"bf16": {"enabled": "auto"}, "fp16": {"enabled": False}}, None),
        ({}, None),
    ],
)
def test_a_precision_in_a_deepspeed_file_is_refused(
    content: dict, refused: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr("maxk.training.accelerate_config.has_deepspeed", lambda: True)
    monkeypatch.setattr("maxk.training.accelerate_config.read_yaml", lambda path: read.append(path) or read_yaml(path))
    own, file = tmp_path / "ds.json", tmp_path / "zero.yaml"
    own.write_text(json.dumps(content))
    file.write_text(f"distributed_type: DEEPSPEED\ndeepspeed_config: {{deepspeed_config_file: {own}}}\n")
    training = TRAINING.model_copy(update={"accelerate": str(file), "processes": 2})
    if refused is None:
        require_sound(training, 2)
    else:
        with pytest.raises(UserError, match=rf'ds.json: {refused}; expected "auto", because training.precision'):
            require_sound(training, 2)
    assert read == [str(file), str(own)]


@pytest.mark.parametrize("name", ["fsdp2", "zero3"])
def test_sharding_without_gpus_is_refused(name: str, root: Path) -> None:
    """Accelerate would make whole copies, silently."""
    training = TRAINING.model_copy(update={"accelerate": f"{root}/config/accelerate/{name}.yaml", "processes": 2})
    with pytest.raises(UserError, match="over GPUs, and `gpus` is 0"):
        require_sound(training, 0)


@pytest.mark.parametrize(
    "fsdp",
    [
        {"fsdp_version": 2, "fsdp_cpu_ram_efficient_loading": True},
        {"fsdp_version": "2", "fsdp_cpu_ram_efficient_loading": "true"},
        {"fsdp_version": 2, "fsdp_cpu_ram_efficient_loading": 1},
        {"fsdp_version": 2},
        {"version": 2, "cpu_ram_efficient_loading": True},
    ],
    ids=str,
)
def test_a_reference_model_that_one_process_alone_would_hold_is_refused(fsdp: dict[str, Any], tmp_path: Path) -> None:
    training = sharded(tmp_path, fsdp)
    with pytest.raises(UserError, match="set fsdp_cpu_ram_efficient_loading: false"):
        require_sound(training, 2)
    for without in ({"kl_coefficient": 0.0}, {"kl_reference": "old"}):
        require_sound(training.model_copy(update=without), 2)


@pytest.mark.parametrize(
    "fsdp",
    [
        {"fsdp_version": 2, "fsdp_cpu_ram_efficient_loading": False},
        {"fsdp_version": 2, "fsdp_cpu_ram_efficient_loading": "no"},
        {"fsdp_version": 1, "fsdp_cpu_ram_efficient_loading": True},  # TRL hands the weights on
        {"fsdp_cpu_ram_efficient_loading": True},
    ],
    ids=str,
)
def test_a_reference_model_that_all_processes_hold_is_not_refused(fsdp: dict[str, Any], tmp_path: Path) -> None:
    require_sound(sharded(tmp_path, fsdp), 2)


def sharded(folder: Path, fsdp: dict[str, Any]) -> Training:
    files.write_json(folder / "sharded.yaml", {"distributed_type": "FSDP", "fsdp_config": fsdp})
    return TRAINING.model_copy(update={"accelerate": str(folder / "sharded.yaml"), "processes": 2})
