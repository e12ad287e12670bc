"""What is compared with what, and which seeds, problems and datasets stand behind it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import Experiment, write_statistics

from maxk import statistics
from maxk.reporting import MEAN, estimates
from maxk.reporting.load import load

Make = Callable[..., Experiment]


def spread_out(experiment: Make, seeds: int = 3, problems: int = 12, **changes: Any) -> Experiment:
    """Random rewards of every policy."""
    made = experiment(seeds=list(range(seeds)), **changes)
    rng = np.random.default_rng(0)
    for policy in made.config.policies:
        for dataset in ("easy", "hard"):
            made.score(policy, dataset, rng.random((problems, 1)).round(1) ** 2)
    return made


def row(frame: Any, **where: Any) -> dict[str, Any]:
    """The only row with these values."""
    [found] = [one for one in estimates.records(frame) if all(one[key] == value for key, value in where.items())]
    return found


def of_means(made: Experiment, policy: str, dataset: str, metric: str = "max", k: int = 1) -> dict[str, Any]:
    frame = estimates.means(load(made.config), made.config)
    return row(frame, policy=policy, dataset=dataset, metric=metric, k=k)


def of_differences(made: Experiment, comparison: str, policy: str, dataset: str, k: int = 1) -> dict[str, Any]:
    frame = estimates.differences(load(made.config), made.config)
    return row(frame, comparison=comparison, policy=policy, dataset=dataset, metric="max", k=k)


# ------------------------------------------------------------------------------------------------------------ numbers
def test_intervals_are_those_of_the_crossed_estimate(experiment: Make) -> None:
    made = spread_out(experiment)
    scores = load(made.config)
    values = {policy: scores.values(policy, "easy", "max@2") for policy in ("base", "grpo", "bon_mean")}
    found = of_means(made, "grpo", "easy", k=2)
    low, high = statistics.mean(values["grpo"]).interval(0.95)
    assert (found["low"], found["high"]) == pytest.approx((max(low, 0), min(high, 1)))
    found = of_differences(made, "vs grpo", "bon_mean", "easy", k=2)
    expected = statistics.difference(values["bon_mean"], values["grpo"])
    assert (found["low"], found["high"]) == pytest.approx(expected.interval(0.95))
    assert (found["p_mean"], found["test"]) == (pytest.approx(expected.p_value()), "crossed t")


def test_differences_are_paired(experiment: Make) -> None:
    """A policy that is better by a constant has an interval of width zero, though the problems vary."""
    made = experiment()
    rewards = np.linspace(0, 0.5, 12)
    for policy, offset in (("base", 0.0), ("grpo/seed0", 0.25), ("bon_mean/seed0", 0.0)):
        for dataset in ("easy", "hard"):
            made.score(policy, dataset, rewards + offset)
    for dataset in ("easy", "hard", MEAN):
        found = of_differences(made, "vs base", "grpo", dataset)
        assert [found[key] for key in ("difference", "low", "high")] == pytest.approx([0.25] * 3)
        assert found["p_mean"] < 0.05
    easy = of_differences(made, "vs base", "grpo", "easy")
    assert (easy["rank_biserial"], easy["zero_differences"]) == (1.0, 0)
    assert easy["p_wilcoxon_holm"] == pytest.approx(2 * easy["p_wilcoxon"])
    same = of_differences(made, "vs base", "bon_mean", "easy")
    assert [same[key] for key in ("difference", "p_wilcoxon", "p_mean", "rank_biserial")] == [0.0, 1.0, 1.0, 0.0]
    assert same["zero_differences"] == 12


def test_the_mean_over_datasets_weighs_datasets_equally(experiment: Make) -> None:
    made = experiment(objectives={})
    made.score("base", "easy", [1.0] * 30)
    made.score("base", "hard", [0.0] * 6)
    found = of_means(made, "base", MEAN)
    assert [found[key] for key in ("mean", "low", "high")] == pytest.approx([0.5] * 3)


def test_the_mean_over_datasets_keeps_each_seed_together(experiment: Make) -> None:
    """Each seed is good on one dataset and bad on the other, so their means over datasets are equal.

    On `hard` the first seed has no scores: a seed must be matched by its name, not by its place.
    """
    made = experiment(seeds=[0, 1, 2])
    for seed, (easy, hard) in enumerate([(0.9, None), (0.2, 0.8), (0.8, 0.2)]):
        made.score(f"grpo/seed{seed}", "easy", [easy] * 10)
        if hard is not None:
            made.score(f"grpo/seed{seed}", "hard", [hard] * 10)
    found = of_means(made, "grpo", MEAN)
    assert found["low"] == pytest.approx(found["high"])
    assert of_means(made, "grpo", "hard")["high"] == 1.0  # ±3.8, within the range of rewards


def test_one_problem_has_no_interval(experiment: Make) -> None:
    made = experiment()
    made.score("base", "easy", [0.25])
    made.score("grpo/seed0", "easy", [0.5])
    assert np.isnan([of_means(made, "grpo", "easy")[end] for end in ("low", "high")]).all()
    found = of_differences(made, "vs base", "grpo", "easy")
    assert (found["difference"], found["p_wilcoxon"]) == (0.25, 1.0)
    assert np.isnan(found["low"])


# -------------------------------------------------------------------------------------------------------- comparisons
def test_one_seed_is_about_trainings_and_several_about_methods(experiment: Make) -> None:
    one = of_differences(spread_out(experiment, seeds=1), "vs grpo", "bon_mean", MEAN)
    assert (one["about"], one["test"], one["seeds"]) == ("trainings", "sign flips", 1)
    several = of_differences(spread_out(experiment, seeds=2), "vs base", "bon_mean", MEAN)
    assert (several["about"], several["test"], several["seeds"]) == ("methods", "crossed t", 2)


def test_the_spread_between_seeds_decides_about_methods(experiment: Make) -> None:
    """Equal on every problem but for a seed effect: with two seeds nothing is decided, however many problems agree."""
    made = experiment(seeds=[0, 1])
    rewards = np.linspace(0, 0.5, 40)
    for seed in (0, 1):
        for dataset in ("easy", "hard"):
            made.score(f"grpo/seed{seed}", dataset, rewards)
            made.score(f"bon_mean/seed{seed}", dataset, rewards + 0.1 + 0.2 * seed)
    found = of_differences(made, "vs grpo", "bon_mean", MEAN)
    assert found["difference"] == pytest.approx(0.2)
    assert found["low"] < 0 < found["high"]
    assert found["p_mean"] > 0.05
    assert of_differences(made, "vs grpo", "bon_mean", "easy")["p_wilcoxon"] < 1e-6


PAPER = {
    "grpo": {"type": "grpo"},
    "mean": {"type": "bon_mean", "k": 4},
    "loo": {"type": "bon_loo1", "k": 4},
    "off": {"type": "bon_offpolicy", "k": 4, "training": {"iterations": 2}},
    "exact": {"type": "bon_offpolicy_exact", "k": 4, "training": {"iterations": 2}},
}


def test_off_policy_is_compared_with_the_best_baseline_of_the_paper(experiment: Make) -> None:
    """GRPO and our own rows are better here, and take no part: they are not in the paper's Table 2."""
    made = experiment(objectives=PAPER)
    levels = {"base": 0.1, "grpo/seed0": 0.9, "mean/seed0": 0.3, "loo/seed0": 0.2, "off/seed0": 0.5, "exact/seed0": 0.8}
    for policy, level in levels.items():
        for dataset in ("easy", "hard"):
            made.score(policy, dataset, [level] * 6)
    found = of_differences(made, "off-policy vs best baseline", "off", "easy")
    assert (found["reference"], found["difference"]) == ("mean", pytest.approx(0.2))
    assert of_differences(made, "best vs second", "grpo", "easy")["reference"] == "exact"


