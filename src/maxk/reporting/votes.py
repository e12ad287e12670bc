"""maj@k: the expected reward of the answer that most of k samples agree on (`maxk.evaluation.selection.by_vote`).

Samples agree if their programs print the same on every test; no expected output is used. The expectation is simulated
where k > 1; the intervals of means over problems include the error, at most 0.016/√P for P problems. Read from the
verdicts that the scores were made from.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from maxk.artifacts.paths import policy_name
from maxk.config import Config
from maxk.evaluation import selection
from maxk.reporting import diversity
from maxk.reporting.load import Scores
from maxk.statistics import Floats


def with_votes(config: Config, scores: Scores, k: int) -> Scores:
    """The scores with maj@k beside max@k, for rows that have it on every dataset."""
    cells = dict(scores.cells)
    for row in scores.rows:
        if (found := _values(config, scores, row, k)) is not None:
            for dataset, votes in zip(scores.datasets, found, strict=True):
                estimates = {**cells[row, dataset].estimates, f"maj@{k}": votes}
                cells[row, dataset] = replace(cells[row, dataset], estimates=estimates)
    return replace(scores, cells=cells)


def _values(config: Config, scores: Scores, row: str, k: int) -> list[Floats] | None:
    """maj@k [seeds, problems] on every dataset; None where scores or verdicts are absent, or seeds differ."""
    cells = [scores.cells.get((row, dataset)) for dataset in scores.datasets]
    seeds = {cell.seeds for cell in cells if cell}
    if not all(cells) or len(seeds) != 1:
        return None
    policies = [policy_name(row, seed) for seed in seeds.pop()] or [row]
    found = [[_votes(config, policy, dataset, k) for policy in policies] for dataset in scores.datasets]
    if any(one is None for of_dataset in found for one in of_dataset):
        return None
    return [np.stack([one for one in of_dataset if one is not None]) for of_dataset in found]


def _votes(config: Config, policy: str, dataset: str, k: int) -> Floats | None:
    """maj@k of every problem, in the order of their names; None without the verdicts that were scored."""
    paths = [Path(path) for path in diversity.scored_verdicts(config, policy, dataset)]
    if not paths or not all(path.exists() for path in paths):
        return None
    problems = selection.read(paths[0].parent, visible=0).problems
    votes = [
        selection.by_vote(problems[name].outputs, problems[name].rewards, [k], seed=number)[0]
        for number, name in enumerate(sorted(problems))
    ]
    return np.array(votes)
