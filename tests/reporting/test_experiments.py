"""Experiments: what is compared with what, how a learning rate is chosen, and what their files hold."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import Experiment

from maxk import config as configuration
from maxk.artifacts import files
from maxk.errors import UserError
from maxk.reporting import experiments, rendering

FAST = {"training": {"iterations": 3}}
SLOW = {"training": {"iterations": 3, "learning_rate": 1e-6}}
STUDY = {
    "question": "Do more iterations hurt?",
    "policies": ["grpo"],
    "reference": "grpo",
    "against": "iterations",
    "choose": "learning_rate",
    "objectives": {"fast": {"type": "grpo", **FAST}, "slow": {"type": "grpo", **SLOW}},
}
REWARDS: dict[str, dict[str, Sequence[Any]]] = {
    "base": {"easy": [0.0, 0.5, 0.5, 1.0], "hard": [0.0, 0.0, 0.0, 0.25]},
    "grpo/seed0": {"easy": [0.5, 0.5, 0.5, 1.0], "hard": [0.0, 0.0, 0.25, 0.25]},
}
# `fast` is better on the problems that the choice is made on (first, third), worse on the others.
FAST_REWARDS = {"easy": [1.0, 0.25, 1.0, 0.5], "hard": [0.5, 0.0, 0.5, 0.0]}
SLOW_REWARDS = {"easy": [0.5, 1.0, 0.5, 1.0], "hard": [0.0, 0.5, 0.0, 0.5]}


@pytest.fixture
def study(experiment: Callable[..., Experiment]) -> Experiment:
    made = experiment(experiments={"study": STUDY})
    return made.score_all({**REWARDS, "fast/seed0": FAST_REWARDS, "slow/seed0": SLOW_REWARDS})


def write_log(made: Experiment, objective: str, kl: Sequence[float] | None, best: Sequence[float]) -> None:
    """A training log of one line a generation batch; without `kl` its KL is to another policy."""
    path = Path(made.config.layout.metrics(f"{objective}/seed0"))
    path.parent.mkdir(parents=True, exist_ok=True)
    iterations = made.config.training_of(objective).iterations
    lines = [
        {"step": i * iterations + 1, "reward": b / 2, "train_max@1": b / 2, "train_max@8": b}
        | ({} if kl is None else {"kl": kl[i]})
        for i, b in enumerate(best)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    Path(made.config.layout.policy(f"{objective}/seed0")).write_text("{}")  # the training is finished


def table(made: Experiment) -> dict[str, Mapping[str, str]]:
    """The rows of the experiment's CSV file by policy."""
    frame = experiments.table(experiments.collect("study", made.config))
    return {row["policy"]: row for row in csv.DictReader(rendering.to_csv(frame).splitlines())}


def test_the_learning_rate_is_chosen_on_other_problems_than_those_reported(study: Experiment) -> None:
    rows = table(study)
    assert [rows[row]["chosen"] for row in ("base", "grpo", "fast", "slow")] == ["", "yes", "yes", "no"]
    assert float(rows["fast"]["development_max@128"]) == pytest.approx((1 + 1 + 0.5 + 0.5) / 4)
    assert float(rows["fast"]["max@128"]) == pytest.approx((0.25 + 0.5 + 0 + 0) / 4)
    assert float(rows["slow"]["max@128"]) == pytest.approx((1 + 1 + 0.5 + 0.5) / 4)


def test_differences_are_to_the_reference_and_paired(study: Experiment) -> None:
    rows = table(study)
    fast = rows["fast"]
    assert float(fast["max@1_difference"]) == pytest.approx(float(fast["max@1"]) - float(rows["grpo"]["max@1"]))
    assert (
        float(fast["max@1_difference_low"]) <= float(fast["max@1_difference"]) <= float(fast["max@1_difference_high"])
    )
    assert rows["grpo"]["max@1_difference"] == ""


def test_a_question_is_text(experiment: Callable[..., Experiment]) -> None:
    made = experiment(experiments={"study": {**STUDY, "question": "Is <k> * 2\ntoo much?"}})
    made.score_all({**REWARDS, "fast/seed0": FAST_REWARDS, "slow/seed0": SLOW_REWARDS})
    found = experiments.collect("study", made.config)
    text = experiments.to_markdown(found, experiments.table(found))
    assert text.splitlines()[0] == r"**study: Is \<k> \* 2 too much?**"


