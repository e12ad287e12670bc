"""The summary says what its rule finds in the paired tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up import Experiment, write_statistics

from maxk import cli
from maxk.errors import UserError
from maxk.objectives import OBJECTIVES
from maxk.reporting import summary
from maxk.reporting.load import load

LEAD = 0.03 + 0.1 * np.sin(np.arange(12.0))


def scored(experiment: Callable[..., Experiment], grpo: float, bon: float) -> Experiment:
    """Twelve problems a dataset; policies differ from the base model by constants, so intervals have no width."""
    made, rewards = experiment(), np.linspace(0.2, 0.7, 12)
    for policy, offset in (("base", 0.0), ("grpo/seed0", grpo), ("bon_mean/seed0", bon)):
        for dataset in ("easy", "hard"):
            made.score(policy, dataset, rewards + offset)
    write_statistics(made)
    return made


def text_of(made: Experiment) -> str:
    summary.write(load(made.config), made.config)
    return Path("results/summary.md").read_text()


def test_findings_follow_the_numbers(experiment: Callable[..., Experiment]) -> None:
    text = text_of(scored(experiment, grpo=-0.1, bon=0.2))
    assert "BoN mean has the highest mean max@128, 0.650. It is above GRPO (+0.300 [no spread]) and " in text
    assert "and the base model (+0.200 [no spread])." in text
    assert "lowers max@1 (−0.100 [no spread]); lowers max@128" in text
    assert "Other policies against GRPO at max@128: above 1 (BoN mean), below none, undecided none." in text


def test_the_opposite_numbers_give_the_opposite_findings(experiment: Callable[..., Experiment]) -> None:
    text = text_of(scored(experiment, grpo=0.2, bon=0.1))
    assert "It is above the second, BoN mean (+0.100 [no spread]) and the base model (+0.200 [no spread])." in text
    assert "raises max@1" in text
    assert "Other policies against GRPO at max@128: above none, below 1 (BoN mean), undecided none." in text


def test_lists_of_policies_stay_apart_where_a_label_has_a_comma(experiment: Callable[..., Experiment]) -> None:
    made = experiment(
        objectives={"grpo": {"type": "grpo"}, "grpo_binary": {"type": "grpo_binary"}, "maxrl": {"type": "maxrl"}}
    )
    for policy, offset in (("base", 0.0), ("grpo/seed0", 0.0), ("grpo_binary/seed0", 0.1), ("maxrl/seed0", 0.2)):
        for dataset in ("easy", "hard"):
            made.score(policy, dataset, np.linspace(0.2, 0.7, 12) + offset)
    write_statistics(made)
    assert "above 2 (GRPO, binary reward; MaxRL), below none" in text_of(made)


def test_labels_of_objectives_have_no_commas() -> None:
    """But for the paper's own names of rows."""
    assert [kind.label for kind in OBJECTIVES.values() if "," in kind.label] == ["GRPO, binary reward"]


def test_a_difference_counts_after_the_correction_for_several(experiment: Callable[..., Experiment]) -> None:
    """Its own interval excludes zero; with two policies compared to GRPO, that is not enough."""
    made = experiment(
        objectives={"grpo": {"type": "grpo"}, "bon_mean": {"type": "bon_mean", "k": 4}, "maxrl": {"type": "maxrl"}}
    )
    level, noise = np.linspace(0.2, 0.7, 12), np.tile([0.1, -0.1], 6)
    for policy, offset in (("base", 0.0), ("grpo/seed0", 0.0), ("bon_mean/seed0", noise), ("maxrl/seed0", LEAD)):
        for dataset in ("easy", "hard"):
            made.score(policy, dataset, level + offset)
    write_statistics(made)
    tests = pd.read_csv("results/paired_tests.csv").query("comparison == 'vs grpo' and policy == 'maxrl'")
    [test] = tests.query("dataset == 'mean' and metric == 'max' and k == 128").to_dict("records")
    assert test["low"] > 0
    assert test["p_mean"] < 0.05 < test["p_mean_holm"]
    assert "MaxRL has the highest mean max@128, 0.483. It is not distinguishable from" in text_of(made)
    assert "above none, below none, undecided 2 (BoN mean; MaxRL)" in text_of(made)


def test_equal_policies_are_undecided(experiment: Callable[..., Experiment]) -> None:
    text = text_of(scored(experiment, grpo=0.0, bon=0.0))
    assert "Base model, GRPO and BoN mean share the highest mean max@128, 0.450." in text
    assert "is not shown to change max@1" in text
    assert "undecided 1 (BoN mean)" in text


