"""docs/results-pocket.md is made from files of the results alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from maxk import config as configuration
from maxk.artifacts import files, records
from maxk.artifacts.records import Policy, Provenance
from maxk.reporting import figures

ROOT = Path(__file__).parent.parent
SUMMARY = "**maxk**\n\n## What was run\n\nThis.\n\n## Findings\n\n1. That.\n"


def evaluate(results: Path, policy: str, source: str = "0123") -> None:
    """An evaluated policy, made by one version of the source."""
    environment = {"source": source}
    made = Policy(policy, policy, "model", environment=environment)
    files.write_policy(results / "policies" / policy / "policy.json", made)
    for dataset in ("pocket-open", "pocket-rare"):
        write(results / "samples" / policy / dataset / "0.parquet", records.SAMPLE, environment)
        write(results / "samples" / policy / dataset / "0.prompts.parquet", records.PROMPT, {})
        write(results / "verdicts" / policy / dataset / "0.parquet", records.VERDICT_AND_OUTPUTS, environment)
        write(results / "scores" / policy / f"{dataset}.parquet", records.SCORE, {"sandbox": "landlock"})


def write(path: Path, schema: Any, environment: dict[str, str]) -> None:
    """An empty table with its provenance; as the real stages do (test_end_to_end)."""
    source = Provenance("stage", "study", {}, environment=environment)
    files.write_table(path, dict.fromkeys(schema.names, ()), schema, source)


def write_page(folder: Path) -> tuple[int, str]:
    """Exit status and stderr of docs/study.py in a copy of docs/."""
    (folder / "docs").mkdir(exist_ok=True)
    script = shutil.copy(ROOT / "docs" / "study.py", folder / "docs")
    done = subprocess.run([sys.executable, script, folder / "results"], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_results_of_two_versions_of_the_source_are_refused(tmp_path: Path) -> None:
    config = configuration.experiment(ROOT / "config" / "study.yaml")
    files.write_json(tmp_path / "results" / "config.json", config.model_dump(mode="json"))
    evaluate(tmp_path / "results", "base")
    evaluate(tmp_path / "results", "grpo/seed0")
    files.write_text(tmp_path / "results" / "summary.md", SUMMARY)
    assert write_page(tmp_path) == (0, "")
    later = tmp_path / "results" / "verdicts" / "grpo" / "seed0" / "pocket-rare" / "0.parquet"
    write(later, records.VERDICT_AND_OUTPUTS, {"source": "4567"})
    status, said = write_page(tmp_path)
    assert (status, said.count("\n")) == (2, 1)
    assert "pocket-rare/0.parquet do not belong together: source is '0123' in one and '4567' in the other" in said


def test_the_page_holds_summary_answers_and_questions(tmp_path: Path) -> None:
    config = configuration.experiment(ROOT / "config" / "study.yaml")
    assert (config.layout.root, config.seeds) == ("results/study", (0, 1, 2))
    results, docs = tmp_path / "results", tmp_path / "docs"
    files.write_json(results / "config.json", config.model_dump(mode="json"))
    files.write_text(results / "summary.md", SUMMARY)
    files.write_text(results / "experiments" / "entropy.md", "**entropy: title**\n\n- **It is.** By +0.123.\n")
    for policy in ("base", "grpo/seed0", "grpo/seed1", "grpo@1/seed0"):
        evaluate(results, policy)
    files.write_text(docs / "results-pocket" / "stale.csv", "of an older run")
    assert write_page(tmp_path) == (0, "")
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
