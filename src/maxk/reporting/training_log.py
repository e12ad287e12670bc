"""What training logged (`metrics.jsonl`), as arrays over generation batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maxk.config import Config
from maxk.errors import UserError
from maxk.statistics import Floats


def read(config: Config, row: str, keys: Iterable[str]) -> dict[str, Floats]:
    """Metrics [seeds, generation batches] of a row by key, of finished trainings; seeds are cut to the shortest log.

    A training that was killed, or is being done again, leaves a log that ends early; its policy is written last.
    Step s belongs to batch (s − 1) // μ, and a batch's value is the mean over the PPO iterations that log the key:
    ratios are logged only where samples are stale, from the second iteration on.
    """
    finished = [policy for policy in config.seeded(row) if Path(config.layout.policy(policy)).exists()]
    runs = [_read_metrics(config.layout.metrics(policy)) for policy in finished]
    iterations = config.training_of(row).iterations
    found = {}
    for key in keys:
        series = [_by_batch(run, key, iterations) for run in runs if run]
        batches = min((len(one) for one in series), default=0)
        if batches:
            found[key] = np.array([one[:batches] for one in series], dtype=np.float64)
    return found


def _by_batch(run: Sequence[Mapping[str, Any]], key: str, iterations: int) -> list[float]:
    """The key's value in every generation batch that logs it, in order."""
    batches: dict[int, list[float]] = {}
    for line in run:
        if line.get(key) is not None:
            batches.setdefault((int(line["step"]) - 1) // iterations, []).append(float(line[key]))
    return [sum(values) / len(values) for _, values in sorted(batches.items())]


def _read_metrics(path: str) -> list[dict[str, Any]]:
    if not Path(path).exists():
        return []
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    try:
        return [json.loads(line) for line in lines if line.strip()]
    except ValueError:
        raise UserError(f"{path}: not one JSON object a line; train again") from None


def smooth(values: Floats, share: float = 1 / 20) -> Floats:
    """Running mean over a share of the run, shrinking at the ends."""
    half = int(len(values) * share / 2)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    start, stop = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    # Rounded, as the noise of cumulative sums would set the scale of a constant curve.
    return np.asarray(np.round((sums[stop] - sums[start]) / (stop - start), 9))
