"""How rewards of the pocket policies move during training, from the logs alone.

    python benchmarks/pocket_training.py results/study
    python benchmarks/pocket_training.py results            # the default experiment

No batch of a training of one epoch repeats a problem, so its rewards are those of the policy on unseen training
problems. Means over the first and the last quarter of the batches, and over seeds; in brackets every seed.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

COLUMNS = (("reward", 0), ("reward", -1), ("train_max@8", 0), ("train_max@8", -1), ("kl", -1))


def main(root: Path) -> None:
    trainings = defaultdict(list)
    for path in sorted(root.glob("policies/*/seed*/metrics.jsonl")):
        trainings[path.parts[-3]].append([entry for entry in map(json.loads, path.open()) if "reward" in entry])
    print("| policy | batches | seeds | reward, first → last | max@8, first → last | KL, last |")
    print("|---|---:|---:|---|---|---:|")
    for policy, logs in trainings.items():
        first, last, before, after, kl = (list(quarters(logs, name, which)) for name, which in COLUMNS)
        each = ", ".join(f"{value:.3f}" for value in after)
        print(
            f"| {policy} | {len(logs[0])} | {len(logs)} | {mean(first):.3f} → {mean(last):.3f} | "
            f"{mean(before):.3f} → {mean(after):.3f} [{each}] | {mean(kl):.3f} |"
        )


def quarters(logs: list[list[dict[str, Any]]], name: str, which: int) -> Iterator[float]:
    """A metric's mean over the first (0) or the last (-1) quarter of every training."""
    for log in logs:
        quarter = len(log) // 4
        yield mean(entry[name] for entry in (log[:quarter] if which == 0 else log[-quarter:]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
