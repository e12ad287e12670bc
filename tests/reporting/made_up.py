"""A made-up experiment in a temporary folder, its scores written through the real file functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maxk import config as configuration
from maxk import estimators
from maxk.artifacts import files, records
from maxk.artifacts.records import Provenance
from maxk.config import Config
from maxk.reporting import tables
from maxk.reporting.load import load

N = 128
DATASET = {
    "source": "pocket",
    "transforms": [1],
    "open_operations": [1],
    "rare": 0.1,
    "readings": [0.5, 0.3, 0.2],
    "train": 64,
    "test": 4,
}


class Experiment:
    """Builds a config and writes scores; `rewards` is [problems] (the same for all samples) or [problems, n]."""

    def __init__(self, **changes: Any) -> None:
        content: dict[str, Any] = {
            "base": {"source": "hub", "model": "some/model"},
            "datasets": {"easy": {**DATASET, "paper": "codecontests"}, "hard": {**DATASET, "paper": "mbpp"}},
            "objectives": {"grpo": {"type": "grpo"}, "bon_mean": {"type": "bon_mean", "k": 4}},
            "training": {"datasets": ["easy"]},
            "sampling": {"n": N, "chunk": N},
            "report": {"ks": [1, 2, 128], "resamples": 400},
            "tracking": {"enabled": False},
        }
        self.config: Config = configuration.parse(configuration.overlay(content, changes))
        files.write_json(self.config.layout.config, self.config.model_dump(mode="json"))

    def score(self, policy: str, dataset: str, rewards: Sequence[Any], **changes: Any) -> str:
        """Writes a score file; `changes` replaces parts of its provenance."""
        config = self.config
        table = np.sort(np.array([np.broadcast_to(one, N) for one in rewards], dtype=float), axis=1)
        right = (table == 1).sum(axis=1)
        entropies = [np.linspace(0, 0.5 + 0.1 * i, N, dtype=np.float32) for i in range(len(table))]
        columns = {
            "problem_id": [f"{dataset}-{i}" for i in range(len(table))],
            "n": [N] * len(table),
            "c": right.tolist(),
            "rewards": list(table),
            "max_at_k": list(estimators.max_at_k(table, list(config.report.ks))),
            "pass_at_k": list(estimators.pass_at_k(N, right, list(config.report.ks))),
            "mean_tokens": [10.0] * len(table),
            "truncated": [0.25] * len(table),
            "stopped": [0.0] * len(table),
            "entropies": entropies if changes.pop("entropy", True) else [None] * len(table),
        }
        settings = {**config.settings("sample"), **config.settings("verify"), **config.settings("score")}
        source: dict[str, Any] = {
            "stage": "score",
            "experiment": config.name,
            "settings": settings,
            "inputs": {"problems": f"some {dataset}", "policy": policy},
            "environment": {"sandbox": "landlock", "backend": "transformers"},
            "lineage": self.lineage(policy),
        }
        source = configuration.overlay(source, changes)
        path = config.layout.scores(policy, dataset)
        files.write_table(path, columns, records.SCORE, Provenance(**source))
        return path

    def lineage(self, policy: str) -> dict[str, Any]:
        if policy == "base":
            return {"settings": self.config.settings("base")}
        settings = self.config.settings("train", objective=policy.split("/")[0])
        return {"settings": settings, "base": "base", "data": {"easy": "some easy"}}

    def score_all(self, rewards: Mapping[str, Mapping[str, Sequence[Any]]]) -> Experiment:
        for policy, by_dataset in rewards.items():
            for dataset, one in by_dataset.items():
                self.score(policy, dataset, one)
        return self


def write_statistics(made: Experiment) -> None:
    """statistics.csv, paired_tests.csv and diversity.csv, which figures and summary are made from."""
    scores = load(made.config)
    for table in (tables.STATISTICS, tables.PAIRED_TESTS, tables.DIVERSITY):
        table.write(scores, made.config)
