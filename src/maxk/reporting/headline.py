"""The result of an experiment in two sentences and one short table, from statistics.csv and paired_tests.csv.

The Snakefile imports this module when a run ends, so it reads with `csv` alone. All numbers are max@k, means over
datasets.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from maxk.artifacts.paths import BASE
from maxk.config import Config
from maxk.reporting import MEAN, markdown


@dataclass(frozen=True)
class Interval:
    """A value, or a difference, with the ends of its interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 above zero, -1 below, 0 undecided: the interval contains zero."""
        return int(self.low > 0) - int(self.high < 0)

    def to_text(self, form: str) -> str:
        return markdown.with_ends(self.value, self.low, self.high, form)


@dataclass(frozen=True)
class Headline:
    """max@1, max@headline_k, and the differences to the base model at both, by policy; empty if nothing is scored.

    `leads` holds the difference of the best policy to the second, by that one's name; none if only one is scored.
    """

    labels: Mapping[str, str]
    means: Mapping[tuple[str, int], Interval]
    changes: Mapping[tuple[str, int], Interval]
    leads: Mapping[str, Interval]
    k: int

    @property
    def best(self) -> list[str]:
        """The policies with the highest mean max@headline_k; several if they are equal."""
        values = {policy: round(self.means[policy, self.k].value, 12) for policy in self.labels}
        return [policy for policy, value in values.items() if value == max(values.values())]


def read(config: Config) -> Headline | None:
    """The result; None if the tables have not been made or no policy has scores on every dataset."""
    paths = [Path(config.layout.table(name)) for name in ("statistics", "paired_tests")]
    if not all(path.exists() for path in paths):
        return None
    ks = (1, config.report.headline_k)
    means, changes = ([row for row in _rows(path) if int(row["k"]) in ks] for path in paths)
    found = Headline(
        {row["policy"]: row["label"] for row in means},
        {(row["policy"], int(row["k"])): _interval(row, "mean") for row in means},
        {
            (row["policy"], int(row["k"])): _interval(row, "difference")
            for row in changes
            if row["comparison"] == f"vs {BASE}"
        },
        {
            row["reference"]: _interval(row, "difference")
            for row in changes
            if row["comparison"] == "best vs second" and int(row["k"]) == config.report.headline_k
        },
        config.report.headline_k,
    )
    return found if found.labels else None


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as handle:
        return [row for row in csv.DictReader(handle) if row["dataset"] == MEAN and row["metric"] == "max"]


def _interval(row: Mapping[str, str], key: str) -> Interval:
    return Interval(*(float(row[name] or "nan") for name in (key, "low", "high")))


def sentences(found: Headline, config: Config) -> str:
    """Which policy has the highest mean, or which share it, and whether it is above the second and the base model.

    With one training seed, a last sentence says that this is no statement about methods.
    """
    base = found.labels.get(BASE, config.label(BASE))
    if list(found.labels) == [BASE]:
        shown = (f"max@{k} {found.means[BASE, k].to_text('.3f')}" for k in dict.fromkeys((1, found.k)))
        return f"{base}: {', '.join(shown)}."
    best = [found.labels[policy] for policy in found.best]
    value = f"the highest mean max@{found.k}, {found.means[found.best[0], found.k].value:.3f}"
    first = f"{', '.join(best[:-1])} and {best[-1]} share {value}." if len(best) > 1 else f"{best[0]} has {value}."
    return " ".join([first, *_compared(found), *markdown.seed_notes(len(config.seeds))])


def _compared(found: Headline) -> Iterator[str]:
    """The best policy, of equal ones the first, beside the second and the base model."""
    best, *equal = found.best
    rivals = {} if equal else dict(found.leads)
    if BASE not in found.best and (best, found.k) in found.changes:
        rivals[BASE] = found.changes[best, found.k]
    verdicts: dict[str, list[str]] = {}
    for policy, lead in rivals.items():
        name = "the base model" if policy == BASE else f"the second, {found.labels[policy]}"
        verdict = "above" if lead.sign > 0 else "not distinguishable from"
        verdicts.setdefault(verdict, []).append(f"{name} ({lead.to_text('+.3f')})")
    if verdicts:
        said = "; ".join(f"{one} {(' and ' if one == 'above' else ' or ').join(of)}" for one, of in verdicts.items())
        yield f"{found.labels[best] if equal else 'It'} is {said}."


def table(found: Headline) -> str:
    """max@1, max@headline_k and the difference to the base model there, as Markdown that fits 80 columns."""
    lines = markdown.head(["policy", "max@1", f"max@{found.k}", f"max@{found.k} − base model"])
    return "\n".join([*lines, *(markdown.row(_cells(found, policy)) for policy in found.labels)])


def _cells(found: Headline, policy: str) -> Iterator[str]:
    yield markdown.escape(found.labels[policy])
    for k in (1, found.k):
        values = [mean.value for (_, of), mean in found.means.items() if of == k]
        text = f"{found.means[policy, k].value:.3f}"
        yield f"**{text}**" if len(values) > 1 and found.means[policy, k].value == max(values) else text
    change = found.changes.get((policy, found.k))
    yield change.to_text("+.3f") if change else "–"
