"""What training did to the spread of answers: `diversity.csv`, one row per policy and dataset, means over seeds.

`to_markdown` explains the columns. The split by difficulty uses the base model's own samples, so its mean on problems
that it never solves is too low by selection: compare trained policies with one another. A crossing is infinite if a
policy is not above GRPO at n. Many distinct programs with few outputs differ in spelling only.

Distinct programs and outputs, and the choice by a problem's first test, come from verdicts. They are blank where these
are no longer there, or older than the columns that are needed, and the choice where a problem has a single test;
verdicts other than those that were scored are refused.

    maxk table diversity --config results/config.json
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from maxk import statistics
from maxk.artifacts import files, records
from maxk.artifacts.paths import BASE, policy_name
from maxk.config import Config
from maxk.errors import UserError
from maxk.estimators import max_at_k, selected_at_k
from maxk.evaluation.clusters import by_first_test, distinct_outputs, distinct_programs, in_order
from maxk.reporting import estimates, markdown, written
from maxk.reporting.load import Cell, Scores
from maxk.statistics import Floats

RARELY = 0.1
SPLITS = ("never", "rarely", "often")
_COLUMNS = (
    *("policy", "label", "dataset", "seeds", "problems", "solved", "lost", "gained"),
    *(f"{what}_{split}" for split in SPLITS for what in ("problems", "max")),
    *("crossing", "crossing_low", "crossing_high", "selected"),
)
DISTINCT = ("programs", "outputs")


def table(scores: Scores, config: Config) -> pd.DataFrame:
    """One row per policy and dataset that has scores."""
    distinct = [f"{what}_at_{k}" for what in DISTINCT for k in config.report.ks]
    return pd.DataFrame(_rows(scores, config), columns=[*_COLUMNS, *distinct])


def _rows(scores: Scores, config: Config) -> Iterator[dict[str, Any]]:
    grpo = estimates.roles(config).grpo
    for (row, dataset), cell in scores.cells.items():
        verdicts = _verdicts(row, dataset, cell, config)
        base, reference = scores.cells.get((BASE, dataset)), scores.cells.get((str(grpo), dataset))
        yield {
            "policy": row,
            "label": scores.labels[row],
            "dataset": dataset,
            "seeds": max(1, len(cell.seeds)),
            "problems": cell.rewards.shape[1],
            **solved(cell.rewards, base.rewards if base else None),
            **(by_difficulty(cell.rewards, base.rewards, config.report.headline_k) if base else {}),
            **(_crossing(cell.rewards, reference.rewards, config) if reference and row not in (BASE, grpo) else {}),
            "selected": _selected(verdicts, config),
            **_distinct(verdicts, config),
        }


def solved(rewards: Floats, base: Floats | None) -> dict[str, float]:
    """Problems with a full pass, and those lost and gained against the base; rewards [seeds, problems, n]."""
    own = (rewards == 1).any(axis=2)
    counts = {"solved": float(own.sum(axis=1).mean())}
    if base is None:
        return counts
    before = (base == 1).any(axis=2)[0]
    lost, gained = (before & ~own).sum(axis=1).mean(), (own & ~before).sum(axis=1).mean()
    return counts | {"lost": float(lost), "gained": float(gained)}


def by_difficulty(rewards: Floats, base: Floats, k: int) -> dict[str, float]:
    """Number of problems, and mean max@k on them, by how often the base solves them; NaN where there is none."""
    rate = (base == 1).mean(axis=(0, 2))
    groups = dict(zip(SPLITS, (rate == 0, (rate > 0) & (rate < RARELY), rate >= RARELY), strict=True))
    values = max_at_k(rewards, k).mean(axis=0)
    found = {f"problems_{name}": int(members.sum()) for name, members in groups.items()}
    return found | {f"max_{name}": float(values[m].mean()) if m.any() else float("nan") for name, m in groups.items()}


def _crossing(rewards: Floats, reference: Floats, config: Config) -> dict[str, float]:
    ks = range(1, rewards.shape[2] + 1)
    a, b = (max_at_k(one, list(ks)) for one in (rewards, reference))
    found = statistics.crossing(a, b, ks, config.report.confidence)
    at, low, high = (math.inf if k is None else k for k in found)
    return {"crossing": at, "crossing_low": low, "crossing_high": high}


def _selected(verdicts: Sequence[pa.Table], config: Config) -> float | None:
    """Mean over seeds and problems; None without verdicts, or if they do not suffice."""
    parts = [by_first_test(table, config.sampling.n) for table in verdicts]
    means = [selected_at_k(*one, config.report.headline_k) for one in parts if one is not None]
    return float(np.concatenate(means).mean()) if means and len(means) == len(parts) else None


def _distinct(verdicts: Sequence[pa.Table], config: Config) -> dict[str, float]:
    """Means over seeds and problems by column; empty without verdicts, or if they are older."""
    if not verdicts or any("outputs" not in table.column_names for table in verdicts):
        return {}
    n, ks = config.sampling.n, config.report.ks
    each = zip(DISTINCT, (distinct_programs, distinct_outputs), strict=True)
    means = {what: np.concatenate([count(table, n, ks) for table in verdicts]).mean(axis=0) for what, count in each}
    return {f"{what}_at_{k}": float(value) for what in DISTINCT for k, value in zip(ks, means[what], strict=True)}


def _verdicts(row: str, dataset: str, cell: Cell, config: Config) -> list[pa.Table]:
    """The verdicts that were scored, in order, one table per seed; none if any file is no longer there."""
    policies = [policy_name(row, seed) for seed in cell.seeds] or [row]
    each = [scored_verdicts(config, policy, dataset) for policy in policies]
    if not all(each) or not all(Path(path).exists() for paths in each for path in paths):
        return []
    return [in_order(pa.concat_tables(map(_read, paths), promote_options="default")) for paths in each]


def _read(path: str) -> pa.Table:
    """A shard of verdicts, with programs and outputs unless it is older than these columns."""
    names = pq.read_schema(path).names
    return files.read_table(path, records.VERDICT_AND_OUTPUTS if "outputs" in names else records.VERDICT)


def scored_verdicts(config: Config, policy: str, dataset: str) -> list[str]:
    """The shards of verdicts that a policy's scores were made from. Raises UserError for one that has changed since."""
    scores, found = config.layout.scores(policy, dataset), []
    for name, digest in files.read_provenance(scores).inputs.items():
        kind, _, shard = name.partition("/")
        if kind == "verdicts":
            path = config.layout.verdicts(policy, dataset, shard)
            if Path(path).exists() and files.digest(path) != digest:
                raise UserError(f"{scores}: made from another version of {path}; run `maxk score {policy}` again")
            found.append(path)
    return found


