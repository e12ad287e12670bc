"""docs/results-pocket.md is made from files of the results alone."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from maxk import config as configuration
from maxk.artifacts import environment, files, records
from maxk.artifacts.records import Policy, Provenance
from maxk.errors import UserError
from maxk.reporting import figures

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "docs" / "study.py"
SUMMARY = "**maxk**\n\n## What was run\n\nThis.\n\n## Findings\n\n1. That.\n\n## Made with\n\n- Versions: numpy 2.3.5\n"
DATASETS = ("pocket-open", "pocket-rare")


def study(folder: Path, *policies: str, source: str = "0123") -> Path:
    """results/study in `folder`, with evaluated policies that were made by one version of the source."""
    config, results = configuration.experiment(ROOT / "config" / "study.yaml"), folder / "results" / "study"
    files.write_json(results / "config.json", config.model_dump(mode="json"))
    files.write_text(results / "summary.md", SUMMARY)
    for policy in policies:
        made = Policy(policy, policy, "model", environment={"source": source})
        files.write_policy(results / "policies" / policy / "policy.json", made)
        for dataset in DATASETS:
            write(results / "samples" / policy / dataset / "0.parquet", records.SAMPLE, source)
            write(results / "samples" / policy / dataset / "0.prompts.parquet", records.PROMPT)
            verdicts = results / "verdicts" / policy / dataset / "0.parquet"
            write(verdicts, records.VERDICT_AND_OUTPUTS, source)
            inputs = {"verdicts/0": files.digest(verdicts)}
            write(results / "scores" / policy / f"{dataset}.parquet", records.SCORE, inputs=inputs)
    return results


def write(path: Path, schema: Any, source: str | None = None, inputs: Mapping[str, str] | None = None) -> None:
    """An empty table with its provenance; as the real stages do (test_end_to_end)."""
    made = {} if source is None else {"source": source}
    provenance = Provenance("stage", "study", {}, inputs=dict(inputs or {}), environment=made)
    files.write_table(path, dict.fromkeys(schema.names, ()), schema, provenance)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """docs/study.py as a module that writes below `tmp_path`."""
    spec = importlib.util.spec_from_file_location("study_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "PAGE", tmp_path / "docs" / "results-pocket.md")
    return module


@pytest.fixture
def page(script: Any) -> Callable[[], str]:
    """Writes the page and returns its text."""

    def write() -> str:
        script.main(Path("results/study"))
        return str(script.PAGE.read_text())

    return write


def test_results_of_two_versions_of_the_source_are_refused(page: Callable[[], str], tmp_path: Path) -> None:
    results = study(tmp_path, "base", "grpo/seed0")
    assert page()
    write(results / "verdicts/grpo/seed0/pocket-rare/0.parquet", records.VERDICT_AND_OUTPUTS, "4567")
    with pytest.raises(UserError, match=r"0.parquet do not belong together: source is '0123' in one and '4567' in the"):
        page()


def test_scores_of_other_verdicts_or_of_none_are_refused(page: Callable[[], str], tmp_path: Path) -> None:
    results = study(tmp_path, "base")
    verdicts = results / "verdicts/base/pocket-rare/0.parquet"
    values = ("rare-0", 0, "fenced", ["passed"], "digest", ["output"])
    one = {name: [value] for name, value in zip(records.VERDICT_AND_OUTPUTS.names, values, strict=True)}
    files.write_table(verdicts, one, records.VERDICT_AND_OUTPUTS, files.read_provenance(verdicts))
    with pytest.raises(UserError, match=r"made from another version of .*pocket-rare/0.parquet"):
        page()
    verdicts.unlink()
    with pytest.raises(UserError, match=r"pocket-rare/0.parquet, which is no longer there"):
        page()


def test_statistics_must_be_those_that_this_version_makes(
    script: Any, page: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script.load, "load", lambda _: "scores")
    monkeypatch.setattr(script.estimates, "means", lambda *_: pd.DataFrame({"policy": ["base"], "mean": [0.25]}))
    path = study(tmp_path) / "statistics.csv"
    files.write_text(path, "policy,mean\nbase,0.25\n")
    assert page()
    files.write_text(path, "policy,mean\nbase,0.26\n")
    with pytest.raises(UserError, match=r"statistics.csv: not what this version of maxk makes of the scores; run"):
        page()


def test_a_folder_that_was_moved_is_refused_in_one_line(tmp_path: Path) -> None:
    study(tmp_path).rename(tmp_path / "moved")
    done = subprocess.run([sys.executable, SCRIPT, "moved"], cwd=tmp_path, capture_output=True, text=True)
    said = "study: moved: its paths begin with results/study; run this from the folder that holds it\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_the_page_names_the_commit_whose_source_made_the_results(page: Callable[[], str], tmp_path: Path) -> None:
    """The newest commit with that source; the script is of another."""
    module = tmp_path / "src" / "maxk" / "module.py"
    files.write_text(module, "ONE = 1\n")
    source = environment.source(package=module.parent)
    study(tmp_path, "base", source=source)
    first = commit(tmp_path)
    files.write_text(module, "ONE = 2\n")
    commit(tmp_path)
    text = page()
    assert f"of one version of maxk, revision `{first[:7]}` (source `{source}`)." in text
    assert f"This page is by source `{environment.source()}`" in text


def commit(folder: Path) -> str:
    """Commits src/ of a repository in `folder`; returns the commit's name."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for command in (["init", "-q"], ["add", "src"], [*who, "commit", "-q", "-m", "a"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_page_opens_on_the_answers(page: Callable[[], str], tmp_path: Path) -> None:
    results = study(tmp_path, "base", "grpo/seed0", "grpo/seed1", "grpo@1/seed0")
    config = configuration.experiment(ROOT / "config" / "study.yaml")
    assert (config.layout.root, config.seeds) == ("results/study", (0, 1, 2))
    first, second, third = config.experiments["entropy"].rules
    answers = [f"- **{answer}.** A − B at max@128: +0.123." for answer in (first.then, second.otherwise, third.then)]
    files.write_text(results / "experiments" / "entropy.md", "\n".join(["**entropy: title**", "", *answers]))
    files.write_text(tmp_path / "docs" / "results-pocket" / "stale.csv", "of an older run")
    text = page()
    said = f"| **{first.then}.** {second.otherwise}. **{third.then}.** |"
    assert f"| [{config.experiments['entropy'].question}](#entropy) {said}" in text
    assert "; 2 of 3 are.\n" in text
    assert f"and 1 of its {len(config.experiments)} further experiments" in text
    assert text.count("2 trainings and 4 evaluated policies") == 1
    order = ["## Answers", "## Main tables", "### Findings", "## Experiments", "## How these results were made"]
    assert order == sorted(order, key=text.index)
    assert all(f"results-pocket/{name}.png" in text for name in figures.FIGURES)
    for name, experiment in config.experiments.items():
        own = text.split(f"\n### `{name}`\n")[1].split("\n### ")[0]
        assert own.startswith(f"\n*{experiment.question}*\n")
        assert ("\nNot run." in own) == (name != "entropy")
    assert text.count("| Not run. |") == len(config.experiments) - 1
    assert answers[0] in text
    assert "entropy: title" not in text
    copied = {path.relative_to(tmp_path / "docs").as_posix() for path in (tmp_path / "docs").rglob("*/*.*")}
    assert copied == {f"results-pocket/{name}" for name in ("config.json", "summary.md", "experiments/entropy.md")}


def test_links_within_the_page_lead_to_its_headings(page: Callable[[], str], tmp_path: Path) -> None:
    study(tmp_path, "base")
    text = page()
    headings = {
        heading.strip("`").lower().replace(" ", "-") for heading in re.findall(r"^##+ (.+)$", text, re.MULTILINE)
    }
    assert {"answers", "offpolicy_study"} <= set(re.findall(r"\]\(\s*#([^)]+)\)", text)) <= headings
