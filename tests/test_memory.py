"""Jobs ask for the memory of their tests and weights."""

from __future__ import annotations

from pathlib import Path

from maxk import config as configuration
from maxk.config import Config
from maxk.resources import memory


def shipped(defaults: dict, root: Path, name: str) -> Config:
    return configuration.parse(configuration.overlay(defaults, configuration.read_yaml(root / "config" / name)))


def test_the_paper_experiment(defaults: dict, root: Path) -> None:
    paper = shipped(defaults, root, "paper.yaml")
    assert memory.sample(paper) > 2 * 15_200  # 7.6 billion weights in 16 bits, and a copy
    assert memory.prepare(paper, "livecodebench") == 34_000
    assert memory.prepare(paper, "mbpp") == 4_000
    # 8 processes with 15 GB of CodeContests' tests and 16 programs each; 20 bytes per weight.
    assert memory.train(paper, "grpo") == 8 * (4_000 + 15_000 + 16 * 1_000) + 7.6e9 * 20 / 1e6
    partitions = configuration.read_yaml(root / "workflow/profiles/slurm/partitions.yaml")["partitions"]
    assert 2 * memory.train(paper, "grpo") < partitions["gpu"]["max_mem_mb"]  # the second attempt


def test_shards_share_the_tests(defaults: dict, root: Path) -> None:
    paper = shipped(defaults, root, "paper.yaml")
    whole = paper.model_copy(update={"sampling": paper.sampling.model_copy(update={"shards": 1})})
    assert memory.verify(whole) - memory.verify(paper) > 30_000 / 2


def test_the_default_experiment_is_small(defaults: dict) -> None:
    config = configuration.parse(defaults)
    asked = [memory.sample(config), memory.verify(config), *(memory.prepare(config, name) for name in config.datasets)]
    assert max(*asked, memory.train(config, "grpo")) < 9_000


def test_the_size_of_a_model_is_no_part_of_a_result(defaults: dict, root: Path) -> None:
    mini = shipped(defaults, root, "mini.yaml")
    larger = mini.model_copy(update={"base": mini.base.model_copy(update={"parameters": 70})})
    assert larger.settings("base") == mini.settings("base")
    assert memory.sample(larger) > 100_000 > memory.sample(mini)