def test_holm_of_the_mean_s_test_is_over_all_policies_with_one_reference(experiment: Make) -> None:
    made = spread_out(experiment, objectives=PAPER)
    frame = estimates.differences(load(made.config), made.config)
    family = frame.query("comparison == 'vs base' and dataset == 'mean' and metric == 'max' and k == 1")
    assert len(family) == len(PAPER)
    np.testing.assert_allclose(family.p_mean_holm, statistics.holm(family.p_mean))
    assert (family.p_mean_holm > family.p_mean).any()


# -------------------------------------------------------------------------------------------------------------- files
def test_files_are_tidy_and_reproducible(experiment: Make) -> None:
    made = spread_out(experiment, seeds=1, problems=8)
    texts = []
    for _ in range(2):
        write_statistics(made)
        texts.append([Path(f"results/{name}.csv").read_bytes() for name in ("statistics", "paired_tests")])
    assert texts[0] == texts[1]
    table, paired = estimates.read(load(made.config), made.config)
    assert len(table) == 3 * 3 * 2 * 3  # policies × (datasets + mean) × metrics × ks
    assert not table.duplicated(["policy", "dataset", "metric", "k"]).any()
    assert table["mean"].between(table.low, table.high).all()
    assert table.low.ge(0).all()
    assert table.high.le(1).all()
    assert set(paired.comparison) == {"best vs second", "vs base", "vs grpo"}
    assert paired[paired.dataset == MEAN].p_wilcoxon.isna().all()
    assert (paired.p_wilcoxon_holm.dropna() >= paired.p_wilcoxon.dropna()).all()
