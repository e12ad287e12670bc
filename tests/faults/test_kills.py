"""Runs that are killed, stopped or doubled end with the tables of an undisturbed one."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from pipeline import RESULTS, TABLES, UNTRACKED, Background, Held, past_start, snakemake, tables

KILLS = 4
SEED = 7
ALL_TABLES = ("--", *(f"{RESULTS}/{name}" for name in TABLES))
# What the killed runs make: all but the base policy, which is pretraining for most of its time, and a second training.
WORK = ("data/pocket-short", "policies/grpo", "samples", "drawn", "verdicts", "cache", "scores", "*.csv", "*.png")


def test_killed_at_random_moments(finished: Path, unfinished: Callable[..., Path]) -> None:
    """kill -9 of Snakemake and all jobs, then the same command, again and again over as many runs as it takes.

    A moment is a number of jobs that end first and a time after them, so that kills spread over the DAG on any machine.
    """
    moments, kills = random.Random(SEED), 0
    print(f"\nseed {SEED}")
    while kills < KILLS:
        folder = unfinished(*WORK)
        while kills < KILLS and (hit := _killed(folder, moments.randint(0, 3), moments.uniform(0, 10))):
            kills += 1
            print(f"kill {kills}: {hit}", flush=True)
        done = snakemake(folder, *ALL_TABLES)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        assert tables(folder) == tables(finished)
        assert not list(folder.rglob("*.partial")), "what a killed writer left"
        shutil.rmtree(folder)


def _killed(folder: Path, ended: int, more_s: float) -> str:
    """Starts a run and kills it; says when and in which jobs. Empty where the run was done before."""
    start = time.time()
    run = Background(folder, *ALL_TABLES)
    while run.running and _ended(folder, start) < ended:
        time.sleep(0.05)
    time.sleep(more_s)
    if not run.running:
        assert run.wait().returncode == 0, run.said()[-3000:]
        return ""
    hit = ", ".join(run.at_work()) or "between jobs"
    run.signal(signal.SIGKILL, jobs=True)
    run.wait()
    return f"{more_s:.1f} s after {ended} jobs: {hit}"


def _ended(folder: Path, start: float) -> int:
    """The jobs that have ended since `start`: Snakemake writes their times when they end."""
    times = (folder / RESULTS / "benchmarks").rglob("*.tsv")
    return sum(path.stat().st_mtime >= start for path in times)


# ---------------------------------------------------------------------------------------------------- asked to stop
TABLE = ("--config", UNTRACKED, "--", f"{RESULTS}/table2.csv")
UNSCORED = ("scores/base", "table2.*")


def _goes_on(folder: Path, finished: Path) -> None:
    done = snakemake(folder, *TABLE)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert tables(folder) == tables(finished)


def test_a_run_asked_to_stop_ends_its_jobs_and_goes_on_later(finished: Path, unfinished: Callable[..., Path]) -> None:
    """SIGTERM, as `kill` and a batch system send it, to Snakemake alone: running jobs end, no other begins."""
    folder = unfinished(*UNSCORED)
    done = Held(folder, *TABLE).asked_to_stop(signal.SIGTERM, jobs=False)
    assert done.returncode == 1
    assert "run the same command again" in done.stdout
    assert "Traceback" not in done.stdout
    assert (folder / RESULTS / "scores/base/pocket-short.parquet").exists()
    assert not (folder / RESULTS / "table2.csv").exists()
    _goes_on(folder, finished)


def test_ctrl_c_is_one_line_that_says_how_to_go_on(finished: Path, unfinished: Callable[..., Path]) -> None:
    """Also where it is pressed twice; the interrupted jobs are not told as failed ones."""
    folder = unfinished(*UNSCORED)
    held = Held(folder, *TABLE)
    before = held.run.said()
    held.run.signal(signal.SIGINT, jobs=True)
    done = held.asked_to_stop(signal.SIGINT, jobs=True)
    assert done.returncode == 128 + signal.SIGINT
    said = [line for line in done.stdout[len(before) :].splitlines() if line.strip()]
    assert [line for line in said if line != "maxk score: interrupted"] == [  # that is in its log
        "maxk: interrupted; finished work is kept, the same command continues where it stopped"
    ]
    _goes_on(folder, finished)


def test_ctrl_c_before_any_job(unfinished: Callable[..., Path]) -> None:
    folder = unfinished(*UNSCORED)
    run = Background(folder, *TABLE)
    while run.running and not (found := run.jobs("configure")):
        time.sleep(0.01)
    while not all(map(past_start, found)):
        time.sleep(0.01)
    run.signal(signal.SIGINT, jobs=True)
    done = run.wait()
    assert done.returncode == 128 + signal.SIGINT
    assert "Traceback" not in done.stdout
    assert "killed" not in done.stdout
    line = "maxk: interrupted; finished work is kept, the same command continues where it stopped"
    said = [said for said in done.stdout.splitlines() if "interrupted" in said]
    assert sorted(said) in ([line], ["maxk configure: interrupted", line])  # the hook ends by itself


# -------------------------------------------------------------------------------------------------- two in a folder
def test_two_runs_in_one_folder(finished: Path, unfinished: Callable[..., Path]) -> None:
    """The second is refused while the first is at work; a job that outlives its killed run does no harm."""
    folder = unfinished(*UNSCORED)
    held = Held(folder, *TABLE)
    refused = snakemake(folder, *TABLE)
    assert refused.returncode == 1
    [line] = [line for line in refused.stderr.splitlines() if line.startswith("maxk")]
    assert line.startswith("maxk: results/seconds: another run is using it")
    held.run.signal(signal.SIGKILL, jobs=False)
    held.run.wait()
    _goes_on(folder, finished)
    held.let_go()
    _goes_on(folder, finished)
