"""Advantages of 4,096 groups of n = 64 at k = 8, float32, on one core: every objective, top-m at m = 1, 2, 4 and 8.

    python benchmarks/objectives.py

The exact off-policy advantages must take at most 50 ms (median); exits with 1 if they take longer.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import MISSING, fields

import torch

from maxk.objectives import OBJECTIVES, Objective, make

GROUPS, N, K, REPEATS = 4_096, 64, 8, 21
TARGET_MS = 50


def cases() -> dict[str, Objective]:
    """Every objective, with every m where m has no default."""
    made = {}
    for name, kind in OBJECTIVES.items():
        needs_m = any(field.name == "m" and field.default is MISSING for field in fields(kind))
        for m in (1, 2, 4, 8) if needs_m else (None,):
            keys = {"k": K} if m is None else {"k": K, "m": m}
            made[name if m is None else f"{name}, m = {m}"] = make({"type": name, **keys})
    return made


def median_ms(objective: Objective, rewards: torch.Tensor, log_ratios: torch.Tensor) -> float:
    objective(rewards, log_ratios)
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        objective(rewards, log_ratios)
        times.append(1e3 * (time.process_time() - start))
    return statistics.median(times)


def main() -> int:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randint(0, 9, (GROUPS, N), generator=generator) / 8
    log_ratios = 0.3 * torch.randn(GROUPS, N, generator=generator)
    print(f"{GROUPS} groups × n = {N}, k = {K}, float32, one thread, CPU time, medians of {REPEATS}")
    times = {name: median_ms(objective, rewards, log_ratios) for name, objective in cases().items()}
    for name, took in times.items():
        print(f"{name:26} {took:6.1f} ms")
    exact = times["bon_offpolicy_exact"]
    print(f"exact / target             {exact / TARGET_MS:6.2f} (target ≤ 1: {TARGET_MS} ms)")
    return int(exact > TARGET_MS)


if __name__ == "__main__":
    sys.exit(main())
