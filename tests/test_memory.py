"""What jobs ask for grows with tests and weights, and the shipped experiments fit what they load."""

from __future__ import annotations

from pathlib import Path

from maxk import config as configuration
from maxk import memory
from maxk.config import Config


def shipped(defaults: dict, root: Path, name: str) -> Config:
    return configuration.parse(configuration.overlay(defaults, configuration.read_yaml(root / "config" / name)))


def test_the_papers_jobs_hold_seven_billion_weights_and_gigabytes_of_tests(defaults: dict, root: Path) -> None:
    paper = shipped(defaults, root, "paper.yaml")
    assert memory.sample(paper) > 2 * 15_200  # in bfloat16 on the way to the GPU, and for the check of weights
    assert memory.prepare(paper, "livecodebench") > memory.TESTS["livecodebench"] > memory.prepare(paper, "mbpp")
    whole = paper.model_copy(update={"sampling": paper.sampling.model_copy(update={"shards": 1})})
    assert memory.verify(whole) - memory.verify(paper) > memory.TESTS["livecodebench"]


def test_the_default_experiment_asks_for_little(defaults: dict) -> None:
    config = configuration.parse(defaults)
    asked = [memory.sample(config), memory.verify(config), *(memory.prepare(config, name) for name in config.datasets)]
    assert max(asked) <= 8_000


def test_the_size_of_a_model_is_no_part_of_a_result(defaults: dict, root: Path) -> None:
    mini = shipped(defaults, root, "mini.yaml")
    larger = mini.model_copy(update={"base": mini.base.model_copy(update={"parameters": 70})})
    assert larger.settings("base") == mini.settings("base")
    assert memory.sample(larger) > 100_000 > memory.sample(mini)