def outputs_by_k(scores: Scores, config: Config) -> pd.DataFrame:
    """Expected distinct outputs from diversity.csv, one row per policy, dataset and k.

    Raises UserError unless `maxk table` wrote it of these scores.
    """
    path = config.layout.table("diversity")
    written.require(config.layout, [path], scores.digest)
    frame = pd.read_csv(path)
    columns = {f"outputs_at_{k}": k for k in ks_of(frame)}
    long = frame.rename(columns=columns).melt(["policy", "dataset"], list(columns.values()), "k", "mean")
    return long.dropna().astype({"k": int})


# ---------------------------------------------------------------------------------------------------- Markdown
def to_markdown(frame: pd.DataFrame) -> str:
    """One table for readers, datasets one below the other."""
    k = ks_of(frame)[-1]
    header = ["policy", "dataset", "solved", "lost", "gained", *(f"max: {split}" for split in SPLITS)]
    lines = ["**Diversity: problems solved, and where policies differ**", ""]
    header += [f"programs among {k}", f"outputs among {k}"]
    lines += markdown.head([*header, "above GRPO from k", "chosen by one test"], words=2)
    lines += [markdown.row(_cells(row, k)) for row in estimates.records(frame)]
    notes = [
        "Solved: problems with a full pass among all samples; lost and gained against the base model. max: on problems "
        "that the base model never, rarely (below 10 % of its samples) and often solves; the base model's own means "
        "are affected by this selection. Programs and outputs: expected numbers of distinct ones, where a program's "
        "outputs are those on all tests; a program without output counts as none. Above GRPO from k: with its "
        "interval; never: not up to the number of samples. Chosen by one test: the other tests' reward of the sample "
        "that is chosen by the first. Means over seeds.",
    ]
    trained = frame[frame.policy != BASE].seeds
    notes += markdown.seed_notes(int(trained.min()), int(trained.max())) if len(trained) else []
    return markdown.below(lines, notes)


def ks_of(frame: pd.DataFrame) -> list[int]:
    """The k of the columns of distinct outputs."""
    return sorted(int(str(name).removeprefix("outputs_at_")) for name in frame if str(name).startswith("outputs_at_"))


def _cells(row: dict[str, Any], k: int) -> Iterator[str]:
    yield from (markdown.escape(row["label"]), markdown.escape(row["dataset"]))
    yield from (_number(row[key], "g") for key in ("solved", "lost", "gained"))
    yield from (_number(row[f"max_{split}"], ".3f") for split in SPLITS)
    yield from (_number(row[f"{what}_at_{k}"], ".1f") for what in DISTINCT)
    low, at, high = (_k(row[key]) for key in ("crossing_low", "crossing", "crossing_high"))
    yield "–" if pd.isna(row["crossing"]) else f"{at} [{low}, {high}]"
    yield _number(row["selected"], ".3f")


def _number(value: float, form: str) -> str:
    return "–" if pd.isna(value) else markdown.number(value, form)


def _k(value: float) -> str:
    return "never" if value == math.inf else f"{value:.0f}"