def test_without_a_choice_all_problems_count(experiment: Callable[..., Experiment]) -> None:
    made = experiment(experiments={"study": {**STUDY, "choose": None, "against": None}})
    made.score_all({**REWARDS, "fast/seed0": FAST_REWARDS, "slow/seed0": SLOW_REWARDS})
    rows = table(made)
    assert {row["chosen"] for row in rows.values()} == {""}
    assert float(rows["fast"]["max@128"]) == pytest.approx((1 + 0.25 + 1 + 0.5 + 0.5 + 0.5) / 8)


def test_matched_kl_is_where_the_policy_that_moved_least_ended(study: Experiment) -> None:
    write_log(study, "grpo", kl=[0.0, 0.1, 0.2, 0.4], best=[0.2, 0.4, 0.6, 1.0])
    write_log(study, "fast", kl=[0.0, 0.2, 0.1, 0.2], best=[0.2, 0.3, 0.9, 0.5])
    rows = table(study)
    assert float(rows["grpo"]["matched_kl"]) == pytest.approx(0.2)
    assert float(rows["grpo"]["train_max@n_at_kl"]) == pytest.approx(0.6)
    assert float(rows["grpo"]["train_max@1_at_kl"]) == pytest.approx(0.3)
    assert rows["slow"]["train_max@n_at_kl"] == ""  # no log


def test_a_policy_without_a_kl_to_the_base_model_is_left_out(study: Experiment) -> None:
    write_log(study, "grpo", kl=[0.0, 0.1, 0.2, 0.4], best=[0.2, 0.4, 0.6, 1.0])
    write_log(study, "fast", kl=None, best=[0.2, 0.3, 0.9, 0.5])
    rows = table(study)
    assert float(rows["grpo"]["matched_kl"]) == pytest.approx(0.4)
    assert float(rows["grpo"]["train_max@n_at_kl"]) == pytest.approx(1.0)
    assert rows["fast"]["train_max@n_at_kl"] == ""


def test_a_drop_in_kl_does_not_match_twice() -> None:
    log = {"kl": np.array([[0.0, 0.3, 0.1, 0.4]]), "train_max@8": np.array([[0.0, 0.3, 0.5, 0.8]])}
    kl, maxima = experiments.trajectory(log)
    assert kl.tolist() == [0.0, 0.3, 0.3, 0.4]
    assert maxima["train_max@8"].tolist() == [0.0, 0.3, 0.5, 0.8]


def test_policies_that_differ_in_the_varied_key_alone_are_one_series(study: Experiment) -> None:
    found = experiments.collect("study", study.config)
    assert {outcome.policy: outcome.series for outcome in found.outcomes} == {
        "grpo": "GRPO",
        "fast": "GRPO",
        "slow": "GRPO",
    }


def test_a_policy_of_its_own_is_drawn_under_its_label(experiment: Callable[..., Experiment]) -> None:
    other = {"type": "grpo", "training": {"datasets": ["easy", "hard"]}}
    study = {"question": "?", "policies": ["grpo"], "reference": "grpo"}
    named = {"close": {**other, "label": "GRPO, closeness"}, "plain": {**other, "training": {"kl_coefficient": 0.1}}}
    made = experiment(experiments={"study": {**study, "objectives": named}}).score_all(REWARDS)
    found = experiments.collect("study", made.config)
    assert {outcome.policy: outcome.series for outcome in found.outcomes} == {
        "grpo": "GRPO",
        "close": "GRPO, closeness",
        "plain": "GRPO (kl_coefficient 0.1)",
    }


def test_values_of_a_shared_name_are_written_out(experiment: Callable[..., Experiment]) -> None:
    more = {"training": {"datasets": ["easy", "hard"], "iterations": 2}}
    study = {"question": "?", "policies": ["grpo"], "reference": "grpo", "against": "iterations"}
    objectives = {f"i{i}": {"type": "grpo", "training": {**more["training"], "iterations": i}} for i in (2, 3)}
    made = experiment(experiments={"study": {**study, "objectives": objectives}}).score_all(REWARDS)
    found = experiments.collect("study", made.config)
    assert [outcome.series for outcome in found.outcomes] == ["GRPO", *["GRPO, datasets easy, hard"] * 2]


