"""Experiments: questions of the config's `experiments`, each answered by a table and a figure.

Made from the same scores, with the same statistics, as the main tables. The table has max@1 and max@headline_k with the
differences to the reference, where training ended (means over its last tenth), and max@1 and max@n of the training
groups at matched KL: where each policy first reaches the KL that all of them reach. Groups are scored before they are
learned from, and in the first epoch every problem is new.

With `choose: learning_rate`, policies that differ in nothing else are candidates. The one with the highest
max@headline_k on the first, third, … problem of every dataset is chosen; all numbers are those of the other problems.
The rule was written before any result was seen.

    maxk experiment k_sweep --config results/config.json      # results/experiments/k_sweep.{csv,md,png,pdf}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from maxk.artifacts import files
from maxk.artifacts.paths import BASE
from maxk.config import Config, Experiment
from maxk.config.messages import brief
from maxk.reporting import MEAN, estimates, markdown, matched, rules, style, training_log, votes, written
from maxk.reporting.load import Scores, load
from maxk.reporting.rendering import to_csv
from maxk.statistics import Floats
from maxk.tracking.page import FINALS

ERRORS = {"first_order_error": "leave-one-out", "paper_weights_error": "the paper's, centred"}
# Means over all of training; those of `FINALS` are over its last tenth.
THROUGHOUT = ("frac_reward_zero_std", "clip_fraction", "ess_fraction", *ERRORS)

_AXES = {
    "k": "k of the objective",
    "iterations": "PPO iterations μ",
    "temperature": "training temperature",
    "learning_rate": "learning rate",
}


def write(name: str, config: Config) -> list[str]:
    """Makes the experiment's files; returns their paths. Raises UserError if there is no such experiment."""
    made_from = written.digest_of_scores(config.restricted_to(name))
    paths = [config.layout.experiment(name, suffix) for suffix in ("csv", "md", "png", "pdf")]
    with style.applied():
        frame, text, drawing = (matched.make if config.experiments[name].milestones else make)(name, config)
        files.write_text(paths[0], to_csv(frame))
        files.write_text(paths[1], text)
        style.save(drawing, paths[2:])
    written.record(config.layout, paths, made_from)
    return paths


def make(name: str, config: Config) -> tuple[pd.DataFrame, str, Figure]:
    """The experiment's table, Markdown and figure; within `style.applied`."""
    findings = collect(name, config)
    frame = table(findings)
    return frame, to_markdown(findings, frame), draw(findings, style.looks(config))


# ------------------------------------------------------------------------------------------------------ collect
@dataclass(frozen=True)
class Outcome:
    """Results of one policy. `log` holds its training metrics [seeds, generation batches] by key."""

    policy: str
    label: str
    series: str
    parameters: Mapping[str, Any]
    development: float | None  # max@headline_k on the half that the choice is made on
    chosen: bool | None
    log: Mapping[str, Floats]


@dataclass(frozen=True)
class Findings:
    """Everything that an experiment's files are made from."""

    config: Config  # restricted to the experiment's policies
    name: str
    experiment: Experiment
    scores: Scores
    outcomes: tuple[Outcome, ...]
    means: Mapping[tuple[str, str], Mapping[str, Any]]  # rows of `estimates.means` of the mean over datasets

    @property
    def headline(self) -> str:
        return f"max@{self.config.report.headline_k}"

    @property
    def quantities(self) -> tuple[str, ...]:
        """What the table holds of every policy."""
        vote = (f"maj@{self.experiment.vote}",) if self.experiment.vote else ()
        return ("max@1", self.headline, *vote)

    def compare(self, policy: str, reference: str, quantity: str) -> Mapping[str, Any]:
        """Difference of the means over datasets, its interval and test; empty without scores, or with itself."""
        pairs = {MEAN: (policy, reference)} if policy != reference else {}
        return next(estimates.compared(self.scores, self.config.report, "vs reference", pairs, quantity), {})

    @property
    def shown(self) -> list[Outcome]:
        """What is drawn: policies with scores, of candidates the chosen ones."""
        return [one for one in self.outcomes if one.chosen is not False and (one.policy, "max@1") in self.means]


