"""Our numbers beside the paper's: `comparison.csv` with all cells and `comparison.md` with what they amount to.

`published_tables.csv` holds the paper's tables 1–14 (arXiv 2510.23393), copied by hand. A cell has a published
twin where the policy has the paper's name and the dataset plays a dataset of the paper (`datasets.NAME.paper`).

Numbers are set side by side, but only where task and base model are the paper's is their difference taken.
Elsewhere (generated tasks, another base model) just directions are compared: does the policy differ from the
base model, or from GRPO, with the sign that it has in the paper? `decided` says whether our own bootstrap
interval of that difference excludes zero; where it does not, agreement of signs means little.

    maxk compare --config results/config.json
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from maxk.artifacts import files
from maxk.artifacts.paths import BASE
from maxk.config import Config, HubBase
from maxk.reporting import markdown, pages
from maxk.reporting.estimates import Replicates, resample
from maxk.reporting.load import Scores
from maxk.reporting.tidy import write_csv

PAPER_BASE = "Qwen/Qwen2.5-Coder-7B-Instruct"
# The paper's names of table 4 and ours.
SAME_POLICY = {
    "grpo_1_epoch": "grpo",
    "grpo_4_epochs": "grpo_4epochs",
    "grpo_ppo3_1_epoch": "grpo_3iterations",
    "grpo_ppo3_4_epochs": "grpo_3iterations_4epochs",
}
REFERENCES = (BASE, "grpo")
# What is counted and shown; comparison.csv has every k that both have.
SHOWN = ("max@1", "max@128", "pass@1", "pass@128")


class Published(NamedTuple):
    """One number of the paper."""

    table: str
    policy: str
    dataset: str
    quantity: str
    value: float


def published() -> list[Published]:
    """The paper's tables, in order, with our names of the policies."""
    text = resources.files("maxk.reporting").joinpath("published_tables.csv").read_text(encoding="utf-8")
    return [
        Published(
            row["table"],
            SAME_POLICY.get(row["policy"], row["policy"]),
            row["dataset"],
            row["metric"],
            float(row["value"]),
        )
        for row in csv.DictReader(text.splitlines())
    ]


def write(scores: Scores, config: Config) -> list[str]:
    """Writes both files and the page with all headline cells; returns the paths."""
    rows = list(comparison_rows(scores, resample(scores, config.report), config))
    paths = [config.layout.table("comparison", suffix) for suffix in ("csv", "md")]
    write_csv(paths[0], rows)
    files.write_text(paths[1], to_markdown(rows))
    return [*paths, pages.write(config, "comparison", to_markdown(rows) + "\n" + cells_to_markdown(rows))]


def comparison_rows(scores: Scores, replicates: Replicates, config: Config) -> Iterator[dict[str, Any]]:
    """For every published twin: the value, then its difference to the base model and to GRPO."""
    paper = published()
    value_of = {(cell.policy, cell.dataset, cell.quantity): cell.value for cell in paper}
    for cell in paper:
        k = int(cell.quantity.split("@")[1])
        if cell.policy not in scores.labels or k not in scores.ks:
            continue
        for dataset in scores.datasets:
            if config.datasets[dataset].paper != cell.dataset:
                continue
            for against in ("", *REFERENCES):
                theirs = cell.value
                if against:
                    reference = value_of.get((against, cell.dataset, cell.quantity))
                    if reference is None or cell.policy in (BASE, against) or against not in scores.labels:
                        continue
                    theirs = cell.value - reference
                ours = _ours(scores, replicates, cell.policy, dataset, cell.quantity, against)
                yield _row(scores, config, cell, dataset, against, ours, theirs)


class Ours(NamedTuple):
    value: float
    low: float
    high: float


def _ours(
    scores: Scores, replicates: Replicates, policy: str, dataset: str, quantity: str, against: str
) -> Ours | None:
    """Our value, or its difference to the row `against`, with its interval; None without scores."""
    mean = scores.mean(policy, dataset, quantity)
    reference = scores.mean(against, dataset, quantity) if against else 0.0
    if mean is None or reference is None:
        return None
    drawn = replicates.of(policy, dataset, quantity)
    if against:
        drawn = drawn - replicates.of(against, dataset, quantity)
    return Ours(mean - reference, *replicates.interval(drawn))


