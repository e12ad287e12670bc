"""What a run prints: first how to see its progress, last the result in a table and two sentences, and what to open."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from made_up import Experiment, write_statistics

from maxk.reporting import exit_report, summary
from maxk.reporting.load import load

ONE_SEED = "One training seed: no claim about methods, only about these trained policies."


def test_a_run_begins_with_a_command_that_shows_how_far_its_jobs_are(
    experiment: Callable[..., Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    config = experiment().config
    exit_report.start(config)
    log = Path(config.layout.log("train", "grpo/seed0"))
    log.parent.mkdir(parents=True)
    log.write_text("train: 1/32\ntrain: 2/32\n")
    command = capsys.readouterr().err.removeprefix("maxk: how far the jobs are: ")
    shown = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == [f"==> {log} <==", "train: 2/32"]


def said_of(made: Experiment) -> str:
    write_statistics(made)
    return summary.summarise(load(made.config), made.config).result


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
    summary.write(load(made.config), made.config)
    Path(made.config.layout.report).write_text("<html>")
    exit_report.success(made.config)()
    said = capsys.readouterr().err
    assert next(line.split() for line in said.splitlines() if line.strip().startswith("GRPO"))[:2] == ["GRPO", "0.320"]
    assert "−0.100 [no spread]" in said
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= 80
    end = f"BoN mean has the highest mean max@128, 0.620. It is above the base model (+0.200 [no spread]). {ONE_SEED}"
    assert " ".join(said.split()).endswith(f"{end} maxk: done; open results/report.html")


def test_a_difference_whose_interval_holds_zero_is_not_decided(experiment: Callable[..., Experiment]) -> None:
    made = constant(experiment(), bon_mean=-0.2)
    for dataset in ("easy", "hard"):
        made.score("grpo/seed0", dataset, [1.0, 0.0] * 6)
    said = said_of(made)
    assert said.startswith(
        "GRPO has the highest mean max@128, 0.500. It is not distinguishable from the base model (+0.080 [−0."
    )
    assert said.count("base model") == 1


def test_a_lead_over_the_second_is_told_beside_that_over_the_base_model(experiment: Callable[..., Experiment]) -> None:
    made = constant(experiment(), grpo=0.1)
    for dataset in ("easy", "hard"):
        made.score("bon_mean/seed0", dataset, [1.0, 0.12] * 6)  # 0.56 beside 0.52 and 0.42
    said = said_of(made)
    assert said.startswith(
        "BoN mean has the highest mean max@128, 0.560. It is not distinguishable from the second, GRPO ("
    )
    assert "(+0.040 [−0." in said
    assert " or the base model (+0.140 [−0." in said
    made = constant(experiment(), grpo=0.1, bon_mean=0.2)
    assert said_of(made) == (
        "BoN mean has the highest mean max@128, 0.620. It is above the second, GRPO (+0.100 [no spread]) and the "
        f"base model (+0.200 [no spread]). {ONE_SEED}"
    )


def test_equal_policies_share_the_highest_mean(experiment: Callable[..., Experiment]) -> None:
    made = constant(experiment(), grpo=0.1, bon_mean=0.1)
    assert said_of(made) == (
        "GRPO and BoN mean share the highest mean max@128, 0.520. GRPO is above the base model (+0.100 [no spread]). "
        f"{ONE_SEED}"
    )
    made = constant(experiment(), grpo=0.0, bon_mean=-0.1)
    assert said_of(made) == f"Base model and GRPO share the highest mean max@128, 0.420. {ONE_SEED}"
    made = constant(experiment(), grpo=0.0, bon_mean=0.0)
    assert said_of(made) == f"Base model, GRPO and BoN mean share the highest mean max@128, 0.420. {ONE_SEED}"


def test_the_base_model_may_have_the_highest_mean(experiment: Callable[..., Experiment]) -> None:
    made = constant(experiment(), grpo=-0.1, bon_mean=-0.1)
    assert said_of(made) == (
        f"Base model has the highest mean max@128, 0.420. It is above the second, GRPO (+0.100 [no spread]). {ONE_SEED}"
    )


def test_several_seeds_are_about_methods(experiment: Callable[..., Experiment]) -> None:
    made = constant(experiment(seeds=[0, 1]), grpo=0.1)
    for dataset in ("easy", "hard"):
        made.score("grpo/seed1", dataset, [0.3 + 0.04 * i for i in range(12)])
    assert said_of(made).startswith("GRPO has the highest mean max@128, 0.520. ")
    assert ONE_SEED not in said_of(made)


def test_a_policy_without_scores_is_left_out(small: Experiment) -> None:
    Path(small.config.layout.scores("bon_mean/seed0", "hard")).unlink()
    assert said_of(small).startswith("GRPO has the highest mean max@128, 0.375. ")


def test_a_base_model_alone_is_compared_with_nothing(experiment: Callable[..., Experiment]) -> None:
    made = experiment(objectives={}).score_all({"base": {"easy": [0.5] * 6, "hard": [1.0] * 6}})
    assert said_of(made) == "Base model: max@1 0.750 [no spread], max@128 0.750 [no spread]."


def test_a_run_that_made_no_tables_names_the_folder(
    experiment: Callable[..., Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    exit_report.success(experiment().config)()
    assert capsys.readouterr().err == "maxk: done; open results/\n"


@pytest.mark.parametrize(
    "page",
    [
        "**maxk: experiment `small`**\n\n## What was run\n\nNothing.\n\n## max@1 and max@128\n\n| a |\n| - |\n| 1 |\n",
        "**maxk: experiment `small`**\n\n## Result\n\nGRPO.\n",
        "",
    ],
    ids=["of an earlier version", "without a table", "empty"],
)
def test_a_summary_without_a_result_and_a_table_is_not_shown(
    page: str, experiment: Callable[..., Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    config = experiment().config
    Path(config.layout.summary).parent.mkdir(parents=True, exist_ok=True)
    Path(config.layout.summary).write_text(page)
    exit_report.success(config)()
    assert capsys.readouterr().err == "maxk: done; open results/\n"


def test_sections_of_a_summary_are_found_by_their_titles(
    experiment: Callable[..., Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    config = experiment().config
    Path(config.layout.summary).parent.mkdir(parents=True, exist_ok=True)
    Path(config.layout.summary).write_text(
        "**maxk**\n\n## Limits\n\nL.\n\n## Result\n\nR.\n\n## max@1 and max@128\n\nT.\n"
    )
    exit_report.success(config)()
    assert capsys.readouterr().err.split() == ["T.", "R.", "maxk:", "done;", "open", "results/"]
