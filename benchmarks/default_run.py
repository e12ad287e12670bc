"""Where the time of the default experiment goes: wall time, CPU-seconds and busy cores, by stage.

    python benchmarks/default_run.py                                          # in a temporary folder, from nothing
    python benchmarks/default_run.py --configfile tests/configs/seconds.yaml

CPU-seconds of a stage are the kernel's, of a process and all its descendants that were waited for. (Snakemake's
benchmark files sample the processes of a job, and miss short-lived ones.) A `python` that precedes the real one on the
jobs' PATH measures each job. In bubblewrap no stage waits for graded programs. They become children of this process, so
that the whole run counts them; a row of their own holds what no stage counts.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
# Called as `python -m maxk STAGE …`.
MEASURED_PYTHON = """#!/bin/bash
TIMEFORMAT="$3 %R %U %S"
exec 3>&2
{{ time {python} "$@" 2>&3; }} 2> {folder}/$$
"""


class Used(NamedTuple):
    """Seconds of a whole run on `cores`; `cpu` is of all its processes, `snakemake` of that one alone."""

    cores: int
    wall: float
    cpu: float
    snakemake: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configfile", help="an experiment laid over the default")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = Path(folder, "measured")
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
        command += ["--directory", str(Path(folder, "run")), "--cores", str(args.cores)]
        if args.configfile:
            command += ["--configfile", str(Path(args.configfile).absolute())]
        path = f"{measuring(measured)}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        used = run(command, {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}, args.cores)
        report(jobs(measured), used)


def measuring(folder: Path) -> Path:
    """A folder for PATH whose `python` leaves the times of each call in `folder`."""
    shim = folder / "bin" / "python"
    shim.parent.mkdir(parents=True)
    shim.write_text(MEASURED_PYTHON.format(python=quote(sys.executable), folder=quote(str(folder))))
    shim.chmod(0o755)
    return shim.parent


def run(command: list[str], environment: dict[str, str], cores: int) -> Used:
    adopt_orphans()
    started = time.monotonic()
    process = subprocess.Popen(command, env=environment)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # /proc holds its times until it is waited for
    wall = time.monotonic() - started
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    if process.wait():
        sys.exit("the run failed")
    with contextlib.suppress(ChildProcessError):
        while os.wait():
            pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Used(cores, wall, used.ru_utime + used.ru_stime, own)


def adopt_orphans() -> None:
    """Makes this process the parent of all descendants whose own parent has ended."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def jobs(folder: Path) -> Iterator[tuple[str, float, float]]:
    """Stage, wall time and CPU-seconds of every call."""
    for path in folder.iterdir():
        if path.is_file():
            stage, wall, user, system = path.read_text().split()[-4:]
            yield stage, float(wall), float(user) + float(system)


def report(measured: Iterator[tuple[str, float, float]], used: Used) -> None:
    stages: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for stage, *times in measured:
        stages[stage].append((times[0], times[1]))
    print(f"\n{'stage':12s} {'jobs':>5s} {'wall s':>8s} {'CPU s':>8s}")
    for stage, calls in sorted(stages.items(), key=lambda item: -sum(cpu for _, cpu in item[1])):
        print(f"{stage:12s} {len(calls):5d} {sum(w for w, _ in calls):8.1f} {sum(c for _, c in calls):8.1f}")
    print(f"{'Snakemake':12s} {1:5d} {used.wall:8.1f} {used.snakemake:8.1f}")
    counted = used.snakemake + sum(cpu for calls in stages.values() for _, cpu in calls)
    print(f"{'programs':12s} {'':5s} {'':8s} {used.cpu - counted:8.1f}")
    busy = used.cpu / (used.wall * used.cores)
    print(f"\nwhole run: {used.wall:.0f} s, {used.cpu:.0f} CPU-s; {used.cores} cores {busy:.0%} busy")


if __name__ == "__main__":
    main()
