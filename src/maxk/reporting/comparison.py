"""Our numbers beside the paper's: `comparison.csv` with all cells, `comparison.md` with what they amount to.

`published_tables.csv` holds the paper's tables 1–14 (arXiv 2510.23393), copied by hand. A number of ours has a
published counterpart if the policy has the paper's name and the dataset plays the role of one of the paper's
(`datasets.NAME.paper`). Differences are taken only where task and base model are the paper's; elsewhere only directions
are compared, and `decided` says whether our interval of the difference excludes zero.

    maxk table comparison --config results/config.json
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

import numpy as np
import pandas as pd

from maxk.artifacts.paths import BASE
from maxk.config import Config, HubBase
from maxk.reporting import estimates, markdown
from maxk.reporting.load import Scores

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
_CELL = ["policy", "paper_dataset", "metric", "k"]
_OURS = ["policy", "dataset", "metric", "k"]


def published() -> pd.DataFrame:
    """The paper's tables in order, policies by our names: table, policy, paper_dataset, metric, k, published."""
    with resources.files("maxk.reporting").joinpath("published_tables.csv").open(encoding="utf-8") as handle:
        frame = pd.read_csv(handle)
    quantity = frame.pop("metric").str.split("@", expand=True)
    frame = frame.rename(columns={"dataset": "paper_dataset", "value": "published"})
    return frame.replace({"policy": SAME_POLICY}).assign(metric=quantity[0], k=quantity[1].astype(int))


def compare(scores: Scores, config: Config) -> pd.DataFrame:
    """For every published number with a counterpart: the value, then its difference to the base model and to GRPO."""
    roles = pd.DataFrame(
        [(d, config.datasets[d].paper, otherness(config, d)) for d in scores.datasets if config.datasets[d].paper],
        columns=["dataset", "paper_dataset", "other"],
    )
    paper = published()
    cells = paper[paper.policy.isin(scores.labels) & paper.k.isin(scores.ks)]
    cells = cells.merge(roles, on="paper_dataset").reset_index(names="order")
    means = estimates.means(scores, config).rename(columns={"mean": "ours"})
    values = cells.merge(means[[*_OURS, "ours", "low", "high"]], on=_OURS, how="left").assign(against=None, about=None)
    changes = [_against(one, cells, paper, estimates.differences(scores, config)) for one in REFERENCES]
    frame = pd.concat([values, *(one for one in changes if len(one))])
    return _finished(frame.sort_values("order", kind="stable"), scores)


def _against(reference: str, cells: pd.DataFrame, paper: pd.DataFrame, differences: pd.DataFrame) -> pd.DataFrame:
    """Differences to a reference, ours and the paper's."""
    theirs = paper[paper.policy == reference].drop_duplicates(_CELL).drop(columns=["table", "policy"])
    ours = differences[differences.comparison == f"vs {reference}"].rename(columns={"difference": "ours"})
    ours = ours.astype({"k": int, "ours": float, "low": float, "high": float})  # an empty frame has no types
    found = cells[~cells.policy.isin([BASE, reference])].merge(
        theirs, on=["paper_dataset", "metric", "k"], suffixes=("", "_reference")
    )
    found["published"] -= found.pop("published_reference")
    return found.merge(ours[[*_OURS, "ours", "low", "high", "about"]], on=_OURS, how="left").assign(against=reference)


def _finished(frame: pd.DataFrame, scores: Scores) -> pd.DataFrame:
    """The columns of comparison.csv."""
    signed = frame.against.notna() & frame.ours.notna()
    same = _sign(frame.ours) == _sign(frame.published)
    decided = (frame.low > 0) | (frame.high < 0)
    frame = frame.assign(
        label=frame.policy.map(dict(scores.labels)),
        difference=(frame.ours - frame.published).where(frame.other == ""),
        same_sign=same.map({True: "yes", False: "no"}).where(signed),
        decided=decided.map({True: "yes", False: "no"}).where(signed),
        compared=("directions only: " + frame.other).where(frame.other != "", "values and directions"),
        published=frame.published.round(6),
    )
    columns = "table policy label dataset paper_dataset metric k against ours low high published difference same_sign"
    return frame[[*columns.split(), "decided", "about", "compared"]].reset_index(drop=True)


def otherness(config: Config, dataset: str) -> str:
    """Why our numbers on a dataset are not the paper's quantity; empty if they are."""
    if config.datasets[dataset].synthetic:
        return "generated tasks"
    if not isinstance(config.base, HubBase) or config.base.model != PAPER_BASE:
        return "another base model"
    return ""


