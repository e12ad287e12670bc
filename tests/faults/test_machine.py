"""A machine that fails its jobs: a full or read-only disk, a lost grading process, a tracking database that is locked
or gone. Each is reported in one line, nothing is lost, and the same command goes on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from maxk.artifacts import files
from pipeline import ENVIRONMENT, RESULTS, ROOT, command_of, maxk, maxk_command, snakemake, tables

TABLE = ("--", f"{RESULTS}/table2.csv")
UNSCORED = ("scores/base", "*.csv", "*.md", "*.tex")


def _lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What maxk said."""
    return [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("maxk")]


def _goes_on(folder: Path, finished: Path) -> None:
    done = snakemake(folder, *TABLE)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert tables(folder) == tables(finished)


def _content(folder: Path, patterns: Sequence[str]) -> dict[str, str]:
    """Digests of what a stage makes: not of logs, which hold times, nor of checkpoints, of which half may be there."""
    root = folder / RESULTS
    found = [path for pattern in patterns for place in root.glob(pattern) for path in (place, *place.rglob("*"))]
    made = [path for path in found if "checkpoints" not in path.parts]
    kept = [path for path in made if path.suffix in (".parquet", ".safetensors", ".csv", ".md", ".png")]
    return {str(path.relative_to(root)): files.digest(path) for path in kept}


# ------------------------------------------------------------------------------------------------------------- disk
@pytest.mark.parametrize(
    ("stage", "made", "free_kb"),
    [
        ("prepare pocket-short", ("data/pocket-short",), 0),
        ("train grpo --seed 0", ("policies/grpo",), 100),
        ("sample base --shard 0", ("samples/base/*/0.*", "drawn/base"), 4),
        ("verify base --shard 0", ("verdicts/base/*/0.*", "cache"), 4),
        ("score base", ("scores/base",), 0),
        ("table table2", ("table2.*",), 0),
        ("figure figure1", ("figure1.*",), 16),
    ],
)
def test_a_full_disk_is_one_line_and_costs_no_work(
    stage: str,
    made: tuple[str, ...],
    free_kb: int,
    finished: Path,
    unfinished: Callable[..., Path],
    tmp_path: Path,
    disk: Callable[[Path, str], None],
) -> None:
    folder, expected = tmp_path / "mounted", _content(finished, made)
    disk(folder, "size=64m")
    shutil.copytree(unfinished(*made, "ml*") / RESULTS, folder / RESULTS, dirs_exist_ok=True)
    filler = folder / RESULTS / "filler"
    with filler.open("wb", buffering=0) as handle, contextlib.suppress(OSError):
        while True:
            handle.write(bytes(4096))
    os.truncate(filler, filler.stat().st_size - 1024 * free_kb)
    done = maxk(folder, *stage.split())
    assert done.returncode == 2, done.stderr
    [line] = _lines(done)
    assert line.startswith(f"maxk {stage.split()[0]}: ")
    assert "the disk is full; free some space and run again: finished work is kept" in line
    assert "Traceback" not in done.stderr
    assert _content(folder, made).items() <= expected.items(), "what is there is whole"
    filler.unlink()
    done = maxk(folder, *stage.split())
    assert done.returncode == 0, done.stderr
    assert _content(folder, made) == expected
    assert not list(folder.rglob("*.partial"))


def test_read_only_results(
    finished: Path, unfinished: Callable[..., Path], tmp_path: Path, disk: Callable[[Path, str], None]
) -> None:
    folder = tmp_path / "mounted"
    disk(folder, "size=64m")
    shutil.copytree(unfinished(*UNSCORED) / RESULTS, folder / RESULTS, dirs_exist_ok=True)
    disk(folder, "ro")
    done = snakemake(folder, *TABLE)
    assert done.returncode == 1
    assert len(_lines(done)) == 1, done.stdout + done.stderr
    [line] = _lines(done)
    assert "the file system is read-only; mount it for writing" in line
    assert "Traceback" not in done.stderr
    disk(folder, "rw")
    _goes_on(folder, finished)


