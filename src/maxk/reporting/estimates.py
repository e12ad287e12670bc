"""Means and differences with their intervals and tests: `statistics.csv` and `paired_tests.csv`.

Intervals are percentile bootstrap (Efron 1979) over problems and training seeds, crossed and both resampled. All
policies share one draw of problems per dataset and one draw of seeds, so differences between policies are paired, and
the mean over datasets (each resampled within itself) has its interval, too.

Two policies are compared problem by problem:
- Wilcoxon's signed-rank test (the paper's), two-sided, on means over seeds, Holm-corrected over the datasets. None for
  the mean over datasets, whose problems have unequal weights.
- paired bootstrap, two-sided, over problems and seeds.
- effect sizes: the difference itself, the number of problems on which each is better, and the matched-pairs
  rank-biserial correlation.

The mathematics is in `maxk.statistics`; this module says what is drawn together and what is compared.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from maxk import statistics
from maxk.artifacts.paths import BASE
from maxk.config import Config, Report
from maxk.errors import UserError
from maxk.progress import track
from maxk.reporting import MEAN
from maxk.reporting.load import Cell, Scores
from maxk.statistics import Floats, SignedRank

METRICS = ("max", "pass")
DIFFERENCES = (  # the columns of paired_tests.csv, which has no rows if only one policy is scored
    *("comparison", "policy", "reference", "dataset", "metric", "k", "difference", "low", "high", "level"),
    *("p_wilcoxon", "p_wilcoxon_holm", "p_bootstrap", "rank_biserial", "problems", "better", "worse"),
    *("zero_differences", "seeds"),
)


# ------------------------------------------------------------------------------------------------- resampling
@dataclass(frozen=True)
class Replicates:
    """Bootstrap replicates [resamples, metrics × ks] of the means of every row on every dataset."""

    quantities: tuple[str, ...]
    level: float
    means: Mapping[tuple[str, str], Floats]

    def of(self, row: str, dataset: str, quantity: str) -> Floats:
        return self.means[row, dataset][:, self.quantities.index(quantity)]

    def intervals(self, replicates: Floats) -> Floats:
        """Lower and upper ends [2, …] of replicates [resamples, …]."""
        return statistics.percentile_intervals(replicates, self.level)

    def interval(self, replicates: Floats) -> tuple[float, float]:
        return statistics.percentile_interval(replicates, self.level)


def quantities(scores: Scores) -> tuple[str, ...]:
    """Everything that is estimated: "max@1", "max@2", … and "pass@1", …."""
    return tuple(f"{metric}@{k}" for metric in METRICS for k in scores.ks)


@cache
def resample(scores: Scores, report: Report) -> Replicates:
    """Bootstrap means of all cells, and of the mean over datasets where a row has them all. Drawn once a process."""
    means: dict[tuple[str, str], Floats] = {}
    for dataset in track(scores.datasets, len(scores.datasets), "bootstrap"):
        cells = {row: scores.cells[row, dataset] for row in scores.rows if (row, dataset) in scores.cells}
        if cells:
            over_problems = _over_problems(cells, report, dataset)
            for row, cell in cells.items():  # rows with the same seeds share their draw; the base model has none
                means[row, dataset] = statistics.bootstrap_seeds(over_problems[row], [report.seed, *cell.seeds])
    for row in scores.rows:
        own = [means[row, dataset] for dataset in scores.datasets if (row, dataset) in means]
        if len(own) == len(scores.datasets):
            means[row, MEAN] = np.mean(own, axis=0)
    return Replicates(quantities(scores), report.confidence, means)


def _over_problems(cells: Mapping[str, Cell], report: Report, dataset: str) -> dict[str, Floats]:
    """Means over resampled problems, [resamples, seeds, metrics × ks] by row, from one draw for all rows."""
    stacked = {
        row: np.concatenate([cell.estimates[metric] for metric in METRICS], axis=2) for row, cell in cells.items()
    }
    problems = next(iter(stacked.values())).shape[1]
    table = np.concatenate([one.transpose(1, 0, 2).reshape(problems, -1) for one in stacked.values()], axis=1)
    drawn = statistics.bootstrap_means(table, report.resamples, [report.seed, zlib.crc32(dataset.encode())])
    ends = np.cumsum([one.shape[0] * one.shape[2] for one in stacked.values()])
    parts = np.split(drawn, ends[:-1], axis=1)
    return {
        row: part.reshape(report.resamples, one.shape[0], one.shape[2])
        for (row, one), part in zip(stacked.items(), parts, strict=True)
    }


# ----------------------------------------------------------------------------------------------- paired tests
def signed_ranks(
    scores: Scores, pairs: Mapping[str, tuple[str, str]], quantity: str
) -> dict[str, tuple[SignedRank, float]]:
    """By dataset, the test of its pair (policy, reference) and the p-value Holm-corrected over these datasets."""
    tests = {}
    for dataset, (row, reference) in pairs.items():
        a, b = (scores.per_problem(one, dataset, quantity) for one in (row, reference))
        if a is not None and b is not None:
            tests[dataset] = statistics.wilcoxon_signed_rank(a, b)
    if not tests:
        return {}
    corrected = statistics.holm([test.p_value for test in tests.values()])
    return {dataset: (test, float(p)) for (dataset, test), p in zip(tests.items(), corrected, strict=True)}


def ranking(scores: Scores, rows: Sequence[str], dataset: str, quantity: str) -> list[tuple[str, float]]:
    """Rows with scores, best first; equal values keep the order of the table."""
    means = [(row, scores.mean(row, dataset, quantity)) for row in rows]
    present = [(row, round(value, 12)) for row, value in means if value is not None]
    return sorted(present, key=lambda item: -item[1])


def best_and_second(
    scores: Scores, rows: Sequence[str], quantity: str, datasets: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """By dataset, the best row and the second best: what the paper compares."""
    ranked = {dataset: ranking(scores, rows, dataset, quantity) for dataset in datasets}
    return {dataset: (best[0][0], best[1][0]) for dataset, best in ranked.items() if len(best) > 1}


# ------------------------------------------------------------------------------------------------------ frames
def means(scores: Scores, config: Config) -> pd.DataFrame:
    """`statistics.csv`: one row per policy, dataset (or `mean`) and quantity that has scores."""
    return pd.DataFrame(_mean_rows(scores, resample(scores, config.report)))


def differences(scores: Scores, config: Config) -> pd.DataFrame:
    """`paired_tests.csv`: best against second, and every policy against the base model and against GRPO."""
    references = tuple(filter(None, (BASE, grpo_row(config))))
    return _differences(scores, config.report, references)


@cache
def _differences(scores: Scores, report: Report, references: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(_difference_rows(scores, resample(scores, report), references), columns=DIFFERENCES)


def read(config: Config) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`means` and `differences` as `maxk table` wrote them. Raises UserError if it has not."""
    try:
        means, differences = (pd.read_csv(config.layout.table(name)) for name in ("statistics", "paired_tests"))
    except FileNotFoundError as error:
        raise UserError(f"{error.filename}: no such file; run `maxk table statistics paired_tests`") from None
    return means, differences


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as mappings."""
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def _mean_rows(scores: Scores, replicates: Replicates) -> Iterator[dict[str, Any]]:
    for row, label in scores.labels.items():
        for dataset in (*scores.datasets, MEAN):
            if (row, dataset) not in replicates.means:
                continue
            cells = [scores.cells[row, one] for one in (scores.datasets if dataset == MEAN else (dataset,))]
            for quantity in quantities(scores):
                low, high = replicates.interval(replicates.of(row, dataset, quantity))
                metric, k = quantity.split("@")
                yield {
                    "policy": row,
                    "label": label,
                    "dataset": dataset,
                    "metric": metric,
                    "k": int(k),
                    "mean": scores.mean(row, dataset, quantity),
                    "low": low,
                    "high": high,
                    "level": replicates.level,
                    "problems": sum(cell.estimates["max"].shape[1] for cell in cells),
                    "samples": scores.n,
                    "seeds": max(1, min(len(cell.seeds) for cell in cells)),
                    "mean_tokens": float(np.mean([cell.mean_tokens for cell in cells])),
                    "truncated": float(np.mean([cell.truncated for cell in cells])),
                }


def _difference_rows(scores: Scores, replicates: Replicates, references: Sequence[str]) -> Iterator[dict[str, Any]]:
    every, places = quantities(scores), (*scores.datasets, MEAN)
    for quantity in track(every, len(every), "paired tests"):
        best = best_and_second(scores, scores.rows, quantity, places)
        yield from compared(scores, replicates, "best vs second", best, quantity)
        for reference in references:
            for row in scores.rows:
                if row not in (BASE, reference):
                    pairs = dict.fromkeys(places, (row, reference))
                    yield from compared(scores, replicates, f"vs {reference}", pairs, quantity)


def grpo_row(config: Config) -> str | None:
    """The policy that others are compared with: `grpo`, or else the first objective of that type."""
    of_type = [name for name, objective in config.objectives.items() if objective.type == "grpo"]
    return "grpo" if "grpo" in of_type else next(iter(of_type), None)


def compared(
    scores: Scores,
    replicates: Replicates,
    comparison: str,
    pairs: Mapping[str, tuple[str, str]],
    quantity: str,
) -> Iterator[dict[str, Any]]:
    """Rows of `differences` for pairs (policy, reference) by dataset, of those that have scores."""
    corrected = signed_ranks(scores, {d: pair for d, pair in pairs.items() if d != MEAN}, quantity)
    metric, k = quantity.split("@")
    for dataset, (row, reference) in pairs.items():
        if (row, dataset) not in replicates.means or (reference, dataset) not in replicates.means:
            continue
        drawn = replicates.of(row, dataset, quantity) - replicates.of(reference, dataset, quantity)
        means = [scores.mean(one, dataset, quantity) or 0.0 for one in (row, reference)]
        low, high = replicates.interval(drawn)
        test, p_holm = corrected.get(dataset, (None, None))
        in_mean = scores.datasets if dataset == MEAN else (dataset,)
        yield {
            "comparison": comparison,
            "policy": row,
            "reference": reference,
            "dataset": dataset,
            "metric": metric,
            "k": int(k),
            "difference": means[0] - means[1],
            "low": low,
            "high": high,
            "level": replicates.level,
            "p_wilcoxon": test.p_value if test else None,
            "p_wilcoxon_holm": p_holm,
            "p_bootstrap": statistics.bootstrap_p(drawn),
            "rank_biserial": test.rank_biserial if test else None,
            "problems": sum(scores.problems(one) for one in in_mean),
            "better": test.greater if test else None,
            "worse": test.less if test else None,
            "zero_differences": scores.problems(dataset) - test.differing if test else None,
            "seeds": max(1, min(len(scores.cells[row, one].seeds) for one in in_mean)),
        }
