"""Experiments with `milestones`: do policies differ at equal KL to the base model, and at equal numbers of tokens?

A row of the table holds a policy at a point of its training (a milestone, the end, or a level that all policies reach).

    batches   generation batches seen, the same for all policies at a milestone
    tokens    tokens of prompts and completions generated so far, `num_tokens` of the training log
    kl        KL to the base model in nats per token, from the training log, on training prompts: mean over a tenth of
              the run around the point (at the end, over the last twentieth); made monotonic by its running maximum

Scores at a level are interpolated for each seed and problem between the points of its own training, linearly in √KL or
in tokens; docs/statistics.md says why, and what the intervals cover.

    maxk experiment matched --config results/config.json      # results/experiments/matched.{csv,md,png,pdf}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from maxk import statistics
from maxk.artifacts import files
from maxk.artifacts.paths import BASE, at_milestone, policy_name
from maxk.config import Config, Experiment
from maxk.errors import UserError
from maxk.reporting import estimates, markdown, rules, style, training_log
from maxk.reporting.load import Scores, load
from maxk.statistics import Floats

AXES = {"kl": "KL to the base model (nats per token; axis in √KL)", "tokens": "tokens of prompts and completions"}
LEVELS = {"kl": "equal KL", "tokens": "equal tokens"}
KL_WINDOW = 1 / 10  # of the run

Values = list[Floats]  # [seeds, problems] for every dataset


@dataclass(frozen=True)
class Course:
    """A policy along its training; point 0 is the base model, the last one the end. Points are those of all seeds."""

    policy: str
    batches: Sequence[int]
    at: Mapping[str, Floats]  # by axis, [seeds, points], ascending
    values: Mapping[str, Sequence[Values]]  # by quantity, one per point

    def interpolated(self, axis: str, target: float, quantity: str) -> Values:
        """Values where each seed reaches `target`, by interpolation between its neighbouring points."""
        scale = np.sqrt if axis == "kl" else np.asarray
        parts = [_weights(scale(points), scale(target)) for points in self.at[axis]]
        points = self.values[quantity]
        return [
            np.stack([sum(w * points[i][d][seed] for i, w in one.items()) for seed, one in enumerate(parts)])
            for d in range(len(points[0]))
        ]


def _weights(points: Floats, target: Any) -> dict[int, float]:
    """The neighbouring points of `target` and their weights."""
    after = int(np.clip(np.searchsorted(points, target), 1, len(points) - 1))
    span = points[after] - points[after - 1]
    weight = float((target - points[after - 1]) / span) if span > 0 else 1.0
    return {after - 1: 1 - weight, after: weight}


@dataclass(frozen=True)
class Findings:
    """Everything that the files are made from."""

    config: Config  # restricted to the experiment's policies and their milestones
    name: str
    experiment: Experiment
    scores: Scores
    courses: Mapping[str, Course]

    @property
    def quantities(self) -> tuple[str, str]:
        """What tables and figures show."""
        return _shown(self.config)

    @cached_property
    def levels(self) -> dict[str, float]:
        """By axis, the largest level that every seed of every policy reaches."""
        courses = self.courses.values()
        return {axis: float(min(course.at[axis][:, -1].min() for course in courses)) for axis in AXES if courses}

    def values(self, policy: str, point: int | str, quantity: str) -> Values:
        """Of a policy at a point of its training, or where it reaches the level of an axis."""
        course = self.courses[policy]
        if isinstance(point, int):
            return course.values[quantity][point]
        return course.interpolated(point, self.levels[point], quantity)

    def compare(self, policy: str, than: str, quantity: str, point: int | str = "kl") -> Mapping[str, Any]:
        """Difference, interval and test at a point; empty where a policy is incomplete."""
        if not {policy, than} <= self.courses.keys():
            return {}
        sides = [self.values(one, point, quantity) for one in (policy, than)]
        return estimates.contrast(sides, self.config.report, crossed=len(self.scores.configured) > 1)


def make(name: str, config: Config) -> tuple[pd.DataFrame, str, Figure]:
    """The experiment's table, Markdown and figure; within `style.applied`."""
    findings = collect(name, config)
    frame = table(findings)
    return frame, to_markdown(findings, frame), draw(findings, style.looks(config))


