"""Our numbers beside the published ones; directions only, where the tasks are others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_up import DATASET, Experiment

from maxk.config import HubBase
from maxk.reporting import comparison, estimates, tables
from maxk.reporting.load import load


def rows(made: Experiment) -> list[dict[str, Any]]:
    """The table's rows, blanks as None; its files are written, too."""
    scores = load(made.config)
    tables.COMPARISON.write(scores, made.config)
    frame = comparison.compare(scores, made.config)
    return estimates.records(frame.astype(object).where(frame.notna(), None))


def test_the_published_tables_agree_with_one_another() -> None:
    """Tables 2–4 repeat numbers of tables 5–14; a copying mistake would show."""
    published = comparison.published()
    assert len(published) == 632
    assert published.published.between(0, 1).all()
    cells = published.groupby(["policy", "paper_dataset", "metric", "k"]).published
    assert (cells.nunique() == 1).all()
    assert cells.first()["bon_offpolicy", "codecontests", "max", 128] == 0.718
    assert cells.first()["grpo", "codecontests", "max", 128] == 0.688


def test_generated_tasks_compare_directions_only(small: Experiment) -> None:
    made = rows(small)
    assert {row["difference"] for row in made} == {None}
    assert {row["compared"] for row in made} == {"directions only: generated tasks"}
    one = [r for r in made if (r["policy"], r["dataset"], r["metric"], r["k"]) == ("bon_mean", "easy", "max", 128)]
    value, base, grpo = one[:3]
    assert (value["ours"], value["published"], value["same_sign"]) == (0.875, 0.693, None)
    assert base["against"] == "base"
    assert (base["ours"], base["published"]) == (0.375, pytest.approx(0.693 - 0.710))
    assert base["same_sign"] == "no"
    assert grpo["against"] == "grpo"
    assert (grpo["ours"], grpo["published"]) == (0.25, pytest.approx(0.693 - 0.688))
    assert grpo["same_sign"] == "yes"
    assert "directions only: generated tasks" in Path("results/comparison.md").read_text()


def test_every_headline_cell_is_shown_with_its_counterpart(small: Experiment) -> None:
    """BoN mean on `easy` is above our base model, and below the paper's: the arrows point apart."""
    rows(small)
    text = comparison.cells_to_markdown(comparison.compare(load(small.config), small.config))
    assert "## max@128: ours · the paper's" in text
    assert "| Base model | 0.500 · 0.710 |" in text
    assert "| BoN mean | **0.875↑ · 0.693↓** |" in text
    written = Path("results/comparison.md").read_text()
    assert text in written
    assert "no difference to a published value is taken" in written


@pytest.mark.parametrize(
    ("synthetic", "model", "other"),
    [
        (True, comparison.PAPER_BASE, "generated tasks"),
        (False, "Qwen/Qwen2.5-Coder-0.5B-Instruct", "another base model"),
        (False, comparison.PAPER_BASE, ""),
    ],
)
def test_values_are_compared_only_for_the_paper_s_tasks_and_model(synthetic: bool, model: str, other: str) -> None:
    base = HubBase(source="hub", model=model)
    config = SimpleNamespace(base=base, datasets={"easy": SimpleNamespace(synthetic=synthetic)})
    assert comparison.otherness(config, "easy") == other  # type: ignore[arg-type]


def test_a_policy_without_scores_is_blank(small: Experiment) -> None:
    Path(small.config.layout.scores("bon_mean/seed0", "easy")).unlink()
    blank = [r for r in rows(small) if r["policy"] == "bon_mean" and r["dataset"] == "easy"]
    assert blank
    assert {(r["ours"], r["same_sign"], r["decided"]) for r in blank} == {(None, None, None)}


def test_datasets_without_a_role_in_the_paper_have_no_counterpart(experiment: Callable[..., Experiment]) -> None:
    made = experiment(datasets={"easy": DATASET})
    made.score("base", "easy", [0.5])
    assert rows(made) == []
    assert "no policy and dataset has a published counterpart" in Path("results/comparison.md").read_text()


# pandas warns where a frame without values decides about the types of another.
@pytest.mark.filterwarnings("error::FutureWarning")
def test_a_base_model_alone_has_values_and_no_directions(experiment: Callable[..., Experiment]) -> None:
    made = experiment(objectives={}).score_all({"base": {"easy": [0.0, 1.0], "hard": [1.0, 1.0]}})
    assert {(row["policy"], row["against"]) for row in rows(made)} == {("base", None)}
    text = Path("results/comparison.md").read_text()
    assert "| Base model | 0.500 · 0.317 | 1.000 · 0.070 |" in text
    assert "same sign" not in text
    assert "Arrows" not in text


@pytest.mark.filterwarnings("error::FutureWarning")
def test_policies_that_are_not_scored_yet_are_blank(experiment: Callable[..., Experiment]) -> None:
    made = experiment().score_all({"base": {"easy": [0.0, 1.0], "hard": [1.0, 1.0]}})
    assert {row["ours"] for row in rows(made) if row["against"]} == {None}


def test_the_page_says_which_differences_are_of_one_seed(experiment: Callable[..., Experiment]) -> None:
    said = "One training seed: no claim about methods, only about "
    made, rewards = experiment(seeds=[0, 1]), {"easy": [0.0, 0.5, 0.6], "hard": [0.5, 0.7, 1.0]}
    made.score_all(dict.fromkeys(("base", "grpo/seed0", "bon_mean/seed0"), rewards))
    rows(made)
    assert f"{said}these trained policies." in Path("results/comparison.md").read_text()
    made.score_all({"bon_mean/seed1": rewards})
    rows(made)
    assert f"{said}the trained policies that have no other." in Path("results/comparison.md").read_text()
    made.score_all({"grpo/seed1": rewards})
    rows(made)
    assert said not in Path("results/comparison.md").read_text()
