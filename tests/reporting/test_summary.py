"""The summary says what its rule finds in the paired tests, and the run's page what the run was."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_up import Experiment, write_statistics

from maxk.artifacts import files
from maxk.artifacts.records import Policy
from maxk.errors import UserError
from maxk.reporting import pages, summary
from maxk.reporting.load import load


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
    assert "BoN mean has the highest mean and is above the second, Base model: +0.200 [+0.200, +0.200]" in text
    assert "lowers max@1 (-0.100 [-0.100, -0.100]); lowers max@128" in text
    assert "Other policies against GRPO at max@128: above 1 (BoN mean), below none, undecided none." in text


def test_the_opposite_numbers_give_the_opposite_findings(experiment: Callable[..., Experiment]) -> None:
    text = text_of(scored(experiment, grpo=0.2, bon=0.1))
    assert "GRPO has the highest mean and is above the second, BoN mean" in text
    assert "raises max@1" in text
    assert "Other policies against GRPO at max@128: above none, below 1 (BoN mean), undecided none." in text


def test_equal_policies_are_undecided(experiment: Callable[..., Experiment]) -> None:
    text = text_of(scored(experiment, grpo=0.0, bon=0.0))
    assert "is not distinguishable from the second" in text
    assert "no decided change of max@1" in text
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


def test_without_statistics_the_command_that_makes_them_is_named(small: Experiment) -> None:
    with pytest.raises(UserError, match=r"statistics.csv: no such file; run `maxk table statistics paired_tests`"):
        summary.write(load(small.config), small.config)


def test_the_run_s_page_holds_configuration_funnels_versions_and_times(small: Experiment) -> None:
    layout = small.config.layout
    write_statistics(small)
    files.write_json(layout.funnel("easy"), {"drawn": 9, "test": 4})
    for policy, torch in (("base", "2.1"), ("grpo/seed0", "2.2")):
        files.write_policy(layout.policy(policy), Policy(policy, policy, "m", None, {}, {"torch": torch}))
    for name, seconds in (("a", "2.0\t1.5"), ("b", "3.0\tNA")):
        files.write_text(layout.benchmark("train", name), f"s\tcpu_time\n{seconds}\n")
    *_, path = summary.write(load(small.config), small.config)
    page = Path(path).read_text()
    assert "easy: drawn 9 → test 4" in page
    assert "torch 2.1 and 2.2" in page
    assert re.search(r"<td[^>]*>train</td>\s*<td[^>]*>2</td>\s*<td[^>]*>5</td>\s*<td[^>]*>2</td>", page)
    assert "headline_k: 128" in page
    assert "Sandbox: landlock" in page


def test_pages_stand_alone_and_show_markdown_as_meant() -> None:
    page = pages.to_html("x<y", "**A title**\n\n| a | b |\n| :--- | ---: |\n| <u>1</u> | **2\\*** |\n")
    assert "<title>x&lt;y</title>" in page
    assert "<h1>A title</h1>" in page
    assert "<u>1</u>" in page
    assert "<strong>2*</strong>" in page
    assert "http" not in page
