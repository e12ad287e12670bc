"""Advantages of 4,096 groups of n = 64 at k = 8, float32, on one core: every objective.

    python benchmarks/objectives.py

The exact off-policy advantages must take at most 50 ms (median); exits with 1 if they take longer.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch

from maxk.objectives import OBJECTIVES, make

GROUPS, N, K, REPEATS = 4_096, 64, 8, 21
TARGET_MS = 50


def median_ms(name: str, rewards: torch.Tensor, log_ratios: torch.Tensor) -> float:
    objective = make({"type": name, "k": K})
    objective(rewards, log_ratios)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        objective(rewards, log_ratios)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main() -> int:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randint(0, 9, (GROUPS, N), generator=generator) / 8
    log_ratios = 0.3 * torch.randn(GROUPS, N, generator=generator)
    print(f"{GROUPS} groups × n = {N}, k = {K}, float32, one thread, medians of {REPEATS}")
    times = {name: median_ms(name, rewards, log_ratios) for name in OBJECTIVES}
    for name, took in times.items():
        print(f"{name:20} {took:6.1f} ms")
    exact = times["bon_offpolicy_exact"]
    print(f"exact / target       {exact / TARGET_MS:6.2f} (target ≤ 1: {TARGET_MS} ms)")
    return int(exact > TARGET_MS)


if __name__ == "__main__":
    sys.exit(main())
