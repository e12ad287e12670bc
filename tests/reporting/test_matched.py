"""Experiments with milestones: interpolation to equal KL and tokens, what is refused, and what the rules answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import Experiment

from maxk.errors import UserError
from maxk.reporting import estimates, experiments, matched

STUDY = {
    "question": "Only less trained?",
    "policies": ["grpo", "bon_mean"],
    "reference": "grpo",
    "milestones": 2,
    "rules": [
        {"policy": "bon_mean", "then": "It is above", "otherwise": "It is not shown above"},
        {"policy": "bon_mean", "shown": "below", "k": 1, "then": "It costs max@1", "otherwise": "No cost is shown"},
    ],
}
PROBLEMS = 4
BATCHES = 40  # a milestone after 20; KL is smoothed over four batches, which changes nothing where it is constant


@pytest.fixture
def study(experiment: Callable[..., Experiment]) -> Experiment:
    return made_up(experiment, STUDY)


def made_up(experiment: Callable[..., Experiment], asked: Mapping[str, Any]) -> Experiment:
    """Two seeds. KL .2 at the milestone and .4 at the end for GRPO, .1 and .2 for BoN mean."""
    made = experiment(experiments={"study": asked}, seeds=[0, 1])
    score(made, "base", 0.2)
    for objective, kl, at_milestone, at_end in (("grpo", 0.2, 0.4, 0.6), ("bon_mean", 0.1, 0.3, 0.7)):
        for seed in (0, 1):
            shift = 0.05 * seed
            score(made, f"{objective}@1/seed{seed}", at_milestone + shift, batches=20, seed=seed)
            score(made, f"{objective}/seed{seed}", at_end + shift, seed=seed)
            write_log(made, f"{objective}/seed{seed}", [kl] * 23 + [2 * kl] * 17, tokens=1000)
    return made


def score(made: Experiment, policy: str, mean: float, **lineage: Any) -> None:
    """The same reward for all samples of a problem; problems differ around the mean."""
    for dataset in ("easy", "hard"):
        rewards = [mean - 0.02, mean, mean, mean + 0.02]
        made.score(policy, dataset, rewards, lineage={**made.lineage(policy.replace("@1", "")), **lineage})


def write_log(made: Experiment, policy: str, kl: Sequence[float], tokens: int) -> None:
    path = Path(made.config.layout.metrics(policy))
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"step": i, "kl": one, "num_tokens": i * tokens} for i, one in enumerate(kl, 1)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    Path(made.config.layout.policy(policy)).write_text("{}")


def table(made: Experiment) -> dict[tuple[str, str], Mapping[str, Any]]:
    rows = estimates.records(matched.table(matched.collect("study", made.config)))
    return {(row["policy"], row["at"]): row for row in rows}


def test_points_of_a_training(study: Experiment) -> None:
    rows = table(study)
    assert [at for _, at in rows] == ["milestone 1", "end", "equal KL", "equal tokens"] * 2
    first, last = rows["bon_mean", "milestone 1"], rows["bon_mean", "end"]
    assert (first["batches"], first["tokens"], last["batches"], last["tokens"]) == (20, 20_000, 40, 40_000)
    assert (first["kl"], last["kl"]) == (pytest.approx(0.1), pytest.approx(0.2))
    assert first["max@128"] == pytest.approx(0.325)  # mean of .3 and .35 over seeds
    assert last["max@128_difference"] == pytest.approx(0.1)
    assert last["max@128_difference_low"] < 0.1 < last["max@128_difference_high"]


def test_policies_are_compared_where_each_seed_reaches_the_kl_of_the_least_moved(study: Experiment) -> None:
    rows = table(study)
    grpo, bon = rows["grpo", "equal KL"], rows["bon_mean", "equal KL"]
    assert grpo["kl"] == bon["kl"] == pytest.approx(0.2)
    assert grpo["max@128"] == pytest.approx(0.425)  # GRPO's milestone, BoN mean's end
    assert bon["max@128"] == pytest.approx(0.725)
    assert bon["max@128_difference"] == pytest.approx(0.3)
    assert np.isnan(grpo["max@128_difference"])


def test_levels_between_points_are_interpolated_seed_by_seed(study: Experiment) -> None:
    """BoN mean's second seed ends at KL .15: its end, and for GRPO √¾ of the way from base (0) to milestone (.2)."""
    write_log(study, "bon_mean/seed1", [0.1] * 23 + [0.15] * 17, tokens=500)
    rows = table(study)
    assert rows["grpo", "equal KL"]["kl"] == pytest.approx(0.15)
    assert rows["grpo", "equal KL"]["max@1"] == pytest.approx(0.2 + 0.75**0.5 * (0.425 - 0.2))
    between = 0.3 + 0.4 * (1.5**0.5 - 1) / (2**0.5 - 1)  # seed 0, from .3 at KL .1 to .7 at .2
    assert rows["bon_mean", "equal KL"]["max@1"] == pytest.approx((between + 0.75) / 2)
    assert rows["bon_mean", "equal tokens"]["tokens"] == 20_000
    assert rows["bon_mean", "equal tokens"]["max@1"] == pytest.approx((0.3 + 0.75) / 2)


