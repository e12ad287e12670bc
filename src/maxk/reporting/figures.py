"""The paper's figures from scores and training logs, as PNG (200 dpi) and vector PDF.

figure1        pass@k against k, base model and GRPO (the paper's Figure 1)
figure2        distribution of the completions' mean token entropy (the paper's Figure 2: before and after GRPO)
max_at_k       max@k of all policies against k, and what training changed of it; means over datasets
max_at_k_grid  max@k of every policy on every dataset beside the base model
training       reward, KL to the base model and entropy over training
ratios         how far updates are off-policy

Bands are bootstrap intervals over problems and seeds, over training the range of seeds. Numbers: statistics.csv.

    maxk figure figure1 figure2 --config results/config.json
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from maxk.artifacts.paths import BASE
from maxk.config import Config
from maxk.errors import UserError
from maxk.reporting import estimates, style, training_log
from maxk.reporting.estimates import Replicates
from maxk.reporting.load import Scores
from maxk.reporting.specs import MEAN
from maxk.statistics import Floats

SUFFIXES = ("png", "pdf")
WIDTH = 8.0  # inches, of all figures


def require(name: str) -> None:
    """Raises UserError where there is no such figure."""
    if name not in FIGURES:
        raise UserError(f"no figure {name!r}; there are {', '.join(FIGURES)}")


def write(name: str, scores: Scores, config: Config) -> list[str]:
    """Draws a figure and writes its files; returns their paths."""
    require(name)
    paths = [config.layout.figure(name, suffix) for suffix in SUFFIXES]
    FIGURES[name](scores, config, paths)
    return paths


# ------------------------------------------------------------------------------------------------- against k
def base_and_grpo(scores: Scores, config: Config, paths: Sequence[str]) -> None:
    """pass@k against k of the base model and of GRPO: a panel a dataset, the mean first where there are several."""
    grpo = estimates.grpo_row(config)
    rows = [BASE] if grpo is None else [BASE, grpo]
    replicates = estimates.resample(scores, config.report)
    places = _places(scores)
    columns = min(len(places), 3)
    lines = -(-len(places) // columns)
    with style.figure(WIDTH, 2.1 * lines + 0.5) as figure:
        panels = style.panels(figure, lines, columns, [scores.labels[row] for row in rows])
        for place, ax in zip(places, panels.flat, strict=False):
            for row in rows:
                _draw_curve(ax, scores, replicates, row, place, "pass")
            ax.set_title(_place_title(scores, place), fontsize=7.5)
        for ax in list(panels.flat)[len(places) :]:
            ax.set_visible(False)
        style.log2_axis(list(panels.flat), scores.ks)
        _name_axes(panels, "k (samples drawn)", "pass@k")
        _label_curves([ax for ax in panels[:, -1] if ax.get_visible()] or [panels.flat[0]], scores)
        style.save(figure, paths)


def all_policies(scores: Scores, config: Config, paths: Sequence[str]) -> None:
    """max@k against k, means over datasets: all policies above, their paired differences to the base model below."""
    replicates = estimates.resample(scores, config.report)
    with style.figure(WIDTH, 6.0) as figure:
        above, below = panels = style.panels(figure, 2, 1, scores.labels.values())[:, 0]
        for row in scores.rows:
            _draw_curve(above, scores, replicates, row, MEAN, "max")
            if row != BASE:
                _draw_change(below, scores, replicates, row)
        below.axhline(0, color=style.BASE_COLOUR, linestyle=style.looks(scores.rows)[BASE].dashes, gid=BASE)
        above.set_title(f"max@k, {_place_title(scores, MEAN)}")
        below.set_title("What training changed: difference to the base model, problem by problem")
        style.log2_axis(list(panels), scores.ks)
        below.set_xlabel("k (samples drawn)")
        _label_curves(panels, scores)
        style.save(figure, paths)


def grid(scores: Scores, config: Config, paths: Sequence[str]) -> None:
    """max@k against k: a row a policy, a column a dataset and their mean; the base model dashed in every panel."""
    replicates = estimates.resample(scores, config.report)
    places = [*scores.datasets, MEAN] if len(scores.datasets) > 1 else list(scores.datasets)
    rows = [row for row in scores.rows if row != BASE]
    with style.figure(WIDTH, 0.78 * max(len(rows), 1) + 0.8) as figure:
        panels = style.panels(figure, max(len(rows), 1), len(places), scores.labels.values(), tight=True)
        style.log2_axis(list(panels.flat), scores.ks, sparse=True)
        for ax in panels.flat:  # with limits that every line moves, for all panels, drawing takes a minute
            ax.set_autoscaley_on(False)
        for place, column in zip(places, panels.T, strict=True):
            for row, ax in zip(rows or [BASE], column, strict=True):
                for drawn in dict.fromkeys((BASE, row)):
                    _draw_curve(ax, scores, replicates, drawn, place, "max")
            column[0].set_title("mean" if place == MEAN else place, fontsize=7)
        panels[0, 0].autoscale(axis="y")
        looks = style.looks(scores.rows)
        for row, ax in zip(rows or [BASE], panels[:, -1], strict=True):
            style.name_row(ax, scores.labels[row], looks[row])
        panels[-1, 0].set_xlabel("k (samples drawn)")
        panels[0, 0].set_ylabel("max@k")
        style.save(figure, paths)


def _draw_curve(ax: Axes, scores: Scores, replicates: Replicates, row: str, place: str, metric: str) -> None:
    """A policy's curve with its band; nothing where it has no scores."""
    if (row, place) in replicates.means:
        quantities = [f"{metric}@{k}" for k in scores.ks]
        means = np.array([scores.mean(row, place, quantity) for quantity in quantities], dtype=np.float64)
        drawn = np.stack([replicates.of(row, place, quantity) for quantity in quantities], axis=1)
        _draw_band(ax, scores, row, means, replicates.intervals(drawn))


