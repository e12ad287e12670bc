"""Means and differences with their intervals and tests: `statistics.csv` and `paired_tests.csv`.

Two policies are compared on the same problems, by the difference of the means that the tables show and its test
`p_mean`. With several seeds that is about methods; with one it is about these two trained policies (column `about`),
and `p_mean` comes from random sign flips. Wilcoxon's test, the paper's, is on means over seeds; there is none for the
mean over datasets, whose problems have unequal weights. docs/statistics.md has the families of Holm's corrections.
The mathematics is in `maxk.statistics`; this module says what is compared.
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
from maxk.progress import track
from maxk.reporting import MEAN, written
from maxk.reporting.load import Scores
from maxk.statistics import Floats, SignedRank

METRICS = ("max", "pass")
# The baselines of the paper's Tables 2 and 3, beside the base model.
BASELINES = ("bon_max_second", "bon_max_mean", "bon_loo1", "bon_mean")
PAPER = "off-policy vs best baseline"  # the paper's comparison
DIFFERENCES = (  # the columns of paired_tests.csv, which has no rows if only one policy is scored
    *("comparison", "policy", "reference", "dataset", "metric", "k", "difference", "low", "high", "level", "about"),
    *("test", "p_mean", "p_mean_holm", "p_wilcoxon", "p_wilcoxon_holm", "rank_biserial", "problems", "better", "worse"),
    *("zero_differences", "seeds"),
)


# ------------------------------------------------------------------------------------------------------ frames
def means(scores: Scores, config: Config, further: Sequence[str] = ()) -> pd.DataFrame:
    """`statistics.csv`: one row per policy, dataset (or `mean`) and quantity that has scores; `further` quantities."""
    return _means(scores, config.report.confidence, (*quantities(scores), *further))


@cache
def _means(scores: Scores, level: float, quantities: tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame(_mean_rows(scores, level, quantities))


def differences(scores: Scores, config: Config) -> pd.DataFrame:
    """`paired_tests.csv`: best against second, off-policy BoN against the best baseline, all against base and GRPO."""
    return _differences(scores, config.report, roles(config))


@cache
def _differences(scores: Scores, report: Report, roles: Roles) -> pd.DataFrame:
    frame = pd.DataFrame(_difference_rows(scores, report, roles), columns=DIFFERENCES)
    families = frame.groupby(["comparison", "dataset", "metric", "k"]).p_mean
    frame["p_mean_holm"] = families.transform(lambda p: statistics.holm(p)) if len(frame) else None
    return frame


def read(scores: Scores, config: Config) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`means` and `differences` as `maxk table` wrote them of these scores. Raises UserError if it has not."""
    paths = [config.layout.table(name) for name in ("statistics", "paired_tests")]
    written.require(config.layout, paths, scores.digest)
    means, differences = map(pd.read_csv, paths)
    return means, differences


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as mappings."""
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def quantities(scores: Scores) -> tuple[str, ...]:
    """Everything that is estimated: "max@1", "max@2", … and "pass@1", …."""
    return tuple(f"{metric}@{k}" for metric in METRICS for k in scores.ks)


def _mean_rows(scores: Scores, level: float, quantities: Sequence[str]) -> Iterator[dict[str, Any]]:
    every = [(row, dataset) for row in scores.rows for dataset in (*scores.datasets, MEAN)]
    for row, dataset in every:
        datasets = scores.datasets if dataset == MEAN else (dataset,)
        for quantity in quantities:
            if any(scores.values(row, one, quantity) is None for one in datasets):
                continue
            cells = [scores.cells[row, one] for one in datasets]
            low, high = statistics.mean(_values(scores, row, datasets, quantity)).interval(
                level, statistics.MEAN_BOUNDS
            )
            metric, k = quantity.split("@")
            yield {
                "policy": row,
                "label": scores.labels[row],
                "dataset": dataset,
                "metric": metric,
                "k": int(k),
                "mean": scores.mean(row, dataset, quantity),
                "low": low,
                "high": high,
                "level": level,
                "problems": sum(cell.estimates["max"].shape[1] for cell in cells),
                "samples": scores.n,
                "seeds": max(1, min(len(cell.seeds) for cell in cells)),
                "mean_tokens": float(np.mean([cell.mean_tokens for cell in cells])),
                "truncated": float(np.mean([cell.truncated for cell in cells])),
                "stopped": float(np.mean([cell.stopped for cell in cells])),
            }


def _values(scores: Scores, row: str, datasets: Sequence[str], quantity: str) -> list[Floats]:
    """Values [seeds, problems] on each dataset, of the seeds that all of them have."""
    seeds = [scores.cells[row, dataset].seeds for dataset in datasets]
    common = [seed for seed in seeds[0] if all(seed in one for one in seeds)]
    found = []
    for dataset, own in zip(datasets, seeds, strict=True):
        values = scores.values(row, dataset, quantity)
        assert values is not None
        found.append(values[[own.index(seed) for seed in common]] if common else values[:1])
    return found


# ------------------------------------------------------------------------------------------------- comparisons
@dataclass(frozen=True)
class Roles:
    """Policies with a part in the comparisons: GRPO, the paper's off-policy method, and the paper's baselines of it."""

    grpo: str | None
    offpolicy: str | None
    baselines: tuple[str, ...]


def roles(config: Config) -> Roles:
    """Of each method the first objective of its type; of GRPO the one named `grpo`, if there is one."""
    first: dict[str, str] = {}
    for name, objective in config.objectives.items():
        first.setdefault(objective.type, name)
    grpo = "grpo" if "grpo" in config.objectives and config.objectives["grpo"].type == "grpo" else first.get("grpo")
    baselines = (BASE, *(first[kind] for kind in BASELINES if kind in first))
    return Roles(grpo, first.get("bon_offpolicy"), baselines)


def _difference_rows(scores: Scores, report: Report, roles: Roles) -> Iterator[dict[str, Any]]:
    every, places = quantities(scores), (*scores.datasets, MEAN)
    for quantity in track(every, len(every), "paired tests"):
        best = best_and_second(scores, scores.rows, quantity, places)
        yield from compared(scores, report, "best vs second", best, quantity)
        paper = offpolicy_and_baseline(scores, roles, quantity, places)
        yield from compared(scores, report, PAPER, paper, quantity)
        for reference in filter(None, (BASE, roles.grpo)):
            for row in scores.rows:
                if row not in (BASE, reference):
                    pairs = dict.fromkeys(places, (row, reference))
                    yield from compared(scores, report, f"vs {reference}", pairs, quantity)


def ranking(scores: Scores, rows: Sequence[str], dataset: str, quantity: str) -> list[tuple[str, float]]:
    """Rows with scores, best first; equal values keep the order of the table."""
    means = [(row, scores.mean(row, dataset, quantity)) for row in rows]
    present = [(row, round(value, 12)) for row, value in means if value is not None]
    return sorted(present, key=lambda item: -item[1])


def best_and_second(
    scores: Scores, rows: Sequence[str], quantity: str, places: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """By dataset (or `mean`), the best row and the second best."""
    ranked = {place: ranking(scores, rows, place, quantity) for place in places}
    return {place: (best[0][0], best[1][0]) for place, best in ranked.items() if len(best) > 1}


def offpolicy_and_baseline(
    scores: Scores, roles: Roles, quantity: str, places: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """By dataset (or `mean`), off-policy BoN and the best of the paper's baselines: what the paper compares."""
    if roles.offpolicy is None:
        return {}
    ranked = {place: ranking(scores, roles.baselines, place, quantity) for place in places}
    return {place: (roles.offpolicy, best[0][0]) for place, best in ranked.items() if best}


