"""Time of tables, figures and summary from made-up scores: for the default experiment with its tracking, and at the
paper's size (5 datasets × 12 policies × 1,000 problems × 256 samples). CPU-seconds beside wall-clock time, for machines
with other load.

    python benchmarks/reporting.py
    python benchmarks/reporting.py --seeds 3 --keep /tmp/report

Scores are drawn from Beta distributions and written as by the `score` stage, training logs as by `train`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from maxk import config as configuration
from maxk import estimators
from maxk.artifacts import files, records
from maxk.artifacts.paths import BASE
from maxk.artifacts.records import Policy, Provenance
from maxk.config import Config
from maxk.tracking import mirror

DATASETS = ("contests", "live", "bench", "forces", "basic")
PAPER = ("codecontests", "livecodebench", "livebench", "codeforces", "mbpp")
OBJECTIVES = {
    "grpo": {"type": "grpo"},
    "grpo_binary": {"type": "grpo_binary"},
    "bon_max_second": {"type": "bon_max_second"},
    "bon_max_mean": {"type": "bon_max_mean"},
    "bon_loo1": {"type": "bon_loo1", "k": 4},
    "bon_mean": {"type": "bon_mean", "k": 4},
    "bon_offpolicy": {"type": "bon_offpolicy", "k": 4, "training": {"iterations": 3}},
    "bon_offpolicy_exact": {"type": "bon_offpolicy_exact", "k": 4, "training": {"iterations": 3}},
    "grpo_4epochs": {"type": "grpo", "training": {"epochs": 4}},
    "grpo_3iterations": {"type": "grpo", "training": {"iterations": 3}},
    "grpo_3iterations_4epochs": {"type": "grpo", "training": {"iterations": 3, "epochs": 4}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=1000, help="of each dataset at the paper's size")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder to work in and to leave the files in")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for name, config in (("default", default(args)), ("paper", at_paper_size(args))):
            folder = (args.keep or Path(temporary)).absolute() / name
            folder.mkdir(parents=True, exist_ok=True)
            os.chdir(folder)
            files.write_json(config.layout.config, config.model_dump(mode="json"))
            mirror.start(config)
            write_scores(config)
            write_logs(config)
            print(f"{name}: {len(config.evaluated)} datasets × {len(config.policies)} policies")
            commands = (["table", "all"], ["figure", "all"], ["summary"])
            walls, cpus = zip(*(timed(command) for command in commands), strict=True)
            print(f"{'total':<24}{sum(walls):6.1f} s, {sum(cpus):6.1f} CPU-s")


def default(args: argparse.Namespace) -> Config:
    changes = {"seeds": list(range(args.seeds)), "sampling": {"n": args.samples}}
    return configuration.parse(configuration.overlay(configuration.read_yaml(configuration.DEFAULTS), changes))


def at_paper_size(args: argparse.Namespace) -> Config:
    data = {
        "source": "pocket",
        "transforms": [1],
        "open_operations": [1],
        "rare": 0.1,
        "readings": [0.5, 0.3, 0.2],
    }
    return configuration.parse(
        {
            "seeds": list(range(args.seeds)),
            "base": {"source": "hub", "model": "none"},
            "datasets": {
                name: {**data, "train": 1, "test": args.problems, "paper": paper}
                for name, paper in zip(DATASETS, PAPER, strict=True)
            },
            "objectives": OBJECTIVES,
            "training": {"datasets": [DATASETS[0]]},
            "sampling": {"n": args.samples, "chunk": args.samples},
            "tracking": {"enabled": False},
        }
    )


def write_logs(config: Config) -> None:
    """Logs of 120 generation batches with rising values, and the policies that they belong to."""
    rng = np.random.default_rng(0)
    for policy in config.policies[1:]:
        path = Path(config.layout.metrics(policy))
        path.parent.mkdir(parents=True, exist_ok=True)
        n = config.training_of(policy.split("/")[0]).num_generations
        keys = ("reward", "kl", "entropy", "ratio_q99", "train_max@1", f"train_max@{n}")
        noise = rng.normal(0, 0.05, size=(120, len(keys)))
        lines = (dict(zip(keys, map(float, 0.5 + step / 400 + noise[step]), strict=True)) for step in range(120))
        path.write_text("".join(json.dumps({"step": step, **line}) + "\n" for step, line in enumerate(lines, 1)))
        files.write_policy(config.layout.policy(policy), Policy(policy, policy, "none"))


def write_scores(config: Config) -> None:
    """Policies differ in mean and spread, so their curves cross."""
    rng = np.random.default_rng(0)
    settings = {**config.settings("sample"), **config.settings("verify"), **config.settings("score")}
    for dataset, hardness in zip(config.evaluated, (1.5, 2.0, 4.0, 6.0, 3.0), strict=True):
        problems = int(config.datasets[dataset].model_dump()["test"])
        ease = rng.beta(0.6, hardness, size=problems)
        for index, policy in enumerate(config.policies):
            spread = 2.0 + 0.5 * index
            shape = (problems, config.sampling.n)
            raw = rng.beta(spread * ease[:, None] + 0.02, spread * (1 - ease[:, None]) + 0.02, size=shape)
            rewards = np.sort(np.round(raw * 8) / 8, axis=1)
            right = (rewards == 1).sum(axis=1)
            columns = {
                "problem_id": [f"{dataset}-{i:04d}" for i in range(problems)],
                "n": [config.sampling.n] * problems,
                "c": right.tolist(),
                "rewards": list(rewards),
                "max_at_k": list(estimators.max_at_k(rewards, list(config.report.ks))),
                "pass_at_k": list(estimators.pass_at_k(config.sampling.n, right, list(config.report.ks))),
                "mean_tokens": [100.0] * problems,
                "truncated": [0.01] * problems,
                "stopped": [0.0] * problems,
                "entropies": list(rng.gamma(3.0, 0.2 / (1 + 0.1 * index), size=shape).astype(np.float32)),
            }
            source = Provenance(
                stage="score",
                experiment=config.name,
                settings=settings,
                inputs={"problems": dataset, "policy": policy},
                environment={"sandbox": "none (made up)", "backend": "none (made up)"},
                lineage=lineage(config, policy),
            )
            files.write_table(config.layout.scores(policy, dataset), columns, records.SCORE, source)


def lineage(config: Config, policy: str) -> dict[str, Any]:
    """The lineage that `train` would write."""
    objective = policy.split("/")[0]
    if policy == BASE:
        return {"settings": config.settings("base")}
    return {"settings": config.settings("train", objective=objective), "base": BASE, "data": {}}


def timed(command: list[str]) -> tuple[float, float]:
    """Wall-clock and CPU-seconds of a command."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "maxk", *command, "--config", "results/config.json"], check=True)
    wall, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    print(f"maxk {' '.join(command):<19}{wall:6.1f} s, {cpu:6.1f} CPU-s", flush=True)
    return wall, cpu


if __name__ == "__main__":
    main()
