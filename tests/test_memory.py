"""What jobs ask for grows with tests and weights, and the shipped experiments fit what they load."""

from __future__ import annotations

from pathlib import Path

import pytest

from maxk import config as configuration
from maxk.artifacts import files
from maxk.config import Config, Lora, PretrainedBase
from maxk.data import SOURCES
from maxk.resources import memory
from maxk.training import pretrain


def shipped(defaults: dict, root: Path, name: str) -> Config:
    return configuration.parse(configuration.overlay(defaults, configuration.read_yaml(root / "config" / name)))


def with_training(config: Config, **changes: object) -> Config:
    return config.model_copy(update={"training": config.training.model_copy(update=changes)})


def test_the_papers_jobs_hold_seven_billion_weights_and_gigabytes_of_tests(defaults: dict, root: Path) -> None:
    paper = shipped(defaults, root, "paper.yaml")
    assert memory.sample(paper) > 2 * 15_200  # in bfloat16 on the way to the GPU, and for the check of weights
    assert memory.prepare(paper, "livecodebench") > SOURCES["livecodebench"].tests_mb > memory.prepare(paper, "mbpp")
    whole = paper.model_copy(update={"sampling": paper.sampling.model_copy(update={"shards": 1})})
    assert memory.verify(whole) - memory.verify(paper) > SOURCES["livecodebench"].tests_mb


def test_a_7b_is_read_by_every_process_or_by_the_first_alone(
    defaults: dict, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    paper = shipped(defaults, root, "paper.yaml")
    one_by_one = 8 * (2 * memory.PROCESS + 15_000 + 16 * 1_000)  # engine, tests of CodeContests, graded programs
    assert memory.train(paper, "grpo") == one_by_one + 7.6 * (8_000 + 12_000)  # 464 GB: two models, a checkpoint
    for name in ("ddp", "fsdp2"):
        copies = with_training(paper, accelerate=f"config/accelerate/{name}.yaml")
        assert memory.train(copies, "grpo") == one_by_one + 7.6 * (8 * 8_000 + 12_000)  # 890 GB
        partitions = configuration.read_yaml(root / "workflow/profiles/slurm/partitions.yaml")["partitions"]
        assert memory.train(copies, "grpo") < partitions["gpu"]["max_mem_mb"]


def test_half_a_billion_weights_on_one_gpu(defaults: dict, root: Path) -> None:
    mini = shipped(defaults, root, "mini.yaml")
    assert memory.train(mini, "grpo") == memory.PROCESS + 6 * 1_000 + 0.5 * (8_000 + 12_000)  # 20 GB
    without_reference = with_training(mini, kl_coefficient=0.0)
    assert memory.train(mini, "grpo") - memory.train(without_reference, "grpo") == 0.5 * 4_000
    on_the_cpu = mini.model_copy(update={"gpus": 0})
    assert memory.train(on_the_cpu, "grpo") - memory.train(mini, "grpo") == 0.5 * 12_000
    adapters = with_training(mini, lora=Lora())
    assert memory.train(adapters, "grpo") == memory.PROCESS + 6 * 1_000 + 0.5 * 8_000


@pytest.mark.parametrize(
    "content",
    [
        {
            "distributed_type": "FSDP",
            "fsdp_config": {"fsdp_cpu_ram_efficient_loading": True, "fsdp_offload_params": True},
        },
        {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3, "offload_optimizer_device": "cpu"}},
    ],
)
def test_state_that_is_moved_off_the_gpu_is_asked_for(
    content: dict, defaults: dict, root: Path, tmp_path: Path
) -> None:
    paper = shipped(defaults, root, "paper.yaml")
    files.write_json(tmp_path / "accelerate.yaml", content)
    moved = with_training(paper, accelerate=str(tmp_path / "accelerate.yaml"))
    sharded = with_training(paper, accelerate=str(root / "config/accelerate/zero3.yaml"))
    assert memory.train(moved, "grpo") - memory.train(sharded, "grpo") == pytest.approx(7.6 * 12_000)


def test_weights_of_a_pretrained_base_are_counted(defaults: dict) -> None:
    config = configuration.parse(defaults)
    assert isinstance(config.base, PretrainedBase)
    tokenizer = pretrain.learn_tokenizer([("a b", "print(1)\n")], 320)
    model = pretrain.build_model(config.base.architecture, tokenizer)
    shape = config.base.architecture.model_copy(update={"vocabulary": len(tokenizer)})
    assert memory.parameters(shape) == model.num_parameters()


def test_the_default_experiment_asks_for_little(defaults: dict) -> None:
    config = configuration.parse(defaults)
    asked = [memory.sample(config), memory.verify(config), *(memory.prepare(config, name) for name in config.datasets)]
    asked.append(memory.train(config, "grpo"))
    assert max(asked) < 9_000


def test_the_size_of_a_model_is_no_part_of_a_result(defaults: dict, root: Path) -> None:
    mini = shipped(defaults, root, "mini.yaml")
    larger = mini.model_copy(update={"base": mini.base.model_copy(update={"parameters": 70})})
    assert larger.settings("base") == mini.settings("base")
    assert memory.sample(larger) > 100_000 > memory.sample(mini)
