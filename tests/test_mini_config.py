"""`config/mini.yaml` continues the units in docs/results-mini/planned (docs/plan-mini.md)."""

from __future__ import annotations

from maxk import config as configuration
from pipeline import ROOT


def test_the_shipped_configuration_has_the_settings_of_the_planned_units() -> None:
    units = configuration.load(ROOT / "docs/results-mini/planned/config.json")
    shipped = configuration.experiment(ROOT / "config/mini.yaml")
    for objective in units.objectives:
        assert shipped.settings("train", objective=objective) == units.settings("train", objective=objective)
    for stage in ("sample", "verify", "score"):
        assert shipped.settings(stage) == units.settings(stage)
