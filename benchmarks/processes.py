"""Training in two processes against one: seconds a generation batch, and throughput per GPU.

    python benchmarks/processes.py --config config/mini.yaml --model PATH  # two GPUs, four minutes
    python benchmarks/processes.py --config tests/configs/seconds.yaml  # a dry run on a CPU

Trains one policy twice by `maxk train`, in one process and in two (DDP), for one epoch in batches of the same size, one
training after the other, in results/processes. Everything else on the machine must be idle. Prints the median time of a
generation batch after the first two, which warm up, and the ratio of the throughputs per process, which is at best 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import yaml

from maxk import config as configuration

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "processes"
PROCESSES = {"one": 1, "two": 2}
WARM_UP = 2  # batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=str(ROOT / "config" / "mini.yaml"), help="laid over the default experiment")
    parser.add_argument("--model", help="the base model, a folder, in place of the experiment's")
    parser.add_argument("--objective", default="grpo", help="a type without keys")
    args = parser.parse_args()
    prepare(args, objectives(args.objective), {"gpus": 2 if torch.cuda.is_available() else 0})
    seconds = {name: train(name) for name in PROCESSES}
    for name, processes in PROCESSES.items():
        print(f"{processes} process{'es' if processes > 1 else '':2s} {seconds[name]:6.2f} s a generation batch")
    print(f"throughput per process: {seconds['one'] / seconds['two'] / PROCESSES['two']:.2f} of that of one")


def objectives(kind: str) -> dict[str, Any]:
    """A policy trained in one process, and in two."""
    sharding = {"accelerate": "config/accelerate/ddp.yaml"} if torch.cuda.is_available() else {}
    return {"one": {"type": kind}, "two": {"type": kind, "training": {"processes": 2, **sharding}}}


def prepare(args: argparse.Namespace, objectives: dict[str, Any], changes: dict[str, Any]) -> None:
    """Makes the base policy and the problems of an experiment of these objectives, of one epoch and one seed."""
    shutil.rmtree(RESULTS, ignore_errors=True)
    own = {
        "name": RESULTS.name,
        "seeds": [0],
        "objectives": objectives,
        "training": {"gpu": 1, "epochs": 1, "checkpoint_every": 10_000},
        "tracking": {"enabled": False},
        **({"base": {"model": args.model}} if args.model else {}),
        **changes,
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(own, file)
        file.flush()
        datasets = configuration.read_yaml(args.config)["training"]["datasets"]
        files = ["policies/base/policy.json", *(f"data/{dataset}/problems.parquet" for dataset in datasets)]
        command = [sys.executable, "-m", "snakemake", "--cores", "all", "--configfile", args.config, file.name]
        command += ["--", *(f"results/{RESULTS.name}/{name}" for name in files)]
        subprocess.run(command, cwd=ROOT, check=True)


def train(name: str) -> float:
    """Trains the policy, and returns the median time of a generation batch."""
    command = [sys.executable, "-m", "maxk", "train", name, "--seed", "0", "--config", str(RESULTS / "config.json")]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    return statistics.median(step["step_time"] for step in steps(name)[WARM_UP:])


def steps(name: str) -> list[dict[str, Any]]:
    """What the training logged of every generation batch."""
    log = RESULTS / "policies" / name / "seed0" / "metrics.jsonl"
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    return [step for step in logged if "step_time" in step]


if __name__ == "__main__":
    main()