def _row(
    scores: Scores,
    config: Config,
    cell: Published,
    dataset: str,
    against: str,
    ours: Ours | None,
    theirs: float,
) -> dict[str, Any]:
    metric, k = cell.quantity.split("@")
    other = otherness(config, dataset)
    signs = bool(against) and ours is not None
    return {
        "table": cell.table,
        "policy": cell.policy,
        "label": scores.labels[cell.policy],
        "dataset": dataset,
        "paper_dataset": cell.dataset,
        "metric": metric,
        "k": int(k),
        "against": against or None,
        "ours": ours.value if ours else None,
        "low": ours.low if ours else None,
        "high": ours.high if ours else None,
        "published": round(theirs, 6),
        "difference": ours.value - theirs if ours and not other else None,
        "same_sign": _yes(_sign(ours.value) == _sign(theirs)) if signs and ours else None,
        "decided": _yes(ours.low > 0 or ours.high < 0) if signs and ours else None,
        "compared": f"directions only: {other}" if other else "values and directions",
    }


def otherness(config: Config, dataset: str) -> str:
    """Why our numbers on a dataset are not the paper's quantity; empty where they are."""
    if config.datasets[dataset].synthetic:
        return "generated tasks"
    if not isinstance(config.base, HubBase) or config.base.model != PAPER_BASE:
        return "another base model"
    return ""


def _sign(value: float) -> int:
    """Published numbers have three decimals, so what rounds to zero there is zero."""
    return (round(value, 3) > 0) - (round(value, 3) < 0)


def _yes(condition: bool) -> str:
    return "yes" if condition else "no"


# ---------------------------------------------------------------------------------------------------- markdown
def to_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """How often directions agree, by quantity and reference, each cell counted once."""
    lines = ["**Our results beside the paper's (arXiv 2510.23393)**", ""]
    kinds = sorted({str(row["compared"]) for row in rows})
    lines += [f"Compared: {'; '.join(kinds) or 'nothing, as no policy and dataset has a published twin'}.", ""]
    if any(kind.startswith("directions only") for kind in kinds):
        lines += [
            "Other tasks or another base model than the paper's: their values are no measure of how well the paper is "
            "reproduced, so no difference to a published value is taken. What can agree is the direction in which a "
            "policy differs from the base model, or from GRPO.",
            "",
        ]
    lines += markdown.head(
        ["difference to", "quantity", "cells", "same sign", "decided", "decided, same sign"], words=2
    )
    for against in REFERENCES:
        for quantity in SHOWN:
            cells = _cells(rows, against, quantity)
            same = [row for row in cells if row["same_sign"] == "yes"]
            decided = [row for row in cells if row["decided"] == "yes"]
            both = [row for row in same if row["decided"] == "yes"]
            if cells:
                counts = [str(len(one)) for one in (cells, same, decided, both)]
                lines.append(markdown.row([against, quantity, *counts]))
    lines += [
        "",
        "A cell is a policy on a dataset. Decided: the bootstrap interval of our difference excludes zero. "
        "All cells, intervals and published numbers: comparison.csv.",
    ]
    return "\n".join(lines) + "\n"


def _cells(rows: Sequence[Mapping[str, Any]], against: str, quantity: str) -> list[Mapping[str, Any]]:
    """Rows of a quantity that have a direction; the paper prints some numbers in two tables."""
    found = {
        (row["policy"], row["dataset"]): row
        for row in rows
        if row["against"] == against and f"{row['metric']}@{row['k']}" == quantity and row["same_sign"]
    }
    return list(found.values())


def cells_to_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Our value and the published one of every cell that is shown, a table a quantity, policies × datasets."""
    lines: list[str] = []
    for quantity in SHOWN:
        cells = {
            (row["label"], row["dataset"], row["against"]): row
            for row in rows
            if f"{row['metric']}@{row['k']}" == quantity and row["against"] in (None, BASE)
        }
        labels, datasets = (list(dict.fromkeys(key[part] for key in cells)) for part in (0, 1))
        if cells:
            header = [quantity, *datasets]
            lines += [f"## {quantity}: ours · the paper's", "", *markdown.head(header)]
        for label in labels:
            twins = [(cells.get((label, dataset, None)), cells.get((label, dataset, BASE))) for dataset in datasets]
            lines.append(markdown.row([markdown.escape(label), *(_cell(*twin) for twin in twins)]))
        lines += [""] if cells else []
    if lines:
        lines.append("Arrows: above or below the base model, ours and the paper's; bold where they point apart.")
    return "\n".join(lines) + "\n"


def _cell(value: Mapping[str, Any] | None, change: Mapping[str, Any] | None) -> str:
    if value is None:
        return ""
    ours = "–" if value["ours"] is None else f"{value['ours']:.3f}"
    arrows = ["", ""]
    if change is not None and change["same_sign"]:
        arrows = [("→", "↑", "↓")[_sign(change[side])] for side in ("ours", "published")]
    text = f"{ours}{arrows[0]} · {value['published']:.3f}{arrows[1]}"
    if value["difference"] is not None:
        text += f" ({value['difference']:+.3f})"
    return f"**{text}**" if arrows[0] != arrows[1] else text
