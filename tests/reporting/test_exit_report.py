"""What a run prints: first how to see its progress, last the result in a table and two sentences, and what to open."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from made_up import Experiment, write_statistics

from maxk import cli
from maxk.reporting import exit_report, summary
from maxk.reporting.load import load

CHOSEN = "No correction is made for choosing the best of 3 policies."
ONE_SEED = "One training seed: no claim about methods, only about these trained policies."


def test_a_run_begins_with_a_command_that_shows_how_far_its_jobs_are(
    experiment: Callable[..., Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    config = experiment().config
    exit_report.start(config)
    log = Path(config.layout.log("train", "grpo/seed0"))
    log.parent.mkdir(parents=True)
    log.write_text("train: 1/32\ntrain: 2/32\n")
    command = capsys.readouterr().err.removeprefix("maxk: to see how far each job is, in another terminal: ")
    shown = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == [f"==> {log} <==", "train: 2/32"]


@pytest.mark.parametrize("report", [True, False])
def test_a_run_with_nothing_to_do_says_what_to_open(report: bool, experiment: Callable[..., Experiment]) -> None:
    """Snakemake itself says that there is nothing to do, and calls no hook; a target may be made without a report."""
    layout = experiment().config.layout
    if report:
        Path(layout.report).parent.mkdir(parents=True, exist_ok=True)
        Path(layout.report).write_text("<html>")
    code = f"""
import logging
from maxk import config
from maxk.reporting import exit_report
logger = logging.getLogger("snakemake")
logger.addHandler(exit_report.NothingToDo(config.load({layout.config!r})))
logger.setLevel("INFO")
logger.info("Conda environments: ignored")
logger.info("Nothing to be done (all requested files are present and up to date).")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == f"maxk: nothing to do; open results/{'report.html' if report else ''}\n"


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
    end = (
        "BoN mean has the highest mean max@128, 0.620. It is above GRPO (+0.300 [no spread]) and the base model "
        f"(+0.200 [no spread]). {CHOSEN} {ONE_SEED}"
    )
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
        f"base model (+0.200 [no spread]). {CHOSEN} {ONE_SEED}"
    )


def test_what_is_and_what_is_not_decided_are_two_parts(experiment: Callable[..., Experiment]) -> None:
    made = constant(experiment(), grpo=-0.3)
    for dataset in ("easy", "hard"):
        made.score("bon_mean/seed0", dataset, [1.0, 0.12] * 6)  # 0.56 beside 0.42 and 0.12
    assert re.match(
        r"BoN mean has the highest mean max@128, 0\.560\. It is above GRPO \(\+0\.440 \[\+.*\]\); "
        r"not distinguishable from the base model \(\+0\.140 \[−.*\]\)\.",
        said_of(made),
    )


def test_equal_policies_share_the_highest_mean(experiment: Callable[..., Experiment]) -> None:
    made = constant(experiment(), grpo=0.1, bon_mean=0.1)
    assert said_of(made) == (
        "GRPO and BoN mean share the highest mean max@128, 0.520. GRPO is above the base model (+0.100 [no spread]). "
        f"{CHOSEN} {ONE_SEED}"
    )
    made = constant(experiment(), grpo=0.0, bon_mean=-0.1)
    assert said_of(made) == f"Base model and GRPO share the highest mean max@128, 0.420. {ONE_SEED}"
    made = constant(experiment(), grpo=0.0, bon_mean=0.0)
    assert said_of(made) == f"Base model, GRPO and BoN mean share the highest mean max@128, 0.420. {ONE_SEED}"


def test_the_base_model_may_have_the_highest_mean(experiment: Callable[..., Experiment]) -> None:
    made = constant(experiment(), grpo=-0.1, bon_mean=-0.1)
    assert said_of(made) == (
        "Base model has the highest mean max@128, 0.420. It is above the second, GRPO (+0.100 [no spread]). "
        f"{CHOSEN} {ONE_SEED}"
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


@pytest.mark.parametrize(("width", "cells"), [(80, "0.500 0.000 0.500 0.000"), (120, "0.500 [0.270, 0.730] ")])
def test_the_table_of_a_base_model_alone_is_in_one_piece(
    width: int,
    cells: str,
    experiment: Callable[..., Experiment],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Intervals go where it is too wide with them (0.5 ± 2.571 · 0.219 / √6); the result has those of the mean."""
    monkeypatch.setenv("COLUMNS", str(width))
    made = experiment(objectives={}).score_all({"base": {"easy": [0.3, 0.7] * 3, "hard": [0.2, 0.8] * 3}})
    summarised(made)
    exit_report.success(made.config)()
    said = capsys.readouterr().err
    [row] = [line for line in said.splitlines() if line.strip().startswith("easy")]
    assert " ".join(row.split()).startswith(f"easy {cells}")
    assert max(map(len, said.splitlines())) <= width
    assert ("All columns and intervals: results/summary.md." in said) is (width == 80)
    assert re.search(r"Base model: max@1 0\.500 \[0\.\d+, 0\.\d+\], max@128", said)


def test_a_run_that_made_no_tables_names_the_folder(
    experiment: Callable[..., Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    exit_report.success(experiment().config)()
    assert capsys.readouterr().err == "maxk: done; open results/\n"


def summarised(made: Experiment) -> Path:
    """With a summary, which a run ends with; its path."""
    write_statistics(made)
    return Path(summary.write(load(made.config), made.config))


def told(made: Experiment, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    exit_report.success(made.config)()
    return capsys.readouterr().err.splitlines()


OUTDATED = [
    "maxk: results/summary.md: changed, or of other scores; make it again: `maxk summary --config results/config.json`",
    "maxk: done; open results/",
]


def test_a_summary_of_other_scores_is_not_shown(small: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    summarised(small)
    assert "maxk: results/summary.md" not in " ".join(told(small, capsys))
    small.score("grpo/seed0", "hard", [1.0] * 4)
    write_statistics(small)
    assert told(small, capsys) == OUTDATED
    assert cli.main(["summary"]) == 0
    assert any("GRPO has the highest" in line for line in told(small, capsys))


@pytest.mark.parametrize(
    "change",
    [lambda text: text.replace("0.500", "0.900"), lambda text: text[: len(text) // 2], lambda text: ""],
    ids=["edited", "cut short", "empty"],
)
def test_a_summary_that_was_changed_is_not_shown(
    change: Callable[[str], str], small: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    path = summarised(small)
    path.write_text(change(path.read_text()))
    assert told(small, capsys) == OUTDATED


def test_a_summary_of_an_earlier_version_or_of_another_k_is_not_shown(
    small: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    path = summarised(small)
    record = Path(small.config.layout.written(str(path)))
    known = record.read_bytes()
    record.unlink()
    assert told(small, capsys) == OUTDATED
    record.write_bytes(known)
    small.config = small.config.model_copy(update={"report": small.config.report.model_copy(update={"headline_k": 2})})
    assert told(small, capsys) == OUTDATED