# ------------------------------------------------------------------------------------------------------ collect
def collect(name: str, config: Config) -> Findings:
    """Reads scores and training logs. Raises UserError if milestones do not belong to the trainings they are named by.

    Policies that lack scores of a seed or a milestone, or a training log, are left out; notes of the scores name them.
    """
    experiment, view = config.experiments[name], config.restricted_to(name)
    scores = load(view)
    found = {row: _course(view, scores, experiment, row) for row in experiment.rows}
    return Findings(view, name, experiment, scores, {row: one for row, one in found.items() if one is not None})


def _course(config: Config, scores: Scores, experiment: Experiment, row: str) -> Course | None:
    rows = [*(at_milestone(row, i) for i in range(1, experiment.milestones or 1)), row]
    places = [(one, dataset) for one in rows for dataset in scores.datasets]
    complete = all(place in scores.cells and scores.cells[place].seeds == scores.configured for place in places)
    log = training_log.read(config, row, ("kl", "num_tokens"))
    logged = len(log) == 2 and all(len(one) == len(scores.configured) for one in log.values())
    if not (complete and logged and all((BASE, dataset) in scores.cells for dataset in scores.datasets)):
        return None
    total = log["kl"].shape[1]
    batches = [*(_batches(config, row, one, scores.datasets) for one in rows[:-1]), total]
    last = np.array(batches) - 1
    kl = np.stack([training_log.smooth(one, KL_WINDOW)[last] for one in log["kl"]])
    start = np.zeros((len(kl), 1))
    return Course(
        policy=row,
        batches=[0, *batches],
        at={
            "kl": np.maximum.accumulate(np.hstack([start, kl]), axis=1),
            "tokens": np.hstack([start, log["num_tokens"][:, last]]),
        },
        values={q: [_values(scores, one, q) for one in (BASE, *rows)] for q in _quantities(config, experiment)},
    )


def _shown(config: Config) -> tuple[str, str]:
    return "max@1", f"max@{config.report.headline_k}"


def _quantities(config: Config, experiment: Experiment) -> set[str]:
    """Those shown and those that rules decide by."""
    return {*_shown(config), *(rules.quantity(rule, experiment, config.report) for rule in experiment.rules)}


def _values(scores: Scores, row: str, quantity: str) -> Values:
    """The base model's are repeated for every seed."""
    found = [scores.values(row, dataset, quantity) for dataset in scores.datasets]
    return [np.broadcast_to(one, (len(scores.configured), one.shape[1])) for one in found if one is not None]


def _batches(config: Config, row: str, milestone: str, datasets: Sequence[str]) -> int:
    """Generation batches behind a milestone, from the lineage of its scores.

    Raises UserError unless all seeds and datasets agree, and each is of the training that the end is of.
    """
    found = set()
    for seed in config.seeds:
        for dataset in datasets:
            path, end = (config.layout.scores(policy_name(one, seed), dataset) for one in (milestone, row))
            lineage = dict(files.read_provenance(path).lineage)
            found.add(lineage.pop("batches", None))
            if lineage != files.read_provenance(end).lineage:
                raise UserError(f"{path}: not from the same training as {end}; train {row} again")
    if len(found) != 1 or None in found:
        raise UserError(f"{milestone}: its scores are after {found} generation batches; train {row} again")
    return int(found.pop())


# ------------------------------------------------------------------------------------------------------ table
def table(findings: Findings) -> pd.DataFrame:
    """One row per policy and point, the levels at the end."""
    return pd.DataFrame(row for course in findings.courses.values() for row in _rows(findings, course))


def _rows(findings: Findings, course: Course) -> Iterator[dict[str, Any]]:
    of = {"policy": course.policy, "label": findings.scores.labels[course.policy]}
    last = len(course.batches) - 1
    for point in range(1, last + 1):
        means = {axis: float(course.at[axis][:, point].mean()) for axis in AXES}
        at = "end" if point == last else f"milestone {point}"
        yield {**of, "at": at, "batches": course.batches[point], **means, **_numbers(findings, course.policy, point)}
    for axis, level in findings.levels.items():
        levels = {"batches": None, **dict.fromkeys(AXES), axis: level}
        yield {**of, "at": LEVELS[axis], **levels, **_numbers(findings, course.policy, axis)}