def test_the_table_holds_means_with_intervals_and_blanks(small: Experiment) -> None:
    Path(small.config.layout.scores("bon_mean/seed0", "easy")).unlink()
    write_statistics(small)
    text = text_of(small)
    assert re.search(r"\| GRPO \| 0\.375 \[0\.\d{3}, 0\.\d{3}\] \| 0\.375 \[", text)
    assert "| BoN mean | – | – | – | – |" in text
    assert "- BoN mean on easy: no scores." in text
    assert "- Not the paper's setting (generated tasks)" in text
    assert "- One training seed: no claim about methods" in text


@pytest.mark.parametrize(
    ("seeds", "interval", "trained", "limit"),
    [
        (
            [0],
            "problems",
            "seed: 0 (of 2 configured)",
            "One training seed: no claim about methods, only about these trained",
        ),
        ([0, 1], "problems and training seeds", "seeds: 0, 1", "2 training seeds: a rough estimate of the spread"),
    ],
)
def test_it_says_what_the_intervals_are_over(
    seeds: list[int], interval: str, trained: str, limit: str, experiment: Callable[..., Experiment]
) -> None:
    made = experiment(seeds=[0, 1])
    for policy in ("base", *(f"grpo/seed{seed}" for seed in seeds)):
        made.score_all({policy: {"easy": [0.0, 0.5], "hard": [0.5, 1.0]}})
    write_statistics(made)
    text = text_of(made)
    assert f"95% intervals over {interval};" in text
    assert f"training {trained}. Evaluated" in text
    assert f"- {limit}" in text
    assert ("One training seed" in text.partition("## max@1")[0]) == (len(seeds) == 1)
    assert ("a rough estimate" in text) == (len(seeds) == 2)


def test_policies_with_different_numbers_of_seeds_are_told_apart(experiment: Callable[..., Experiment]) -> None:
    made = experiment(seeds=[0, 1])
    policies = ("base", "grpo/seed0", "grpo/seed1", "bon_mean/seed0")
    made.score_all({policy: {"easy": [0.0, 0.5], "hard": [0.5, 1.0]} for policy in policies})
    write_statistics(made)
    text = text_of(made)
    assert "training seeds: 0, 1 (1 to 2 per policy). Evaluated" in text
    assert "95% intervals over problems and training seeds (of policies with several);" in text
    assert "- 1 to 2 training seeds per policy: a rough estimate" in text
    assert "- One training seed: no claim about methods, only about the trained policies that have no other." in text


def test_without_statistics_the_command_that_makes_them_is_named(small: Experiment) -> None:
    said = r"missing statistics.csv, paired_tests.csv; make them: `maxk table statistics paired_tests --config results/"
    with pytest.raises(UserError, match=said):
        summary.write(load(small.config), small.config)


@pytest.mark.parametrize("name", ["statistics", "paired_tests"])
@pytest.mark.parametrize("change", [lambda text: text[: len(text) // 2], lambda text: text.replace("0.5", "0.9")])
def test_statistics_that_were_cut_short_or_edited_are_refused(
    name: str, change: Callable[[str], str], small: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    write_statistics(small)
    path = Path("results", f"{name}.csv")
    path.write_text(change(path.read_text()))
    for command in ("summary", "figure max_at_k"):
        capsys.readouterr()
        assert cli.main(command.split()) == 2
        said = f"results: not as written (cut short, edited, or by another version) {name}.csv; make them: `maxk table"
        [line] = capsys.readouterr().err.splitlines()
        assert line == f"maxk {command.split()[0]}: {said} {name} --config results/config.json`"
    assert cli.main(["table", name]) == cli.main(["summary"]) == 0


def test_statistics_of_other_scores_are_refused(small: Experiment) -> None:
    write_statistics(small)
    small.score("grpo/seed0", "hard", [0.0, 0.5, 0.25, 0.25])
    said = r"results: made from other scores statistics.csv, paired_tests.csv; make them: `maxk table statistics paired"
    with pytest.raises(UserError, match=said):
        summary.write(load(small.config), small.config)


def test_a_base_model_alone_is_shown_by_dataset(experiment: Callable[..., Experiment]) -> None:
    made = experiment(objectives={}).score_all({"base": {"easy": [0.0, 1.0], "hard": [1.0] * 6}})
    write_statistics(made)
    text = text_of(made)
    assert "| Dataset | max@1 | pass@1 | max@128 | pass@128 |" in text
    assert "| hard | 1.000 [no spread] | 1.000 [no spread] |" in text
    assert "| easy | 0.500 [0.000, 1.000] |" in text
    assert "| mean | 0.750 [" in text
    assert "Findings" not in text
    assert "seed" not in text