def _signed_ranks(
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


def compared(
    scores: Scores, report: Report, comparison: str, pairs: Mapping[str, tuple[str, str]], quantity: str
) -> Iterator[dict[str, Any]]:
    """Rows of `differences` for pairs (policy, reference) by dataset (or `mean`), of those that have scores."""
    corrected = _signed_ranks(scores, {place: pair for place, pair in pairs.items() if place != MEAN}, quantity)
    metric, k = quantity.split("@")
    for place, pair in pairs.items():
        datasets = scores.datasets if place == MEAN else (place,)
        if any(scores.values(row, dataset, quantity) is None for row in pair for dataset in datasets):
            continue
        test, p_holm = corrected.get(place, (None, None))
        yield {
            "comparison": comparison,
            "policy": pair[0],
            "reference": pair[1],
            "dataset": place,
            "metric": metric,
            "k": int(k),
            **_difference(scores, report, pair, place, quantity),
            "p_wilcoxon": test.p_value if test else None,
            "p_wilcoxon_holm": p_holm,
            "rank_biserial": test.rank_biserial if test else None,
            "problems": sum(scores.problems(one) for one in datasets),
            "better": test.greater if test else None,
            "worse": test.less if test else None,
            "zero_differences": scores.problems(place) - test.differing if test else None,
            "seeds": _seeds(scores, pair, datasets),
        }


def _difference(
    scores: Scores, report: Report, pair: tuple[str, str], place: str, quantity: str
) -> dict[str, float | str]:
    """The difference of the means shown, its interval and its test."""
    datasets = scores.datasets if place == MEAN else (place,)
    sides = [_values(scores, row, datasets, quantity) for row in pair]
    return contrast(sides, report, _seeds(scores, pair, datasets) > 1, place)


def contrast(
    sides: Sequence[Sequence[Floats]], report: Report, crossed: bool, place: str = MEAN
) -> dict[str, float | str]:
    """Difference of the means of two sides, its interval and its test; a side is [seeds, problems] for every dataset.

    `crossed`: every trained policy has several seeds. Otherwise the test is by sign flips, drawn anew for each `place`.
    """
    found = statistics.difference(*sides)
    low, high = found.interval(report.confidence, statistics.DIFFERENCE_BOUNDS)
    if crossed:
        p_mean = found.p_value()
    else:
        paired = [a.mean(axis=0) - b.mean(axis=0) for a, b in zip(*sides, strict=True)]
        p_mean = statistics.sign_flip_p(paired, report.resamples, zlib.crc32(place.encode()) + report.seed)
    return {
        "difference": found.value,
        "low": low,
        "high": high,
        "level": report.confidence,
        "about": "methods" if crossed else "trainings",
        "test": "crossed t" if crossed else "sign flips",
        "p_mean": p_mean,
    }


def columns(quantity: str, own: Sequence[float | None], change: Mapping[str, Any]) -> dict[str, Any]:
    """Cells of a table of experiments: mean and interval `own`, then the difference to the reference, if there is one.

    change: of `contrast`, or empty.
    """
    names = [f"{quantity}{end}" for end in ("", "_low", "_high")]
    found = dict(zip(names, own, strict=True)) | {f"{quantity}_difference": change.get("difference")}
    found |= {f"{quantity}_difference_{end}": change.get(end) for end in ("low", "high")}
    return found | {f"{quantity}_p_mean": change.get("p_mean")}


def _seeds(scores: Scores, pair: tuple[str, str], datasets: Sequence[str]) -> int:
    """Training seeds behind a difference: of the policy that has fewer; the base model is not trained."""
    counts = [len(scores.cells[row, dataset].seeds) for row in pair if row != BASE for dataset in datasets]
    return max(1, min(counts, default=1))