def _sign(values: pd.Series[float]) -> pd.Series[float]:
    """Published numbers have three decimals, so what rounds to zero there is zero."""
    return values.astype(float).round(3).apply(np.sign)


# ---------------------------------------------------------------------------------------------------- Markdown
def to_markdown(frame: pd.DataFrame) -> str:
    """The counts, then all cells that are shown."""
    return counts_to_markdown(frame) + "\n" + cells_to_markdown(frame)


def counts_to_markdown(frame: pd.DataFrame) -> str:
    """How often directions agree, by reference and quantity, each cell counted once."""
    kinds = sorted(set(frame.compared))
    lines = ["**Our results beside the paper's (arXiv 2510.23393)**", ""]
    lines += [f"Compared: {'; '.join(kinds) or 'nothing: no policy and dataset has a published counterpart'}.", ""]
    if any(kind.startswith("directions only") for kind in kinds):
        lines += [
            "Tasks or base model are not the paper's, so values do not measure how well the paper is reproduced, and "
            "no difference to a published value is taken. What can agree is the direction in which a trained policy "
            "differs from the base model, or from GRPO.",
            "",
        ]
    if counts := [markdown.row(map(str, row)) for row in _counts(frame)]:
        header = ["difference to", "quantity", "cells", "same sign", "decided", "decided, same sign"]
        lines += [*markdown.head(header, words=2), *counts, ""]
        lines += ["A cell is a policy on a dataset. Decided: the interval of our difference excludes zero.", ""]
    if "trainings" in (about := set(frame.about)):
        lines += [*markdown.seed_notes(1, 2 if "methods" in about else 1), ""]
    return "\n".join([*lines, "All cells, intervals and published numbers: comparison.csv."]) + "\n"


def _counts(frame: pd.DataFrame) -> Iterator[tuple[str | int, ...]]:
    """Rows of the table of counts. The paper prints some numbers in two tables; they count once."""
    signed = frame[frame.same_sign.notna()].drop_duplicates([*_OURS, "against"])
    for against in REFERENCES:
        for quantity in SHOWN:
            cells = signed[(signed.against == against) & (_quantity(signed) == quantity)]
            same, decided = cells.same_sign == "yes", cells.decided == "yes"
            if len(cells):
                yield against, quantity, len(cells), same.sum(), decided.sum(), (same & decided).sum()


def cells_to_markdown(frame: pd.DataFrame) -> str:
    """Our value and the published one of every cell that is shown: one table per quantity, policies × datasets."""
    lines: list[str] = []
    values = frame[frame.against.isna()].drop_duplicates(_OURS)
    changes = frame[frame.against == BASE].drop_duplicates(_OURS)
    cells = values.merge(changes, on=_OURS, how="left", suffixes=("", "_change"))
    for quantity in SHOWN:
        shown = cells[_quantity(cells) == quantity]
        if len(shown):
            shown = shown.assign(text=shown.apply(_cell, axis=1))
            table = shown.pivot(index="policy", columns="dataset", values="text").fillna("")
            table = table.loc[shown.policy.unique(), shown.dataset.unique()]
            labels = shown.set_index("policy").label.to_dict()
            lines += [f"## {quantity}: ours · the paper's", "", *markdown.head([quantity, *table.columns])]
            lines += [markdown.row([markdown.escape(labels[policy]), *row]) for policy, row in table.iterrows()] + [""]
    if len(changes):
        lines.append("Arrows: above or below the base model, ours and the paper's; bold where they disagree.")
    return "\n".join(lines) + "\n"


def _quantity(frame: pd.DataFrame) -> pd.Series[str]:
    return frame.metric + "@" + frame.k.astype(str)


def _cell(row: pd.Series) -> str:
    ours = "–" if pd.isna(row.ours) else f"{row.ours:.3f}"
    arrows = ["", ""]
    if pd.notna(row.same_sign_change):
        arrows = ["→↑↓"[int(np.sign(round(row[side], 3)))] for side in ("ours_change", "published_change")]
    text = f"{ours}{arrows[0]} · {row.published:.3f}{arrows[1]}"
    if pd.notna(row.difference):
        text += f" ({markdown.number(row.difference, '+.3f')})"
    return f"**{text}**" if arrows[0] != arrows[1] else text
