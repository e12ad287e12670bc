"""Intervals and paired tests: against the estimators, against hand computation, and at the edges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_up import Experiment, write_statistics

from maxk.reporting import MEAN, estimates
from maxk.reporting.load import load


def spread_out(experiment: Callable[..., Experiment], seeds: int = 3, problems: int = 40) -> Experiment:
    made = experiment(seeds=list(range(seeds)), report={"resamples": 4000})
    rng = np.random.default_rng(0)
    for dataset in ("easy", "hard"):
        made.score("base", dataset, rng.random((problems, 128)).round(1))
        for seed in range(seeds):
            for objective in ("grpo", "bon_mean"):
                made.score(f"{objective}/seed{seed}", dataset, rng.random((problems, 1)).round(1) ** 2)
    return made


def test_intervals_are_those_of_a_plain_bootstrap_up_to_monte_carlo_error(
    experiment: Callable[..., Experiment],
) -> None:
    made = spread_out(experiment)
    scores = load(made.config)
    replicates = estimates.resample(scores, made.config.report)
    rng = np.random.default_rng(1)
    for row in scores.rows:
        values = scores.values(row, "easy", "max@2")
        seeds, problems = (rng.integers(size, size=(4000, size)) for size in values.shape)
        means = [values[np.ix_(*chosen)].mean() for chosen in zip(seeds, problems, strict=True)]
        expected = np.quantile(means, [0.025, 0.975])
        got = replicates.interval(replicates.of(row, "easy", "max@2"))
        assert got == pytest.approx(tuple(expected), abs=0.06 * (expected[1] - expected[0]))


def test_differences_are_paired(experiment: Callable[..., Experiment]) -> None:
    """A policy that is better by a constant has an interval of width zero, though the problems vary."""
    made = experiment()
    rewards = np.linspace(0, 0.5, 12)
    for policy, offset in (("base", 0.0), ("grpo/seed0", 0.25), ("bon_mean/seed0", 0.0)):
        for dataset in ("easy", "hard"):
            made.score(policy, dataset, rewards + offset)
    scores = load(made.config)
    rows = estimates.records(estimates.differences(scores, made.config))
    chosen = [r for r in rows if r["comparison"] == "vs base" and r["policy"] == "grpo" and r["metric"] == "max"]
    assert {r["dataset"] for r in chosen} == {"easy", "hard", MEAN}
    for row in chosen:
        assert row["difference"] == pytest.approx(0.25)
        assert row["low"] == pytest.approx(0.25)
        assert row["high"] == pytest.approx(0.25)
        assert row["p_bootstrap"] == pytest.approx(2 / 401)
    easy = next(r for r in chosen if r["dataset"] == "easy" and r["k"] == 1)
    assert easy["rank_biserial"] == 1.0
    assert easy["zero_differences"] == 0
    assert easy["p_wilcoxon_holm"] == pytest.approx(2 * easy["p_wilcoxon"])
    same = [r for r in rows if r["comparison"] == "vs base" and r["policy"] == "bon_mean" and r["dataset"] == "easy"]
    assert {(r["difference"], r["p_wilcoxon"], r["p_bootstrap"], r["rank_biserial"]) for r in same} == {
        (0.0, 1.0, 1.0, 0.0)
    }
    assert {r["zero_differences"] for r in same} == {12}


def test_mean_over_datasets_weighs_datasets_equally(experiment: Callable[..., Experiment]) -> None:
    made = experiment(objectives={})
    made.score("base", "easy", [1.0] * 30)
    made.score("base", "hard", [0.0] * 2)
    scores = load(made.config)
    replicates = estimates.resample(scores, made.config.report)
    assert scores.mean("base", MEAN, "max@1") == 0.5
    assert replicates.interval(replicates.of("base", MEAN, "max@1")) == pytest.approx((0.5, 0.5))


def test_one_problem_has_an_interval_of_no_width_and_no_error(experiment: Callable[..., Experiment]) -> None:
    made = experiment()
    made.score("base", "easy", [0.25])
    made.score("grpo/seed0", "easy", [0.5])
    scores = load(made.config)
    rows = estimates.records(estimates.means(scores, made.config))
    assert {(r["low"], r["high"]) for r in rows if r["policy"] == "grpo" and r["metric"] == "max"} == {(0.5, 0.5)}
    paired = estimates.records(estimates.differences(scores, made.config))
    assert {r["p_wilcoxon"] for r in paired if r["metric"] == "max"} == {1.0}


def test_seeds_widen_the_interval(experiment: Callable[..., Experiment]) -> None:
    made = experiment(seeds=[0, 1])
    made.score("base", "easy", [0.5] * 10)
    for seed, reward in enumerate((0.2, 0.8)):
        made.score(f"grpo/seed{seed}", "easy", [reward] * 10)
    scores = load(made.config)
    replicates = estimates.resample(scores, made.config.report)
    assert replicates.interval(replicates.of("grpo", "easy", "max@1")) == pytest.approx((0.2, 0.8))
    row = next(r for r in estimates.records(estimates.means(scores, made.config)) if r["policy"] == "grpo")
    assert row["seeds"] == 2


def test_files_are_tidy_and_reproducible(experiment: Callable[..., Experiment]) -> None:
    made = spread_out(experiment, seeds=1, problems=8)
    texts = []
    for _ in range(2):
        write_statistics(made)
        texts.append([Path(f"results/{name}.csv").read_bytes() for name in ("statistics", "paired_tests")])
    assert texts[0] == texts[1]
    table, paired = estimates.read(made.config)
    assert len(table) == 3 * 3 * 2 * 3  # policies × (datasets + mean) × metrics × ks
    assert not table.duplicated(["policy", "dataset", "metric", "k"]).any()
    assert (table.low <= table["mean"]).all()
    assert (table["mean"] <= table.high).all()
    assert set(paired.comparison) == {"best vs second", "vs base", "vs grpo"}
    assert paired[paired.dataset == "mean"].p_wilcoxon.isna().all()
    assert (paired.p_wilcoxon_holm.dropna() >= paired.p_wilcoxon.dropna()).all()