def _numbers(findings: Findings, policy: str, point: int | str) -> dict[str, Any]:
    """Means with intervals, and differences to the reference at the same point."""
    found: dict[str, Any] = {}
    reference = findings.experiment.reference
    for quantity in findings.quantities:
        own = statistics.mean(findings.values(policy, point, quantity))
        ends = own.interval(findings.config.report.confidence, statistics.MEAN_BOUNDS)
        change = findings.compare(policy, reference, quantity, point) if policy != reference else {}
        found |= estimates.columns(quantity, [own.value, *ends], change)
    return found


# --------------------------------------------------------------------------------------------------- Markdown
def to_markdown(findings: Findings, frame: pd.DataFrame) -> str:
    """Answers of the rules, then the table for readers."""
    scores, experiment, report = findings.scores, findings.experiment, findings.config.report
    first, headline = findings.quantities
    lines = [f"**{findings.name}: {markdown.escape(experiment.question)}**", ""]
    decisions = rules.decide(experiment, report, findings.compare)
    lines += rules.to_markdown(decisions, scores.labels, where=" and equal KL")
    differences = [f"{quantity} − reference" for quantity in (first, headline)]
    header = ["Policy", "at", "KL", "million tokens", first, headline, *differences]
    lines += markdown.head(header, words=2)
    lines += [markdown.row(_cells(row, findings)) for row in estimates.records(frame)]
    shown = scores.only({BASE, *findings.courses}, scores.datasets)
    notes = [
        shown.means_note(report.confidence, f"{scores.labels[experiment.reference]}, at the same point"),
        "Equal KL and equal tokens are the largest that every seed of every policy reaches; scores there are "
        "interpolated between the points of each training, linearly in √KL or in tokens. KL is in nats per token, on "
        "training prompts. Intervals do not cover its error.",
        *markdown.seed_notes(*shown.seed_range),
        *scores.notes(),
    ]
    return markdown.below(lines, notes)


def _cells(row: Mapping[str, Any], findings: Findings) -> Iterator[str]:
    yield from (markdown.escape(row["label"]), row["at"])
    yield "–" if pd.isna(row["kl"]) else f"{row['kl']:.3f}"
    yield "–" if pd.isna(row["tokens"]) else f"{row['tokens'] / 1e6:.2f}"
    yield from (markdown.of_row(row, quantity) for quantity in findings.quantities)
    yield from (markdown.of_row(row, f"{quantity}_difference", "+.3f") for quantity in findings.quantities)


# ----------------------------------------------------------------------------------------------------- figure
def draw(findings: Findings, looks: Mapping[str, style.Look]) -> Figure:
    """max@1 and max@headline_k against KL (above) and against tokens (below); grey lines: the levels compared at."""
    figure, axes = plt.subplots(2, 2, figsize=(7.4, 5.6), layout="constrained")
    for row, axis in zip(axes, AXES, strict=True):
        for ax, quantity in zip(row, findings.quantities, strict=True):
            _draw(ax, findings, looks, axis, quantity)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _draw(ax: Axes, findings: Findings, looks: Mapping[str, style.Look], axis: str, quantity: str) -> None:
    for course in findings.courses.values():
        look = looks[course.policy]
        found = [statistics.mean(values) for values in course.values[quantity]]
        at = course.at[axis].mean(axis=0)
        ends = [one.interval(findings.config.report.confidence, statistics.MEAN_BOUNDS) for one in found]
        ax.vlines(at, *zip(*ends, strict=True), color=look.colour, linewidth=0.7, alpha=0.6)
        label = findings.scores.labels[course.policy]
        ax.plot(at, [one.value for one in found], label=label, **look.line)
    if axis in findings.levels:
        ax.axvline(findings.levels[axis], color="#888888", linewidth=0.6)
    ax.set(title=f"{quantity}, mean over datasets", xlabel=AXES[axis])
    if axis == "kl":  # straight lines are then what is interpolated
        ax.set_xscale("function", functions=(np.sqrt, np.square))
        ax.set_xlim(left=0)
        ax.xaxis.set_major_locator(MaxNLocator(6))