def collect(name: str, config: Config) -> Findings:
    """Reads scores and training logs of the experiment's policies, and makes the choice if it asks for one."""
    view, experiment = config.restricted_to(name), config.experiments[name]
    scores = load(view)
    development = scores.half(0) if experiment.choose else None
    scores = scores.half(1) if experiment.choose else scores
    scores = votes.with_votes(view, scores, experiment.vote) if experiment.vote else scores
    headline = f"max@{config.report.headline_k}"
    before = {row: development.mean(row, MEAN, headline) if development else None for row in scores.rows}
    chosen = _chosen(before, _settings(view, without=(experiment.choose,))) if experiment.choose else None
    series = _series(view, without=(experiment.choose, experiment.against))
    outcomes = tuple(
        Outcome(
            policy=row,
            label=scores.labels[row],
            series=series[row],
            parameters=_parameters(view, row),
            development=before[row],
            chosen=None if chosen is None else row in chosen,
            log=training_log.read(view, row, (*FINALS, *THROUGHOUT, *_train_maxima(view, row))),
        )
        for row in view.objectives
    )
    vote = (f"maj@{experiment.vote}",) if experiment.vote else ()
    rows = estimates.records(estimates.means(scores, view, vote).query("dataset == @MEAN"))
    means = {(row["policy"], f"{row['metric']}@{row['k']}"): row for row in rows}
    return Findings(view, name, experiment, scores, outcomes, means)


def _parameters(config: Config, row: str) -> dict[str, Any]:
    """What experiments vary. Without a key k it is n for the best of the group, else 1: the mean reward is max@1."""
    objective, training = config.objectives[row], config.training_of(row)
    k = training.num_generations if objective.kind.best_of_group else 1
    return {
        "type": objective.type,
        "k": str(objective.objective.keys.get("k", k)),
        "iterations": training.iterations,
        "learning_rate": training.learning_rate,
        "temperature": training.temperature,
    }


def _series(config: Config, without: Sequence[str | None]) -> dict[str, str]:
    """By policy, a name shared by all policies that differ in the keys of `without` alone.

    A policy that shares with no other keeps its label. Else it is the type's label with the other keys in which
    policies of this type differ.
    """
    settings, names = _settings(config, without), {}
    for row, own in settings.items():
        label = config.objectives[row].kind.label
        alike = [settings[other] for other in settings if config.objectives[other].kind.label == label]
        differing = {key: value for key, value in own.items() if any(one.get(key) != value for one in alike)}
        shared = f"{label}, {brief(differing)}" if differing else label
        names[row] = shared if alike.count(own) > 1 else config.label(row)
    return names


def _settings(config: Config, without: Sequence[str | None]) -> dict[str, dict[str, Any]]:
    """By policy, the keys of its objective and its training but those of `without`."""
    every = {
        row: {**objective.objective.keys, **objective.training, **_parameters(config, row)}
        for row, objective in config.objectives.items()
    }
    return {row: {key: value for key, value in own.items() if key not in without} for row, own in every.items()}


