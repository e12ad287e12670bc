"""Experiments in an empty working directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_up import Experiment


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Experiment]:
    """Makes experiments in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return Experiment


@pytest.fixture
def small(experiment: Callable[..., Experiment]) -> Experiment:
    """Two datasets of four problems and three policies, all with constant rewards: means are known by eye."""
    return experiment().score_all(
        {
            "base": {"easy": [0.0, 0.5, 0.5, 1.0], "hard": [0.0, 0.0, 0.0, 0.25]},
            "grpo/seed0": {"easy": [0.5, 0.5, 0.5, 1.0], "hard": [0.0, 0.0, 0.25, 0.25]},
            "bon_mean/seed0": {"easy": [0.5, 1.0, 1.0, 1.0], "hard": [0.0, 0.0, 0.0, 0.5]},
        }
    )