def _draw_change(ax: Axes, scores: Scores, replicates: Replicates, row: str) -> None:
    """The paired difference of max@k to the base model, mean over datasets."""
    if {(row, MEAN), (BASE, MEAN)} <= set(replicates.means):
        quantities = [f"max@{k}" for k in scores.ks]
        pairs = [[scores.mean(one, MEAN, quantity) or 0.0 for one in (row, BASE)] for quantity in quantities]
        drawn = [replicates.of(row, MEAN, q) - replicates.of(BASE, MEAN, q) for q in quantities]
        means = np.array([own - base for own, base in pairs])
        _draw_band(ax, scores, row, means, replicates.intervals(np.stack(drawn, axis=1)))


def _draw_band(ax: Axes, scores: Scores, row: str, means: Floats, band: Floats) -> None:
    look = style.looks(scores.rows)[row]
    ax.fill_between(scores.ks, *band, color=look.colour, alpha=0.08, linewidth=0)
    ax.plot(scores.ks, means, color=look.colour, linestyle=look.dashes, zorder=3, gid=row)


def _label_curves(panels: Iterable[Axes], scores: Scores) -> None:
    """Names at the right ends of all lines; the last thing before a figure is saved."""
    for ax in panels:
        ends = {str(line.get_gid()): float(np.asarray(line.get_ydata())[-1]) for line in ax.get_lines()}
        style.label_lines(ax, ends, scores.labels, style.looks(scores.rows))


def _name_axes(panels: NDArray[Any], x: str, y: str) -> None:
    for ax in panels[-1]:
        ax.set_xlabel(x)
    for ax in panels[:, 0]:
        ax.set_ylabel(y)


def _places(scores: Scores) -> list[str]:
    return [MEAN, *scores.datasets] if len(scores.datasets) > 1 else list(scores.datasets)


def _place_title(scores: Scores, place: str) -> str:
    if place == MEAN and len(scores.datasets) == 1:
        [place] = scores.datasets
    if place == MEAN:
        return f"mean of {len(scores.datasets)} datasets"
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
    with style.figure(WIDTH, 0.5 * len(drawn) + 0.6) as figure:
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
    "ess_fraction": "effective sample fraction (Σρ)²/(n Σρ²)",
    "clip_fraction": "fraction of ratios outside the clamp",
    "first_order_error": "relative error of first-order weights",
}


def training(scores: Scores, config: Config, paths: Sequence[str]) -> None:
    """Reward, KL and entropy over the training run."""
    _over_training(TRAINING, scores, config, paths)


def ratios(scores: Scores, config: Config, paths: Sequence[str]) -> None:
    """Diagnostics of off-policy updates over the training run (`maxk.objectives.diagnostics`)."""
    _over_training(RATIOS, scores, config, paths)


def _over_training(titles: Mapping[str, str], scores: Scores, config: Config, paths: Sequence[str]) -> None:
    """What every policy's `metrics.jsonl` holds of the keys: smoothed, the mean over seeds and their range."""
    logs = {row: log for row in scores.rows if row != BASE and (log := training_log.read(config, row, titles))}
    shown = [key for key in titles if any(key in log for log in logs.values())]
    if not shown:
        style.save_note(f"No training log holds {', '.join(titles)}.", paths)
        return
    with style.figure(WIDTH, 2.0 * len(shown) + 0.5) as figure:
        panels = style.panels(figure, len(shown), 1, [scores.labels[row] for row in logs])[:, 0]
        for ax, key in zip(panels, shown, strict=True):
            ax.set_title(titles[key])
            _draw_training(ax, {row: log[key] for row, log in logs.items() if key in log}, scores)
        panels[-1].set_xlabel("share of the training run")
        _label_curves(panels, scores)
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
    "figure1": base_and_grpo,
    "figure2": entropy,
    "max_at_k": all_policies,
    "max_at_k_grid": grid,
    "training": training,
    "ratios": ratios,
}