def _chosen(before: Mapping[str, float | None], settings: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The best of each group of candidates with equal settings; one without scores keeps its group from choosing."""
    chosen = set()
    for own in settings.values():
        members = [row for row, other in settings.items() if other == own]
        if all(before[row] is not None for row in members):
            chosen.add(max(members, key=lambda row: before[row] or 0.0))
    return chosen


def _train_maxima(config: Config, row: str) -> tuple[str, str]:
    return "train_max@1", f"train_max@{config.training_of(row).num_generations}"


# ------------------------------------------------------------------------------------------------- matched KL
def matched_kl(findings: Findings) -> float | None:
    """The largest KL to the base model that all policies with such a log reach; only chosen ones, if any are chosen."""
    reached = [
        trajectory(outcome.log)[0][-1]
        for outcome in findings.outcomes
        if "kl" in outcome.log and outcome.chosen is not False
    ]
    return float(min(reached)) if reached else None


def trajectory(log: Mapping[str, Floats]) -> tuple[Floats, dict[str, Floats]]:
    """KL over training and max@k of the training groups by key: smoothed means over seeds, [generation batches].

    The KL is made monotonic (its running maximum), so that every level is first reached once. Means are over a quarter
    of the run: groups are few, and best-of-n of a batch is noisy.
    """
    means = {key: training_log.smooth(values.mean(axis=0), fraction=1 / 4) for key, values in log.items()}
    return np.maximum.accumulate(means["kl"]), {key: means[key] for key in means if key.startswith("train_max@")}


def at_matched_kl(log: Mapping[str, Floats], target: float | None) -> dict[str, float | None]:
    """max@1 and max@n of the training groups where the policy first reaches the KL `target` (linear interpolation)."""
    found: dict[str, float | None] = {"matched_kl": target, "train_max@1_at_kl": None, "train_max@n_at_kl": None}
    if "kl" in log and target is not None:
        kl, maxima = trajectory(log)
        if kl[-1] >= target:
            first, last = (float(np.interp(target, kl, curve)) for curve in maxima.values())
            found |= {"train_max@1_at_kl": first, "train_max@n_at_kl": last}
    return found


# ------------------------------------------------------------------------------------------------------ table
def table(findings: Findings) -> pd.DataFrame:
    """One row per policy, the base model first."""
    target = matched_kl(findings)
    return pd.DataFrame(
        {
            "policy": outcome.policy if outcome else BASE,
            "label": outcome.label if outcome else findings.scores.labels[BASE],
            **(outcome.parameters if outcome else dict.fromkeys(findings.outcomes[0].parameters)),
            "chosen": None if outcome is None or outcome.chosen is None else "yes" if outcome.chosen else "no",
            f"development_{findings.headline}": outcome.development if outcome else None,
            **_estimates(findings, outcome.policy if outcome else BASE),
            **_training_means(outcome.log if outcome else {}),
            **at_matched_kl(outcome.log if outcome else {}, target),
            "seeds": _seeds(findings, outcome.policy) if outcome else None,
        }
        for outcome in (None, *findings.outcomes)
    )


def _estimates(findings: Findings, policy: str) -> dict[str, Any]:
    """Means over datasets and differences to the reference, with their intervals; blank without scores."""
    found: dict[str, Any] = {}
    for quantity in findings.quantities:
        own = findings.means.get((policy, quantity), {})
        change = findings.compare(policy, findings.experiment.reference, quantity)
        found |= estimates.columns(quantity, [own.get(key) for key in ("mean", "low", "high")], change)
    return found


def _training_means(log: Mapping[str, Floats]) -> dict[str, float | None]:
    ends = {f"final_{key}": float(_last_tenth(log[key]).mean()) if key in log else None for key in FINALS}
    return ends | {f"mean_{key}": float(log[key].mean()) if key in log else None for key in THROUGHOUT}


def _last_tenth(values: Floats) -> Floats:
    return values[:, -max(1, values.shape[1] // 10) :]


def _seeds(findings: Findings, policy: str) -> int:
    return len({seed for (row, _), cell in findings.scores.cells.items() if row == policy for seed in cell.seeds})


# --------------------------------------------------------------------------------------------------- Markdown
def to_markdown(findings: Findings, frame: pd.DataFrame) -> str:
    """The table for readers: estimates with intervals, differences to the reference, KL."""
    headline, scores = findings.headline, findings.scores
    vote = [name for quantity in findings.quantities[2:] for name in (quantity, f"{quantity} − reference")]
    header = ["Policy", "max@1", headline, f"{headline} − reference", *vote]
    header += [*_finals(findings), "at equal KL: max@1", "max@n"]
    lines = [f"**{findings.name}: {markdown.escape(findings.experiment.question)}**", ""]
    decisions = rules.decide(findings.experiment, findings.config.report, findings.compare)
    lines += [*rules.to_markdown(decisions, scores.labels), *markdown.head(header)]
    lines += [markdown.row(_markdown_cells(row, findings)) for row in estimates.records(frame)]
    reference = scores.labels[findings.experiment.reference]
    notes = [
        scores.means_note(findings.config.report.confidence, reference),
        "At equal KL: max@k of the training groups where each policy first reaches the KL that all of them reach.",
    ]
    if findings.experiment.vote:
        notes.append(f"maj@{findings.experiment.vote}: reward of the most frequent answer among so many samples.")
    notes += _errors(findings)
    if any(outcome.chosen is not None for outcome in findings.outcomes):
        notes.append(
            f"✓ marks the learning rate with the higher {headline} on every other problem; all numbers are those of "
            "the remaining problems."
        )
    notes += [*markdown.seed_notes(*scores.seed_range), *scores.notes()]
    return markdown.below(lines, notes)


def _finals(findings: Findings) -> dict[str, str]:
    """Columns of the table's last values of training, by header; the KL to π_old where a policy logs it."""
    to_old = any("kl_old" in outcome.log for outcome in findings.outcomes)
    return {
        "final KL": "final_kl",
        **({"final KL to π_old": "final_kl_old"} if to_old else {}),
        "final entropy": "final_entropy",
    }


def _errors(findings: Findings) -> Iterator[str]:
    """What dropping higher orders of δ costs, where ratios were measured."""
    parts = [
        f"{outcome.label} {float(outcome.log[key].mean()):.1%} ({of})"
        for outcome in findings.outcomes
        for key, of in ERRORS.items()
        if key in outcome.log
    ]
    if parts:
        yield f"Relative error of first-order weights on the training batches, mean: {'; '.join(parts)}."


def _markdown_cells(row: Mapping[str, Any], findings: Findings) -> list[str]:
    def plain(key: str) -> str:
        return "–" if pd.isna(row[key]) else markdown.number(row[key], ".3f")

    mark = " ✓" if row["chosen"] == "yes" else ""
    estimates = [markdown.of_row(row, "max@1")]
    for quantity in findings.quantities[1:]:
        estimates += [markdown.of_row(row, quantity), markdown.of_row(row, f"{quantity}_difference", "+.3f")]
    ends = map(plain, (*_finals(findings).values(), "train_max@1_at_kl", "train_max@n_at_kl"))
    return [markdown.escape(row["label"]) + mark, *estimates, *ends]


# ----------------------------------------------------------------------------------------------------- figure
def draw(findings: Findings, looks: Mapping[str, style.Look]) -> Figure:
    """Three panels and a legend: against k (or the parameter varied), the trade-off, and max@n against KL."""
    of_series = _looks(findings, looks)
    height = 3.0 + 0.16 * (len(of_series) // 3 + 1)
    figure, (first, second, third) = plt.subplots(1, 3, figsize=(9.4, height), layout="constrained")
    (_draw_against if findings.experiment.against else _draw_curves)(first, findings, of_series)
    _draw_trade_off(second, findings, of_series)
    _draw_kl(third, findings, of_series)
    handles, labels = second.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _looks(findings: Findings, looks: Mapping[str, style.Look]) -> dict[str, style.Look]:
    """By series: the look of its first policy in the order of the config, which those of the main figures open."""
    series = {one.policy: one.series for one in findings.shown}
    first = {series[policy]: looks[policy] for policy in reversed(list(looks)) if policy in series}
    return {BASE: looks[BASE], **{one.series: first[one.series] for one in findings.shown}}


def _interval(findings: Findings, policy: str, quantity: str) -> tuple[float, float, float]:
    """Mean over datasets and the ends of its interval."""
    row = findings.means[policy, quantity]
    return row["mean"], row["low"], row["high"]


def _drawn(findings: Findings) -> list[tuple[str, str]]:
    """Policies and their series, the base model first if it has scores."""
    base = [(BASE, BASE)] if (BASE, "max@1") in findings.means else []
    return [*base, *((one.policy, one.series) for one in findings.shown)]


def _draw_curves(ax: Axes, findings: Findings, looks: Mapping[str, style.Look]) -> None:
    """max@k against k, the mean over datasets."""
    ks = findings.scores.ks
    for policy, series in _drawn(findings):
        means, lows, highs = zip(*(_interval(findings, policy, f"max@{k}") for k in ks), strict=True)
        ax.fill_between(ks, lows, highs, color=looks[series].colour, alpha=0.08, linewidth=0)
        ax.plot(ks, means, **looks[series].line)
    style.log2_axis([ax], ks)
    ax.set(title="max@k, mean over datasets; bands: intervals", xlabel="k (samples drawn)")


def _draw_against(ax: Axes, findings: Findings, looks: Mapping[str, style.Look]) -> None:
    """max@headline_k against the parameter that is varied, one line per series; the base model as a level."""
    key = str(findings.experiment.against)
    if (BASE, findings.headline) in findings.means:
        mean, low, high = _interval(findings, BASE, findings.headline)
        ax.axhspan(low, high, color=looks[BASE].colour, alpha=0.06, linewidth=0)
        ax.axhline(mean, **(looks[BASE].line | {"marker": ""}))
    for series in dict.fromkeys(one.series for one in findings.shown):
        members = sorted((o for o in findings.shown if o.series == series), key=lambda o: float(o.parameters[key]))
        at = [float(one.parameters[key]) for one in members]
        means, lows, highs = zip(*(_interval(findings, one.policy, findings.headline) for one in members), strict=True)
        ax.vlines(at, lows, highs, color=looks[series].colour, linewidth=0.8, alpha=0.6)
        ax.plot(at, means, **looks[series].line)
    ax.set_xticks(sorted({float(one.parameters[key]) for one in findings.shown}))
    ax.set(title=f"{findings.headline}, mean over datasets", xlabel=_AXES[key])


def _draw_trade_off(ax: Axes, findings: Findings, looks: Mapping[str, style.Look]) -> None:
    """max@headline_k against max@1, with both intervals and the value of what is varied; makes the legend's handles."""
    named: set[str] = set()
    key = findings.experiment.against
    values = {one.policy: one.parameters[key] for one in findings.shown} if key else {}
    for policy, series in _drawn(findings):
        (x, *x_ends), (y, *y_ends) = (_interval(findings, policy, q) for q in ("max@1", findings.headline))
        label = None if series in named else findings.scores.labels[BASE] if series == BASE else series
        named.add(series)
        ax.hlines(y, x_ends[0], x_ends[1], color=looks[series].colour, linewidth=0.7)
        ax.vlines(x, y_ends[0], y_ends[1], color=looks[series].colour, linewidth=0.7)
        # A single point draws no line, but its handle in the legend does.
        ax.plot(x, y, label=label, **looks[series].line)
        ax.annotate(f"{values.get(policy, '')}", (x, y), (3, 3), textcoords="offset points", fontsize=6.5)
    ax.set(title="Trade-off", xlabel="max@1, mean over datasets", ylabel=findings.headline)


def _draw_kl(ax: Axes, findings: Findings, looks: Mapping[str, style.Look]) -> None:
    """max@n of the training groups against KL: what a policy gains for how far it has moved."""
    for outcome in findings.shown:
        if "kl" in outcome.log:
            kl, maxima = trajectory(outcome.log)
            ax.plot(kl, list(maxima.values())[-1], **(looks[outcome.series].line | {"marker": ""}), linewidth=1.0)
    target = matched_kl(findings)
    if target is not None:
        ax.axvline(target, color="#888888", linewidth=0.6)
    ax.set(title="Training groups: best of n against KL", xlabel="KL to the base model")
