"""What a run prints last: the result in a table and a sentence, and what to open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_up import Experiment, write_statistics

from maxk.reporting import exit_report, headline

ONE_SEED = "One training seed: no claim about methods, only about these trained policies."


def sentence(made: Experiment) -> str:
    write_statistics(made)
    found = headline.read(made.config)
    assert found is not None
    return headline.sentence(found, made.config)


def constant(made: Experiment, **offsets: float) -> Experiment:
    """Twelve problems; policies differ from the base model by constants, so intervals have no width."""
    rewards = [0.2 + 0.04 * i for i in range(12)]
    for policy, offset in {"base": 0.0, **offsets}.items():
        for dataset in ("easy", "hard"):
            made.score(policy if policy == "base" else f"{policy}/seed0", dataset, [one + offset for one in rewards])
    return made


def test_a_run_ends_with_its_result(
    experiment: Callable[..., Experiment], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    made = constant(experiment(), grpo=-0.1, bon_mean=0.2)
    write_statistics(made)
    Path(made.config.layout.report).write_text("<html>")
    exit_report.success(made.config)
    said = capsys.readouterr().err
    assert [line.split() for line in said.splitlines() if line.strip().startswith("GRPO")] == [
        ["GRPO", "0.320", "0.320", "-0.100", "[no", "spread]"]
    ]
    assert "…" not in said
    assert said.splitlines()[-2:] == [
        "BoN mean has the highest mean max@128, 0.620; its difference to the base model, +0.200 [no spread], is "
        f"above zero. {ONE_SEED}",
        "maxk: done; open results/report.html",
    ]


def test_a_difference_whose_interval_holds_zero_is_not_decided(experiment: Callable[..., Experiment]) -> None:
    made = constant(experiment())
    for dataset in ("easy", "hard"):
        made.score("grpo/seed0", dataset, [1.0, 0.0] * 6)
    said = sentence(made)
    assert said.startswith("GRPO has the highest mean max@128, 0.500; its difference to the base model, +0.080 [-0.")
    assert said.endswith(f"is not decided. {ONE_SEED}")


def test_the_base_model_may_have_the_highest_mean(experiment: Callable[..., Experiment]) -> None:
    made = constant(experiment(), grpo=-0.1, bon_mean=-0.1)
    assert sentence(made) == f"Base model has the highest mean max@128, 0.420. {ONE_SEED}"


def test_several_seeds_are_about_methods(experiment: Callable[..., Experiment]) -> None:
    made = constant(experiment(seeds=[0, 1]), grpo=0.1)
    for dataset in ("easy", "hard"):
        made.score("grpo/seed1", dataset, [0.3 + 0.04 * i for i in range(12)])
    assert sentence(made).startswith("GRPO has the highest mean max@128, 0.520; ")
    assert ONE_SEED not in sentence(made)


def test_a_policy_without_scores_is_left_out(small: Experiment) -> None:
    Path(small.config.layout.scores("bon_mean/seed0", "hard")).unlink()
    assert sentence(small).startswith("GRPO has the highest mean max@128, 0.375; ")


def test_a_base_model_alone_is_compared_with_nothing(experiment: Callable[..., Experiment]) -> None:
    made = experiment(objectives={}).score_all({"base": {"easy": [0.5] * 6, "hard": [1.0] * 6}})
    assert sentence(made) == "Base model: max@1 0.750 [no spread], max@128 0.750 [no spread]."


def test_a_run_that_made_no_tables_names_the_folder(
    experiment: Callable[..., Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    exit_report.success(experiment().config)
    assert capsys.readouterr().err == "maxk: done; open results/\n"
