"""docs/results-pocket.md is made from files of the results alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from maxk import config as configuration
from maxk.artifacts import files
from maxk.reporting import figures

ROOT = Path(__file__).parent.parent
SUMMARY = "**maxk**\n\n## What was run\n\nThis.\n\n## Findings\n\n1. That.\n"


def test_the_page_holds_summary_answers_and_questions(tmp_path: Path) -> None:
    config = configuration.experiment(ROOT / "config" / "study.yaml")
    assert (config.layout.root, config.seeds) == ("results/study", (0, 1, 2))
    results, docs = tmp_path / "results", tmp_path / "docs"
    files.write_json(results / "config.json", config.model_dump(mode="json"))
    files.write_text(results / "summary.md", SUMMARY)
    files.write_text(results / "experiments" / "entropy.md", "**entropy: title**\n\n- **It is.** By +0.123.\n")
    for policy in ("base", "grpo/seed0", "grpo/seed1", "grpo@1/seed0"):
        files.write_text(results / "policies" / policy / "policy.json", "{}")
        files.write_text(results / "scores" / policy / "pocket-open.parquet", "")
        files.write_text(results / "scores" / policy / "pocket-rare.parquet", "")
    files.write_text(docs / "results-pocket" / "stale.csv", "of an older run")
    shutil.copy(ROOT / "docs" / "study.py", docs)
    subprocess.run([sys.executable, docs / "study.py", results], check=True, cwd=tmp_path)
    page = (docs / "results-pocket.md").read_text()
    assert page.count("2 trainings, 4 evaluated policies") == 1
    assert f"and 1 of its {len(config.experiments)} further experiments" in page
    assert all(f"results-pocket/{name}.png" in page for name in figures.FIGURES)
    assert page.index("differences.png") < page.index("## Findings") < page.index("## Questions")
    for name, experiment in config.experiments.items():
        assert f"### {experiment.question}" in page
        assert (f"`{name}`: not run." in page) == (name != "entropy")
    assert "- **It is.** By +0.123." in page
    assert "entropy: title" not in page
    copied = {path.relative_to(docs).as_posix() for path in (docs / "results-pocket").rglob("*") if path.is_file()}
    assert copied == {f"results-pocket/{name}" for name in ("config.json", "summary.md", "experiments/entropy.md")}