def test_the_kl_to_the_old_policy_is_shown_where_it_is_logged(study: Experiment) -> None:
    write_log(study, "grpo", kl=[0.0, 0.1, 0.2, 0.4], best=[0.2, 0.4, 0.6, 1.0])
    assert "π_old" not in Path(experiments.write("study", study.config)[1]).read_text()
    log = Path(study.config.layout.metrics("grpo/seed0"))
    log.write_text(log.read_text().replace('"kl"', '"kl_old"'))
    text = Path(experiments.write("study", study.config)[1]).read_text()
    assert "| final KL | final KL to π\\_old | final entropy |" in text
    assert "| – | 0.400 | – |" in text
    assert (table(study)["grpo"]["final_kl"], table(study)["grpo"]["final_kl_old"]) == ("", "0.4")


def test_missing_scores_are_blank_with_a_note_and_choose_nothing(experiment: Callable[..., Experiment]) -> None:
    made = experiment(experiments={"study": STUDY}).score_all({**REWARDS, "fast/seed0": FAST_REWARDS})
    paths = experiments.write("study", made.config)
    rows = table(made)
    assert (rows["slow"]["max@128"], rows["slow"]["chosen"], rows["fast"]["chosen"]) == ("", "no", "no")
    text = Path(paths[1]).read_text()
    assert "GRPO (iterations 3, learning\\_rate 1e-06) on every dataset: no scores" in text
    assert "training seed: 0) with" in text
    assert "✓ marks" in text


@pytest.mark.slow
def test_reports_are_reproducible_and_figures_drawn(study: Experiment) -> None:
    write_log(study, "grpo", kl=[0.0, 0.1, 0.2, 0.4], best=[0.2, 0.4, 0.6, 1.0])
    paths = experiments.write("study", study.config)
    assert [Path(path).suffix for path in paths] == [".csv", ".md", ".png", ".pdf"]
    before = [files.digest(path) for path in paths]
    assert [files.digest(path) for path in experiments.write("study", study.config)] == before


def test_an_unknown_experiment_is_one_line(study: Experiment) -> None:
    with pytest.raises(UserError, match=r"no experiment 'studi' \(did you mean 'study'\?\); known: study"):
        experiments.write("studi", study.config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": ["grop"]}, r"experiments\.study\.policies: no objective 'grop' \(did you mean 'grpo'\?\)"),
        ({"reference": "bon_mean"}, r"reference='bon_mean' is not one of its policies"),
        ({"objectives": {"bon_mean": {"type": "grpo"}}}, r"objectives\.bon_mean: the name is taken by objectives"),
        ({"objectives": {"a": {"type": "bon_loo1", "k": 99}}}, r"experiments\.study\.objectives\.a: k=99 is more than"),
        ({"policies": ["grpo", "fast"]}, r"a policy is named twice"),
        (
            {
                "against": "k",
                "objectives": {"a": {"type": "bon_mean", "k": {"schedule": "linear", "start": 4, "end": 1}}},
            },
            r"experiments\.study: the k of 'a' is a schedule, which `against: k` cannot plot",
        ),
        ({"agianst": "k"}, r"unknown key \(did you mean 'against'\?\)"),
    ],
)
def test_contradictions_are_refused(
    experiment: Callable[..., Experiment], changes: dict[str, Any], message: str
) -> None:
    if "policies" in changes and "grpo" not in changes["policies"]:
        changes = {**changes, "reference": "fast"}
    with pytest.raises(UserError, match=message):
        experiment(experiments={"study": {**STUDY, **changes}})


def test_an_overlay_that_replaces_the_objectives_drops_the_experiments_on_them() -> None:
    defaults = configuration.read_yaml(Path(__file__).parents[2] / "config" / "config.yaml")
    replaced = configuration.overlay(defaults, {"objectives": {"grpo": {"type": "grpo"}}})
    assert configuration.parse(replaced).experiments == {}
    assert configuration.parse(configuration.overlay(defaults, {"seeds": [1]})).experiments
