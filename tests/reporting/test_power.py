"""Variance components of scores, and the power that they leave to a comparison of methods."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import pytest
from made_up import Experiment
from scipy import stats

from maxk import statistics
from maxk.errors import UserError
from maxk.reporting import power
from maxk.reporting.load import load
from maxk.reporting.power import Components
from maxk.stages import power as stage

TRUE = Components(problem=0.02, seed=0.002, rest=0.01)


def drawn(rng: np.random.Generator, problems: int, seeds: int, difference: float = 0.0) -> list[np.ndarray]:
    """Values [seeds, problems] of two methods."""
    easy = rng.normal(0.5, 0.3, problems)
    return [
        easy
        + shift
        + rng.normal(0, np.sqrt(TRUE.problem / 2), problems)
        + rng.normal(0, np.sqrt(TRUE.seed), (seeds, 1))
        + rng.normal(0, np.sqrt(TRUE.rest), (seeds, problems))
        for shift in (difference, 0.0)
    ]


def test_components_are_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    """From many problems and seeds, which leave about 10 % of error in the seeds' variance."""
    values = dict(zip(("a", "b"), drawn(np.random.default_rng(0), problems=800, seeds=200), strict=True))
    monkeypatch.setattr(power, "_values", lambda scores, policy, dataset, quantity: values[policy])
    found = power.components(None, ("a", "b"), "easy", "max@1")  # type: ignore[arg-type]
    assert found.problem == pytest.approx(TRUE.problem, rel=0.15)
    assert found.seed == pytest.approx(TRUE.seed, rel=0.25)
    assert found.rest == pytest.approx(TRUE.rest, rel=0.02)


@pytest.mark.parametrize(
    ("problems", "seeds", "difference", "level"),
    [(40, 3, 0.1, 0.95), (100, 2, 0.1, 0.95), (100, 5, 0.05, 0.95), (100, 5, 0.1, 0.99)],
)
def test_power_is_how_often_the_test_of_the_tables_rejects(
    problems: int, seeds: int, difference: float, level: float
) -> None:
    rng = np.random.default_rng(1)
    pairs = (drawn(rng, problems, seeds, difference) for _ in range(1500))
    rejected = np.mean([statistics.difference(a, b).p_value() < 1 - level for a, b in pairs])
    assert power.power(TRUE, difference, problems, seeds, level) == pytest.approx(rejected, abs=0.04)


@pytest.mark.parametrize("seed_sd", [0.005, 0.010])
@pytest.mark.parametrize("problems", [100, 408, 600])
def test_power_approaches_that_of_known_variances(problems: int, seed_sd: float) -> None:
    """+.015 at max@128 on MBPP; with few seeds the variances have to be estimated, which costs power."""
    parts = Components(problem=0.003, seed=seed_sd**2, rest=0.0127)

    def known(seeds: int) -> float:
        error = np.sqrt(parts.problem / problems + 2 * parts.seed / seeds + 2 * parts.rest / (problems * seeds))
        return float(stats.norm.sf(stats.norm.isf(0.025) - 0.015 / error))

    lost = [known(seeds) - power.power(parts, 0.015, problems, seeds) for seeds in (2, 8, 40)]
    assert lost[0] > 0.05
    assert lost[1] == pytest.approx(0.02, abs=0.03)
    assert lost[2] == pytest.approx(0, abs=0.02)


def test_power_grows_with_problems_seeds_and_difference() -> None:
    frame = power.table(TRUE, 0.1, [20, 100, 500], [2, 3, 8])
    wide = frame.pivot(index="problems", columns="seeds", values="power").to_numpy()
    assert (np.diff(wide[:, 1:], axis=0) > 0).all()  # two seeds limit it to a quarter, whatever the problems
    assert (np.diff(wide, axis=1) > 0).all()
    assert power.power(TRUE, 0.0, 100, 3) < 0.07
    assert power.power(power.with_seed_sd(TRUE, 0.0), 0.1, 500, 3) > power.power(TRUE, 0.1, 500, 3)


def arguments(made: Experiment, **changes: object) -> argparse.Namespace:
    given = {"policies": ["bon_mean", "grpo"], "difference": 0.1, "quantity": None, "dataset": None}
    given |= {
        "problems": [50, 100],
        "seeds": [2, 4],
        "seed_sd": None,
        "level": 0.95,
        "config": made.config.layout.config,
    }
    return argparse.Namespace(**given | changes)


def test_the_command_prints_a_table(experiment: Callable[..., Experiment], capsys: pytest.CaptureFixture[str]) -> None:
    made, rng = experiment(seeds=[0, 1]), np.random.default_rng(0)
    for policy in made.config.policies:
        made.score(policy, "easy", rng.random((20, 1)))
    stage.run(arguments(made))
    printed = capsys.readouterr().out
    assert printed.startswith("**Power for bon_mean and grpo: +0.1 of max@128 on easy**")
    assert "| problems | 2 seeds | 4 seeds |" in printed


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seeds": [1]}, "one seed allows no claim about methods"),
        ({"quantity": "max@3"}, r"no quantity 'max@3' \(did you mean 'max@2'\?\); known: max@1, max@2"),
        ({"policies": ["gpro", "grpo"]}, r"no policy 'gpro' \(did you mean 'grpo'\?\); known: base, grpo"),
        ({"dataset": "easi"}, r"no dataset 'easi' \(did you mean 'easy'\?\); known: easy"),
        ({}, "need scores of at least two training seeds"),
    ],
)
def test_mistakes_are_one_line(small: Experiment, changes: dict[str, object], says: str) -> None:
    load(small.config)
    with pytest.raises(UserError, match=says):
        stage.run(arguments(small, **changes))