# ---------------------------------------------------------------------------------------------------------- grading
def test_a_grading_process_killed_in_training(unfinished: Callable[..., Path]) -> None:
    """It is told, and the training ends as an undisturbed one."""
    folder = unfinished()
    path = folder / RESULTS / "config.json"
    config = json.loads(path.read_text())
    config["training"] |= {"epochs": 6.0}
    path.write_text(json.dumps(config))
    _train(folder, 1).communicate()
    shutil.rmtree(folder / RESULTS / "cache")  # or nothing would have to be graded
    log = folder / RESULTS / "policies/grpo/seed1/metrics.jsonl"
    undisturbed = _steps(log)
    log.unlink()
    (log.parent / "policy.json").unlink()
    shutil.rmtree(log.parent / "model")

    training = _train(folder, 1)
    while not log.exists() or not log.read_text().count("\n"):
        assert training.poll() is None
        time.sleep(0.01)
    _servers(training.pid)[0].kill()
    _, said = training.communicate()
    assert training.returncode == 0, said
    assert "grading processes ended 1 time and were replaced; what they ran was run again" in said
    assert _steps(log) == undisturbed


def test_one_of_two_training_processes_killed(unfinished: Callable[..., Path]) -> None:
    """The job ends with one line and leaves no process; the next start continues from the checkpoint."""
    folder = unfinished()
    path = folder / RESULTS / "config.json"
    config = json.loads(path.read_text())
    config["training"] |= {"epochs": 2.0, "processes": 2, "checkpoint_every": 1}
    path.write_text(json.dumps(config))
    log = folder / RESULTS / "policies/grpo/seed1/metrics.jsonl"
    training = _train(folder, 1)
    while not log.exists() or log.read_text().count("\n") < 2:
        assert training.poll() is None
        time.sleep(0.01)
    started = psutil.Process(training.pid).children(recursive=True)
    [second] = [one for one in started if one.environ().get("RANK") == "1" and "train" in one.cmdline()]
    second.kill()
    _, said = training.communicate(timeout=60)
    assert training.returncode == 128 + signal.SIGKILL
    [line] = [line for line in said.splitlines() if line.startswith("maxk ")]
    assert "process 1 was killed (SIGKILL)" in line
    assert "Traceback" not in said
    assert not psutil.wait_procs(started, timeout=10)[1]
    _, said = _train(folder, 1).communicate()
    assert [step["step"] for step in _steps(log)] == list(range(1, 9)), said


def _train(folder: Path, seed: int) -> subprocess.Popen[str]:
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "src")}
    command = maxk_command("train", "grpo", "--seed", str(seed))
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env=environment)


def _steps(log: Path) -> list[dict[str, float]]:
    """What a training log says, but for times."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [{key: value for key, value in line.items() if "time" not in key} for line in lines]


def _servers(pid: int) -> list[psutil.Process]:
    """The interpreters that programs are forked from, not the shells and sandboxes around them."""
    commands = {one: command_of(one) for one in psutil.Process(pid).children(recursive=True)}
    return [
        one
        for one, command in commands.items()
        if command and "python" in command[0] and any("confined/__main__.py" in part for part in command)
    ]


# --------------------------------------------------------------------------------------------------------- tracking
@contextlib.contextmanager
def _locked(database: Path) -> Iterator[None]:
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.close()


def test_a_locked_database_of_the_tracker(finished: Path, unfinished: Callable[..., Path]) -> None:
    folder = unfinished(*UNSCORED)
    with _locked(folder / RESULTS / "mlflow.db"):
        done = snakemake(folder, *TABLE)
    assert done.returncode == 1
    assert any("tracking: MLflow" in line and "locked" in line for line in _lines(done)), done.stdout[-3000:]
    _goes_on(folder, finished)


def test_a_database_that_was_lost(finished: Path, unfinished: Callable[..., Path]) -> None:
    """Files are the truth: the tracker says what to delete, and starts anew where there is no database."""
    folder = unfinished(*UNSCORED)
    database = folder / RESULTS / "mlflow.db"
    database.write_text("not a database, " * 100)
    done = snakemake(folder, *TABLE)
    assert done.returncode == 1
    assert any("tracking: MLflow" in line and str(RESULTS) in line for line in _lines(done)), done.stdout[-3000:]
    database.unlink()
    _goes_on(folder, finished)
    assert database.exists()
