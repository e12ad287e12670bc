"""Long work says how far it is, also while it completes nothing."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from maxk import cli
from maxk.progress import Progress


def test_a_program_that_loops_has_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("maxk.progress.STILL_AFTER_S", 0.3)
    problem = {"problem_id": "loops", "tests": [{"stdin": "", "expected": "1"}], "time_limit_s": 2}
    sample = {"problem_id": "loops", "program": "while True: pass"}
    for name, row in {"problems": problem, "samples": sample}.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    assert cli.main(["grade", str(tmp_path / "problems.jsonl"), str(tmp_path / "samples.jsonl")]) == 0
    said = capsys.readouterr().err
    still = re.findall(r"^grade: 0/1 in 00:0(\d), nothing new for 00:0(\d)$", said, re.MULTILINE)
    assert len(still) >= 4, said
    assert still[-1][0] >= "1"
    assert said.index("nothing new") < said.index("grade: 1/1 in 00:0")


def test_silence_is_counted_from_the_last_completed_item(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("maxk.progress.STILL_AFTER_S", 60.0)
    now = [100.0]
    monkeypatch.setattr("maxk.progress.time.monotonic", lambda: now[0])
    with Progress(8, "work", done=2) as progress:
        now[0] += 600
        progress.advance(3)
        assert progress.due_s(60.0) <= 60.0
        now[0] += 45
        progress.still()
        assert progress.due_s(60.0) == 60.0
    assert "work: 5/8 in 00:00, nothing new for 00:45\n" in capsys.readouterr().err


def test_a_bar_that_tqdm_is_asked_to_leave_out_says_nothing() -> None:
    run = "import time, maxk.progress as p; p.STILL_AFTER_S = 0.05; bar = p.Progress(2, 'work'); time.sleep(0.5)"
    done = subprocess.run([sys.executable, "-c", run], env={**os.environ, "TQDM_DISABLE": "1"}, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("ends", [Progress.close, lambda progress: None], ids=["closed", "dropped"])
def test_nothing_is_said_of_work_that_has_ended(
    ends: Callable[[Progress], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exception may drop it unclosed."""
    monkeypatch.setattr("maxk.progress.STILL_AFTER_S", 0.05)
    progress = Progress(8, "work")
    [watch] = watches()
    ends(progress)
    del progress
    watch.join(timeout=5)
    assert not watches()
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr().err == ""


def watches() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if "_watch" in one.name]


def test_the_last_line_says_nothing_of_time_that_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(2, "work") as progress:
        progress.advance(2, "reward 0.5")
    assert capsys.readouterr().err.splitlines()[-1] == "work: 2/2 in 00:00, reward 0.5"


def test_time_that_is_left_is_estimated_from_a_twentieth_of_the_work_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Of work that is continued, of the rest."""
    with Progress(140, "work", done=40) as progress:
        for done in (4, 1):
            progress.advance(done)
            progress.refresh()
    early, late = capsys.readouterr().err.splitlines()[-3:-1]
    assert re.fullmatch(r"work: 44/140 in 00:\d\d", early)
    assert re.fullmatch(r"work: 45/140 in 00:\d\d, about \d\d:\d\d left", late)


def test_a_bar_estimates_no_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", screen)
    with Progress(100, "work") as progress:
        for done in (4, 1):
            progress.advance(done)
            progress.refresh()
    assert re.search(r"4/100 \[00:\d\d, ", screen.getvalue())
    assert not re.search(r" 4/100 \[[^]]*<", screen.getvalue())
    assert re.search(r"5/100 \[00:\d\d<00:\d\d, ", screen.getvalue())
