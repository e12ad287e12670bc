"""The committed units of the planned mini run fit today's configuration, so that the run goes on from them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from maxk import cli

ROOT = Path(__file__).parent.parent
PLANNED = ROOT / "docs/results-mini/planned"


def test_planned_units_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is made of the scores of every policy; it refuses those of other settings."""
    shutil.copytree(PLANNED, tmp_path / "results/mini")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["table", "statistics", "--config", "results/mini/config.json"]) == 0
    rows = (tmp_path / "results/mini/statistics.csv").read_text(encoding="utf-8").splitlines()[1:]
    trained = {json.loads(path.read_text())["name"].split("/")[0] for path in PLANNED.rglob("policy.json")}
    assert {row.split(",")[0] for row in rows} == trained
