"""Where the time of the default experiment goes: wall clock, CPU-seconds and idle share, by stage.

    python benchmarks/default_run.py                                          # in a temporary folder, from nothing
    python benchmarks/default_run.py --configfile tests/configs/seconds.yaml

CPU-seconds of the whole are the kernel's, of every process the run started and waited for; those of a stage come from
Snakemake's benchmark files, which sample a job's processes and miss short-lived ones. Idle is the share of the cores'
time in which no process of the run computed.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configfile", help="an experiment laid over the default")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", folder]
        command += ["--cores", str(args.cores)]
        if args.configfile:
            command += ["--configfile", str(Path(args.configfile).absolute())]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
        started = time.monotonic()
        subprocess.run(command, check=True, env=environment)
        wall = time.monotonic() - started
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        report(Path(folder), wall, used.ru_utime + used.ru_stime, args.cores)


def report(folder: Path, wall: float, cpu: float, cores: int) -> None:
    stages: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for path in sorted(folder.glob("results/**/benchmarks/**/*.tsv")):
        parts = path.relative_to(folder).parts
        stage = parts[parts.index("benchmarks") + 1].removesuffix(".tsv")
        with path.open(newline="") as handle:
            [row] = csv.DictReader(handle, delimiter="\t")
        stages[stage].append((float(row["s"]), float(row["cpu_time"])))
    print(f"\n{'stage':12s} {'jobs':>5s} {'wall s':>8s} {'CPU s':>8s}")
    for stage, jobs in sorted(stages.items(), key=lambda item: -sum(wall for wall, _ in item[1])):
        print(f"{stage:12s} {len(jobs):5d} {sum(w for w, _ in jobs):8.1f} {sum(c for _, c in jobs):8.1f}")
    print(f"\nwhole run: {wall:.0f} s on {cores} cores, {cpu:.0f} CPU-s, idle {1 - cpu / (wall * cores):.1%}")


if __name__ == "__main__":
    main()
