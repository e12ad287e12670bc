"""Objectives that a trainer accepts: every policy of the shipped configurations, none without a gradient."""

from __future__ import annotations

from pathlib import Path

import pytest

from maxk import config as configuration
from maxk.trl.options import as_objective

CONFIGS = sorted((Path(__file__).parents[2] / "config").glob("*.yaml"))


@pytest.mark.parametrize("path", [path for path in CONFIGS if path.stem in ("config", "mini", "paper")], ids=str)
def test_every_policy_of_a_shipped_configuration_can_be_trained(path: Path) -> None:
    config = configuration.experiment(path)
    for name, objective in config.every_objective.items():
        assert as_objective(objective.spec, config.training_of(name).num_generations)


def test_none_is_no_objective() -> None:
    with pytest.raises(TypeError, match=r"an objective is a type \('bon_loo1'\), .*, got None$"):
        as_objective(None, 8)  # type: ignore[arg-type]


def test_full_passes_that_are_counted_give_a_gradient() -> None:
    """Of rewards evenly spread over [0, 1] only one is a full pass, which is no majority."""
    assert as_objective({"type": "order_statistic", "k": 5, "statistic": "rank", "m": 3, "binary": True}, 8)
    with pytest.raises(ValueError, match="gives no gradient for groups of 8"):
        as_objective({"type": "bon_distill", "k": 1}, 8)
