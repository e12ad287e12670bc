"""What a run prints last: the headline table, one sentence and what to open."""

from __future__ import annotations

from pathlib import Path

import pytest

from maxk.config import Config
from maxk.reporting import exit_report

MARKDOWN = """**Table 2: max@16 of all policies**

| Method | mean |
| :--- | ---: |
| Base model | <u>0.500</u> |
| GRPO | **0.750** |

Problems: 3.
"""


@pytest.fixture
def config(seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.chdir(tmp_path)
    Path(seconds.layout.root).mkdir(parents=True)
    return seconds


def write(config: Config, *rows: str) -> None:
    Path(config.layout.table("table2", "md")).write_text(MARKDOWN)
    Path(config.layout.table("table2")).write_text("\n".join(["policy,label,d,mean", *rows]) + "\n")


def test_a_run_that_made_the_table_ends_with_it(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    write(config, "base,Base model,0.5,0.5", "grpo,GRPO,0.75,0.75")
    Path(config.layout.report).write_text("<html>")
    exit_report.success(config)
    said = capsys.readouterr().err
    assert "Table 2: max@16 of all policies" in said
    assert "Problems" not in said  # notes are left out
    assert said.splitlines()[-2:] == [
        "max@16, mean over datasets: GRPO, 0.750, is the best policy; Base model: 0.500.",
        "maxk: done; open results/seconds/report.html",
    ]


def test_the_best_may_be_the_base_model_and_a_row_may_be_blank(config: Config) -> None:
    write(config, "base,Base model,0.5,0.5", "grpo,GRPO,,")
    assert exit_report.headline(config) == "max@16, mean over datasets: Base model, 0.500, is the best policy."


def test_a_run_that_made_no_table_names_the_folder(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    exit_report.success(config)
    assert capsys.readouterr().err == "maxk: done; open results/seconds/\n"
