"""Scores that do not belong together never share a table; what is missing is blank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import Experiment

from maxk.errors import UserError
from maxk.reporting import MEAN
from maxk.reporting.load import load


def test_rows_stand_in_the_order_of_the_config_with_their_labels(small: Experiment) -> None:
    scores = load(small.config)
    assert dict(scores.labels) == {"base": "Base model", "grpo": "GRPO", "bon_mean": "BoN mean"}
    assert scores.mean("base", "easy", "max@1") == 0.5
    assert scores.mean("base", "easy", "pass@128") == 0.25
    assert scores.mean("base", MEAN, "max@1") == pytest.approx((0.5 + 0.0625) / 2)
    assert scores.notes() == []
    assert scores.sandbox == "landlock"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"experiment": "other"}, "experiment is 'other' in one and 'default' in the other"),
        ({"settings": {"n": 64}}, "settings.n is 64 in one and 128 in the other"),
        ({"settings": {"ks": [1, 128]}}, "settings.ks is [1, 128] in one and [1, 2, 128] in the other"),
        ({"environment": {"sandbox": "off"}}, "environment.sandbox is 'landlock' in one and 'off'"),
        ({"environment": {"backend": "vllm"}}, "environment.backend is 'transformers' in one and 'vllm'"),
        ({"settings": {"sampling": {"n": 128}}}, "settings.sampling."),
        ({"settings": {"verification": {"cpu_s": 9.0}}}, "settings.verification."),
        ({"settings": {"prompt": None}}, "settings.prompt is {"),
        ({"inputs": {"problems": "others"}}, "problems of hard is 'some hard' in one and 'others' in the other"),
        ({"lineage": {"settings": {"training": {"epochs": 9}}}}, "policy.training.epochs is 9"),
        ({"lineage": {"settings": None}}, "policy is None in one and {"),
        ({"lineage": {"base": "another"}}, "base policy is 'base' in one and 'another' in the other"),
        ({"lineage": {"data": {"easy": "others"}}}, "problems of easy is 'some easy' in one and 'others' in the other"),
    ],
)
def test_a_mixture_is_refused_naming_both_sides_and_the_key(
    small: Experiment, change: dict[str, Any], key: str
) -> None:
    path = small.score("bon_mean/seed0", "hard", [0.0] * 4, **change)
    with pytest.raises(UserError) as error:
        load(small.config)
    message = str(error.value)
    assert key in message
    assert path in message
    assert "results/scores/base/" in message or "the configuration" in message
    assert "\n" not in message


def test_a_policy_without_scores_is_blank_with_a_note(small: Experiment) -> None:
    Path(small.config.layout.scores("grpo/seed0", "hard")).unlink()
    scores = load(small.config)
    assert scores.mean("grpo", "hard", "max@1") is None
    assert scores.mean("grpo", "easy", "max@1") is not None
    assert scores.mean("grpo", MEAN, "max@1") is None
    assert scores.notes() == ["GRPO on hard: no scores."]


def test_no_scores_at_all_is_an_error_that_says_what_to_run(experiment: Callable[..., Experiment]) -> None:
    with pytest.raises(
        UserError, match=r"results/scores: no scores yet; make them: `snakemake --cores all results/table2.csv`"
    ):
        load(experiment().config)


def test_seeds_are_pooled_and_a_missing_one_is_named(experiment: Callable[..., Experiment]) -> None:
    made = experiment(seeds=[3, 5, 8])
    made.score("grpo/seed3", "easy", [0.0, 1.0])
    made.score("grpo/seed8", "easy", [1.0, 1.0])
    scores = load(made.config)
    assert scores.cells["grpo", "easy"].seeds == (3, 8)
    np.testing.assert_array_equal(scores.per_problem("grpo", "easy", "max@128"), [0.5, 1.0])
    assert scores.mean("grpo", "easy", "max@128") == 0.75
    assert scores.only(["grpo"], scores.datasets).notes() == [
        "GRPO on easy: no scores for seed 5.",
        "GRPO on hard: no scores.",
    ]


def test_seeds_that_all_datasets_lack_are_named_once(experiment: Callable[..., Experiment]) -> None:
    made = experiment(seeds=[3, 5])
    made.score_all(
        {"base": {"easy": [0.0, 1.0], "hard": [1.0, 1.0]}, "grpo/seed3": {"easy": [0.0, 1.0], "hard": [0.0, 0.0]}}
    )
    assert load(made.config).notes() == [
        "GRPO on every dataset: no scores for seed 5.",
        "BoN mean on every dataset: no scores.",
    ]


CONSTANT = {"easy": [0.0, 1.0], "hard": [0.5, 1.0]}


def test_policies_that_lack_the_same_share_a_note(experiment: Callable[..., Experiment]) -> None:
    made = experiment(seeds=[3, 5, 8])
    made.score_all(dict.fromkeys(("base", "grpo/seed3", "bon_mean/seed3"), CONSTANT))
    assert load(made.config).notes() == ["GRPO; BoN mean on every dataset: no scores for seed 5, 8."]


@pytest.mark.parametrize(
    ("policies", "said", "fewest_and_most"),
    [
        (["grpo/seed3", "grpo/seed5", "bon_mean/seed3", "bon_mean/seed5"], "training seeds: 3, 5", (2, 2)),
        (["grpo/seed3", "bon_mean/seed3"], "training seed: 3 (of 2 configured)", (1, 1)),
        (["grpo/seed3", "grpo/seed5", "bon_mean/seed5"], "training seeds: 3, 5 (1 to 2 per policy)", (1, 2)),
        (["grpo/seed3", "bon_mean/seed5"], "training seeds: 3, 5 (1 per policy)", (1, 1)),
        ([], "training seeds: none (of 2 configured)", (0, 0)),
    ],
)
def test_seeds_are_those_that_have_scores(
    policies: list[str], said: str, fewest_and_most: tuple[int, int], experiment: Callable[..., Experiment]
) -> None:
    made = experiment(seeds=[3, 5]).score_all(dict.fromkeys(["base", *policies], CONSTANT))
    scores = load(made.config)
    assert scores.seeds_text() == said
    assert scores.seed_range == fewest_and_most
    assert f"128 samples each; {said}) with" in scores.means_note(0.95, "GRPO")


def test_damaged_scores_are_one_line(small: Experiment) -> None:
    path = Path(small.config.layout.scores("base", "easy"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match=r"base/easy.parquet: not a complete parquet file"):
        load(small.config)
