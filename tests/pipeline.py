"""The seconds-scale experiment through the real command line and Snakemake, for the tests that run it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
RESULTS = "results/seconds"
UNTRACKED = "tracking={enabled: false}"  # for --config: MLflow takes longer than most jobs
TABLES = ["table2.csv", "table3.csv", "statistics.csv", "paired_tests.csv", "comparison.csv", "figure1.png"]
# The environment's bin folder first, as `make` and an activated environment have it.
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def command(folder: Path, *arguments: str) -> list[str]:
    return [
        *(sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)),
        *("--configfile", str(ROOT / "tests" / "configs" / "seconds.yaml"), "--cores", "2", *arguments),
    ]


def maxk_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "maxk", *arguments, "--config", f"{RESULTS}/config.json"]


def maxk(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One stage in the folder of an experiment."""
    return subprocess.run(
        maxk_command(*arguments),
        **{"cwd": folder, "env": {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "src")}},
        **{"capture_output": True, "text": True, "check": False, "timeout": 1800},
    )


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs to the end; stdout and stderr as text."""
    return subprocess.run(
        command(folder, *arguments), capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=1800
    )


def planned(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Jobs of every rule that a dry run would run, from its table of job counts."""
    counts = re.findall(r"^ ?(\w+) +(\d+) *$", done.stdout + done.stderr, re.MULTILINE)
    return {rule: int(count) for rule, count in counts if rule != "total"}


class Background:
    """Snakemake in a session of its own, so that a signal can reach it alone or with all its jobs."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._said = (folder / "said").open("w+")
        self._process = subprocess.Popen(
            command(folder, *arguments),
            start_new_session=True,
            # A shell's background jobs, such as these tests may be one of, ignore Ctrl-C and hand that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            env=ENVIRONMENT,
        )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals, jobs: bool) -> None:
        """Sends a signal to Snakemake, with or without its jobs."""
        (os.killpg if jobs else os.kill)(self._process.pid, number)

    def jobs(self, stage: str) -> list[psutil.Process]:
        """The processes of a stage."""
        below = psutil.Process(self._process.pid).children(recursive=True)
        return [one for one in below if command_of(one)[1:4] == ["-m", "maxk", stage]]

    def at_work(self) -> list[str]:
        """The commands of the jobs that are running."""
        below = psutil.Process(self._process.pid).children(recursive=True)
        jobs = [command_of(one) for one in below]
        return sorted({" ".join(job[3:]) for job in jobs if job[1:3] == ["-m", "maxk"]})

    def wait(self) -> subprocess.CompletedProcess[str]:
        """How it ended, with all that it said."""
        status = self._process.wait(timeout=1800)
        return subprocess.CompletedProcess(self._process.args, status, self.said(), "")

    def said(self) -> str:
        self._said.seek(0)
        return self._said.read()


class Held:
    """A run of which one job, `maxk score base`, is held (SIGSTOP) at work until it is let go."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.run = Background(folder, *arguments)
        while not (found := self.run.jobs("score")):
            assert self.run.running, self.run.said()[-3000:]
            time.sleep(0.02)
        self._jobs = found
        for job in self._jobs:
            job.suspend()

    def let_go(self) -> None:
        for job in self._jobs:
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends with the one before it, which started it
                job.resume()

    def asked_to_stop(self, number: signal.Signals, jobs: bool) -> subprocess.CompletedProcess[str]:
        """How the run ended that got a signal while its job was held."""
        self.run.signal(number, jobs)
        time.sleep(0.5)  # Snakemake reacts before its job ends, also on a busy machine
        self.let_go()
        return self.run.wait()


def past_start(process: psutil.Process) -> bool:
    """Whether a job has left the start of Python itself, in which Ctrl-C ends in a traceback, or has ended."""
    try:
        used = process.cpu_times()
    except psutil.NoSuchProcess:
        return True
    return used.user + used.system > 0.2


def command_of(process: psutil.Process) -> list[str]:
    """The command line of a process; empty for one that has ended meanwhile."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def tables(folder: Path) -> dict[str, bytes]:
    """The content of every table and of a figure."""
    return {name: (folder / RESULTS / name).read_bytes() for name in TABLES}
