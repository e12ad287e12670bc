"""Training logs (`metrics.jsonl`) as arrays over generation batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from maxk.artifacts.paths import policy_name
from maxk.config import Config
from maxk.errors import UserError
from maxk.statistics import Floats


def read(config: Config, row: str, keys: Iterable[str]) -> dict[str, Floats]:
    """Metrics [seeds, generation batches] of a policy by key; seeds are cut to the shortest log.

    Only finished training counts (`policy.json` is written last): a killed run leaves a log that ends early. Step s
    belongs to batch (s − 1) // steps per batch, and a batch's value is the mean over its steps that log the key: ratios
    are logged only where samples are stale, from the second step on.
    """
    finished = [policy for policy in config.seeded(row) if Path(config.layout.policy(policy)).exists()]
    runs = [_read_metrics(config.layout.metrics(policy)) for policy in finished]
    steps = config.training_of(row).steps_per_batch
    found = {}
    for key in keys:
        series = [_by_batch(run, key, steps) for run in runs if run]
        batches = min((len(one) for one in series), default=0)
        if batches:
            found[key] = np.array([one[:batches] for one in series], dtype=np.float64)
    return found


def of_policy(config: Config, row: str, seed: int, key: str) -> Floats:
    """A key of one training [generation batches], smoothed over a tenth of the run. Empty if it was not logged."""
    run = _read_metrics(config.layout.metrics(policy_name(row, seed)))
    values = _by_batch(run, key, config.training_of(row).steps_per_batch)
    return smooth(np.array(values), fraction=1 / 10) if values else np.array(values)


def curves(config: Config, keys: Iterable[str]) -> pd.DataFrame:
    """Smoothed metrics of all policies over training: policy, key, at (0 … 1), and the seeds' mean, low and high."""
    parts = [pd.DataFrame(columns=["policy", "key", "at", "mean", "low", "high"])]
    for policy in config.objectives:
        for key, values in read(config, policy, keys).items():
            runs = np.array([smooth(one) for one in values])
            ends = {"mean": runs.mean(axis=0), "low": runs.min(axis=0), "high": runs.max(axis=0)}
            parts.append(pd.DataFrame({"policy": policy, "key": key, "at": np.linspace(0, 1, runs.shape[1]), **ends}))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def _by_batch(run: Sequence[Mapping[str, Any]], key: str, steps: int) -> list[float]:
    """The key's value in every generation batch that logs it, in order."""
    batches: dict[int, list[float]] = {}
    for line in run:
        if line.get(key) is not None:
            batches.setdefault((int(line["step"]) - 1) // steps, []).append(float(line[key]))
    return [sum(values) / len(values) for _, values in sorted(batches.items())]


def _read_metrics(path: str) -> list[dict[str, Any]]:
    if not Path(path).exists():
        return []
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    try:
        return [json.loads(line) for line in lines if line.strip()]
    except ValueError:
        raise UserError(f"{path}: not one JSON object a line; train again") from None


def smooth(values: Floats, fraction: float = 1 / 20) -> Floats:
    """Running mean over a fraction of the run, shorter at its ends."""
    half = int(len(values) * fraction / 2)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    start, stop = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    # Rounded: else the rounding noise of cumulative sums would set the scale of a constant curve.
    return np.asarray(np.round((sums[stop] - sums[start]) / (stop - start), 9))