def course(kl: Sequence[float], values: Sequence[float]) -> matched.Course:
    """One seed, one problem."""
    points = [[np.array([[value]])] for value in values]
    return matched.Course("x", range(len(kl)), {"kl": np.array([kl])}, {"max@1": points})


def test_a_fall_in_kl_does_not_turn_a_course_back() -> None:
    found = course([0.0, 0.3, 0.3], [0, 1, 5])
    assert [found.interpolated("kl", at, "max@1")[0][0, 0] for at in (0.075, 0.3)] == pytest.approx([0.5, 1.0])


@pytest.mark.parametrize("distance", [0.05, 0.3, 0.5, 0.99])
def test_interpolation_is_unbiased_where_kl_is_the_square_of_the_distance(distance: float) -> None:
    """A policy that moves a distance d has KL d²/2, and its score rises by .4 d: in the first interval, and later."""
    moved = np.array([0.0, 0.4, 1.0])
    found = course(moved**2 / 2, 0.2 + 0.4 * moved)
    assert found.interpolated("kl", distance**2 / 2, "max@1")[0][0, 0] == pytest.approx(0.2 + 0.4 * distance)


def test_the_rules_answer(study: Experiment) -> None:
    text = Path(experiments.write("study", study.config)[1]).read_text()
    above, cost = (line for line in text.splitlines() if line.startswith("- "))
    assert above.startswith("- **It is above.** BoN mean − GRPO at max@128 and equal KL: +0.300 \\[")
    assert cost.startswith("- **No cost is shown.** BoN mean − GRPO at max@1 and equal KL: +0.300 \\[")
    assert "Rule: shown above zero: “It is above”; otherwise: “It is not shown above”." in text


def test_a_rule_may_ask_for_another_k_than_the_table(experiment: Callable[..., Experiment]) -> None:
    rule = {"policy": "bon_mean", "k": 2, "then": "Above", "otherwise": "Not shown above"}
    made = made_up(experiment, {**STUDY, "rules": [rule]})
    text = Path(experiments.write("study", made.config)[1]).read_text()
    assert "**Above.** BoN mean − GRPO at max@2 and equal KL: +0.300 \\[" in text


@pytest.mark.parametrize(
    ("lineage", "message"),
    [
        ({"seed": 0, "batches": 20, "base": "another"}, "base policy"),
        ({"seed": 7, "batches": 20}, r"grpo@1/seed1/easy\.parquet: not from the same training as .*grpo/seed1"),
        ({"seed": 1, "batches": 10}, r"grpo@1: its scores are after \{10, 20\} generation batches"),
        ({"seed": 1}, r"grpo@1: its scores are after \{.*None.*\} generation batches"),
    ],
)
def test_a_milestone_of_another_training_is_refused(study: Experiment, lineage: dict[str, Any], message: str) -> None:
    score(study, "grpo@1/seed1", 0.4, **lineage)
    with pytest.raises(UserError, match=message):
        matched.collect("study", study.config)


def test_a_policy_without_all_milestones_is_left_out_with_a_note(study: Experiment) -> None:
    Path(study.config.layout.scores("bon_mean@1/seed1", "easy")).unlink()
    found = matched.collect("study", study.config)
    assert list(found.courses) == ["grpo"]
    text = matched.to_markdown(found, matched.table(found))
    assert "BoN mean, milestone 1 on easy: no scores for seed 1." in text
    assert "training seeds: 0, 1) with" in text  # of the policy that is shown
    Path(study.config.layout.scores("grpo@1/seed1", "easy")).unlink()
    none = matched.collect("study", study.config)
    assert "training seeds: none (of 2 configured)) with" in matched.to_markdown(none, matched.table(none))
    assert "**Not decided: scores are missing.**" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"milestones": 1}, "milestones"),
        ({"against": "k"}, "milestones compare points of one training; leave `against`, `choose` and `vote` out"),
        (
            {"rules": [{"policy": "x", "then": "a", "otherwise": "b"}]},
            "rules name 'x', which is not one of its policies",
        ),
        (
            {"rules": [{"policy": "grpo", "then": "a", "otherwise": "b"}]},
            r"experiments\.study\.rules: 'grpo' is compared with itself",
        ),
        (
            {"rules": [{"policy": "bon_mean", "k": 3, "then": "a", "otherwise": "b"}]},
            r"experiments\.study\.rules: k=3 is not in report\.ks=\[1, 2, 128\]",
        ),
    ],
)
def test_contradictions_are_refused(
    experiment: Callable[..., Experiment], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        experiment(experiments={"study": {**STUDY, **changes}})


def test_one_policy_has_one_number_of_milestones(experiment: Callable[..., Experiment]) -> None:
    with pytest.raises(UserError, match="experiments keep 2 and 3 milestones of 'grpo'; choose one number"):
        experiment(experiments={"study": STUDY, "other": {**STUDY, "milestones": 3}})
