"""The paper's figures from scores and training logs, as PNG (200 dpi) and vector PDF.

figure1     max@k and pass@k against k, every dataset and their mean, with bootstrap bands
figure2     distribution of the completions' mean token entropy (paper: before and after GRPO)
training    reward, KL to the base model and entropy against optimiser steps

maxk figure figure1 figure2 --config results/config.json
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from maxk.config import Config
from maxk.errors import UserError
from maxk.estimators import Floats
from maxk.paths import BASE
from maxk.reporting import statistics, style, training_log
from maxk.reporting.load import MEAN, Scores
from maxk.reporting.statistics import Replicates

SUFFIXES = ("png", "pdf")


def write(name: str, scores: Scores, config: Config) -> list[str]:
    """Draws a figure and writes its files; returns their paths."""
    if name not in FIGURES:
        raise UserError(f"no figure {name!r}; there are {', '.join(FIGURES)}")
    paths = [config.layout.figure(name, suffix) for suffix in SUFFIXES]
    FIGURES[name](scores, config, paths)
    return paths


# --------------------------------------------------------------------------------------------------- figure 1
def against_k(scores: Scores, config: Config, paths: Sequence[str]) -> None:
    """max@k and pass@k against k: one row of panels a dataset, the mean over datasets first."""
    replicates = statistics.resample(scores, config.report)
    places = [MEAN, *scores.datasets] if len(scores.datasets) > 1 else list(scores.datasets)
    with style.figure(9.4, 2.45 * len(places) + 0.3) as figure:
        panels = style.labelled_panels(
            figure, len(places), len(statistics.METRICS), scores.labels.values(), sharex=True
        )
        for place, row_of_panels in zip(places, panels, strict=True):
            for metric, ax in zip(statistics.METRICS, row_of_panels, strict=True):
                _draw_curves(ax, scores, replicates, place, metric)
                ax.set_title(f"{_place_title(scores, place)}: {metric}@k")
        for ax in panels[-1]:
            ax.set_xlabel("k (samples drawn)")
        figure.draw_without_rendering()  # limits and sizes are final: labels can be placed
        for ax in panels.flat:
            _label_curves(ax, scores)
        style.save(figure, paths)


def _draw_curves(ax: Axes, scores: Scores, replicates: Replicates, place: str, metric: str) -> None:
    looks = style.looks(scores.rows)
    for row in scores.rows:
        if (row, place) not in replicates.means:
            continue
        quantities = [f"{metric}@{k}" for k in scores.ks]
        means = np.array([scores.mean(row, place, quantity) for quantity in quantities])
        bands = np.array([replicates.interval(replicates.of(row, place, q)) for q in quantities])
        look = looks[row]
        ax.fill_between(scores.ks, *bands.T, color=look.colour, alpha=0.07, linewidth=0)
        ax.plot(scores.ks, means, color=look.colour, linestyle=look.dashes, zorder=3, gid=row)
    style.log2_axis(ax, scores.ks)


def _label_curves(ax: Axes, scores: Scores) -> None:
    ends = {str(line.get_gid()): float(np.asarray(line.get_ydata())[-1]) for line in ax.get_lines()}
    style.label_lines(ax, ends, scores.labels, style.looks(scores.rows))


def _place_title(scores: Scores, place: str) -> str:
    if place == MEAN:
        return f"Mean of {len(scores.datasets)} datasets"
    return f"{place} ({scores.problems(place)} problems)"


# --------------------------------------------------------------------------------------------------- figure 2
def entropy(scores: Scores, config: Config, paths: Sequence[str]) -> None:
    """Distribution of completion entropy, all datasets pooled: a ridge a policy, the base's behind."""
    pooled = {row: _entropies(scores, row) for row in scores.rows}
    drawn = {row: values for row, values in pooled.items() if values is not None}
    if not drawn:
        style.save_note("No entropies: set sampling.entropy to true and sample again.", paths)
        return
    looks = style.looks(scores.rows)
    edges = np.linspace(0, max(float(np.quantile(values, 0.995)) for values in drawn.values()) or 1.0, 61)
    base = drawn.get(BASE)
    with style.figure(6.4, 0.62 * len(drawn) + 0.7) as figure:
        figure.set_layout_engine("constrained")
        panels = figure.subplots(len(drawn), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
        for ax, (row, values) in zip(panels, drawn.items(), strict=True):
            if base is not None and row != BASE:
                _ridge(ax, base, edges, style.BASE_COLOUR, filled=False)
            _ridge(ax, values, edges, looks[row].colour, filled=True)
            _ridge_text(ax, scores.labels[row], float(values.mean()), looks[row])
        panels[-1].set_xlim(0, edges[-1])
        panels[-1].set_xlabel("mean token entropy of a completion (nats); line: mean, dashed: base model")
        style.save(figure, paths)


def _entropies(scores: Scores, row: str) -> Floats | None:
    cells = [scores.cells[row, dataset] for dataset in scores.datasets if (row, dataset) in scores.cells]
    found = [cell.entropies for cell in cells if cell.entropies is not None]
    return np.concatenate(found) if found and len(found) == len(cells) else None


def _ridge(ax: Axes, values: Floats, edges: Floats, colour: str, filled: bool) -> None:
    """A histogram as an outline: the share of all completions in each bin (the last 0.5 % are not shown)."""
    share = np.histogram(values, edges)[0] / len(values)
    if filled:
        ax.stairs(share, edges, color=colour, alpha=0.45, fill=True, linewidth=0)
        ax.stairs(share, edges, color=colour, linewidth=1.0)
    else:
        ax.stairs(share, edges, color=colour, linewidth=0.8, linestyle=(0, (2, 1)))


def _ridge_text(ax: Axes, label: str, mean: float, look: style.Look) -> None:
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.spines["left"].set_visible(False)
    ax.axvline(mean, color=look.colour, linewidth=0.8, ymax=0.85)
    place: dict[str, Any] = {"transform": ax.transAxes, "ha": "right", "va": "top", "color": look.text}
    ax.text(0.995, 0.95, label, weight="bold", **place)
    ax.text(0.995, 0.6, f"mean {mean:.3f}", fontsize=7, **place)


# -------------------------------------------------------------------------------------------- training curves
TRAINING = {
    "reward": "mean reward",
    "kl": "KL to the base model",
    "entropy": "token entropy (nats)",
}
RATIOS = {
    "ratio_q99": "99th percentile of the ratios ρ of whole completions",
    "effective_sample_share": "effective sample share (Σρ)²/(n Σρ²)",
    "clamped_share": "share of ratios outside the clamp",
    "first_order_error": "relative error of first-order weights",
}


def training(scores: Scores, config: Config, paths: Sequence[str]) -> None:
    """Reward, KL and entropy over the training run."""
    _over_training(TRAINING, scores, config, paths)


def ratios(scores: Scores, config: Config, paths: Sequence[str]) -> None:
    """Diagnostics of off-policy updates over the training run (`maxk.diagnostics`)."""
    _over_training(RATIOS, scores, config, paths)


def _over_training(titles: Mapping[str, str], scores: Scores, config: Config, paths: Sequence[str]) -> None:
    """What every policy's `metrics.jsonl` holds of the keys: smoothed, the mean over seeds and their range."""
    logs = {row: log for row in scores.rows if row != BASE and (log := training_log.read(config, row, titles))}
    shown = [key for key in titles if any(key in log for log in logs.values())]
    if not shown:
        style.save_note(f"No training log holds {', '.join(titles)}.", paths)
        return
    with style.figure(9.4, 2.9 * len(shown) + 0.2) as figure:
        panels = style.labelled_panels(figure, len(shown), 1, scores.labels.values(), sharex=True)[:, 0]
        for ax, key in zip(panels, shown, strict=True):
            ax.set_title(titles[key])
            _draw_training(ax, {row: log[key] for row, log in logs.items() if key in log}, scores)
        panels[-1].set_xlabel("share of the training run")
        figure.draw_without_rendering()
        for ax in panels:
            _label_curves(ax, scores)
        style.save(figure, paths)


def _draw_training(ax: Axes, curves: Mapping[str, Floats], scores: Scores) -> None:
    looks = style.looks(scores.rows)
    for row, values in curves.items():
        smooth = np.array([training_log.smooth(one) for one in values])
        at = np.linspace(0, 1, smooth.shape[1])
        if len(smooth) > 1:
            ax.fill_between(at, smooth.min(axis=0), smooth.max(axis=0), color=looks[row].colour, alpha=0.08, lw=0)
        ax.plot(at, smooth.mean(axis=0), color=looks[row].colour, linestyle=looks[row].dashes, gid=row)
    ax.set_xlim(0, 1)


FIGURES: Mapping[str, Callable[[Scores, Config, Sequence[str]], None]] = {
    "figure1": against_k,
    "figure2": entropy,
    "training": training,
    "ratios": ratios,
}
