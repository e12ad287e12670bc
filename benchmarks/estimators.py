"""max@k of 5,000 problems × 256 samples × 9 values of k: ours against the paper's Listing 1 in a loop.

    python benchmarks/estimators.py

Needs scipy, which `pip install '.[test]'` and `make environment` install. Both run on one thread, in turns; medians are
compared. The loop over Listing 1 is timed on a tenth of the problems and scaled up. Exits with 1 if the ratio is below
100.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.special import comb

from maxk.estimators import max_at_k

PROBLEMS, SAMPLES, KS = 5_000, 256, (1, 2, 4, 8, 16, 32, 64, 128, 256)
TARGET = 100


def listing_1(scores: np.ndarray, k: int) -> float:
    """The paper's Appendix C.1, as printed."""
    scores = np.array(scores)
    sorted_scores = np.sort(scores)
    n = len(scores)
    weights = comb(np.arange(n), k - 1) / comb(n, k)
    return (weights @ sorted_scores).sum()


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> int:
    rewards = np.random.default_rng(0).integers(0, 9, (PROBLEMS, SAMPLES)) / 8
    part = rewards[: PROBLEMS // 10]
    loop = np.array([[listing_1(row, k) for k in KS] for row in part])
    np.testing.assert_allclose(max_at_k(part, KS), loop, rtol=1e-9)

    ours, theirs = [], []
    for _ in range(5):
        ours.append(seconds(lambda: max_at_k(rewards, KS)))
        theirs.append(10 * seconds(lambda: [[listing_1(row, k) for k in KS] for row in part]))
    fast, slow = float(np.median(ours)), float(np.median(theirs))
    print(f"{PROBLEMS} problems × {SAMPLES} samples × {len(KS)} k, medians of {len(ours)}, one thread")
    print(f"max_at_k           {fast * 1e3:8.1f} ms")
    print(f"Listing 1 in a loop{slow * 1e3:8.0f} ms")
    print(f"ratio              {slow / fast:8.0f} × (target ≥ {TARGET} ×)")
    return int(slow / fast < TARGET)


if __name__ == "__main__":
    sys.exit(main())
