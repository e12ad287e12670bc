"""Every figure, declared once: its name, title, caption and the function that draws it, as PNG (200 dpi) and PDF.

Figures 1 and 2 are the paper's. Curves and intervals are those of statistics.csv and paired_tests.csv.

    maxk table statistics paired_tests --config results/config.json
    maxk figure figure1 max_at_k --config results/config.json

To add a figure, write a function here that returns it. The Snakefile reads this module, so functions import what they
need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maxk.artifacts.paths import BASE
from maxk.config import Config
from maxk.config.colours import BASE_COLOUR
from maxk.errors import lookup
from maxk.reporting import MEAN

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd
    from matplotlib.axes import Axes

    from maxk.reporting.load import Scores
    from maxk.reporting.style import Look, Panels

SUFFIXES = ("png", "pdf")
WIDTH = 8.0  # inches, of all figures
BANDS = "Bands are intervals over problems, and over training seeds if there are several (statistics.csv)."


# --------------------------------------------------------------------------------------------------------- declaration
@dataclass(frozen=True)
class Inputs:
    """What figures are drawn from: `means` is statistics.csv, `differences` paired_tests.csv."""

    config: Config
    scores: Scores
    means: pd.DataFrame
    differences: pd.DataFrame
    looks: Mapping[str, Look]


@dataclass(frozen=True)
class Figure:
    """A figure's declaration."""

    name: str
    title: str
    caption: str
    draw: Callable[[Inputs], matplotlib.figure.Figure]
    trained: bool  # only of experiments that train policies


FIGURES: dict[str, Figure] = {}


def figure(
    title: str, caption: str, trained: bool = False
) -> Callable[[Callable[[Inputs], matplotlib.figure.Figure]], None]:
    """Declares the function's figure under the function's name."""

    def declare(draw: Callable[[Inputs], matplotlib.figure.Figure]) -> None:
        FIGURES[draw.__name__] = Figure(draw.__name__, title, caption, draw, trained)

    return declare


def figures(config: Config) -> dict[str, Figure]:
    """All figures of an experiment by name, in order."""
    return {name: one for name, one in FIGURES.items() if config.objectives or not one.trained}


def get(config: Config, name: str) -> Figure:
    """A figure by its name. Raises UserError if the experiment has no such figure."""
    return lookup(figures(config), name, "figure")


def inputs(scores: Scores, config: Config) -> Inputs:
    """Reads what figures are drawn from. Raises UserError if the tables of statistics are missing."""
    from maxk.reporting import estimates, style

    return Inputs(config, scores, *estimates.read(scores, config), style.looks(config))


def write(declared: Figure, given: Inputs) -> list[str]:
    """Draws a figure and writes its files; returns their paths."""
    from maxk.reporting import style, written

    paths = [given.config.layout.figure(declared.name, suffix) for suffix in SUFFIXES]
    with style.applied():
        style.save(declared.draw(given), paths)
    written.record(given.config.layout, paths, given.scores.digest)
    return paths


# ----------------------------------------------------------------------------------------------------------- against k
@figure(
    "max@k of all policies",
    "max@k against k, mean over datasets. With trained policies, their differences to the base model and to GRPO on "
    "the same problems; where a line crosses zero, the order of the two changes. The intervals of several policies "
    "would overlap: see `differences` and `max_at_k_grid`, and for the crossing k of every dataset the table "
    "`diversity`.",
)
def max_at_k(given: Inputs) -> matplotlib.figure.Figure:
    import pandas as pd

    from maxk.reporting import style

    if not given.config.objectives:
        return _base_against_k(given)
    panels = {f"vs {one}": f"max@k − {given.scores.labels[one]}" for one in _references(given)}
    changes = given.differences[given.differences.comparison.isin(panels)].rename(columns={"difference": "mean"})
    parts = [given.means.assign(panel="max@k"), changes.assign(panel=changes.comparison.map(panels))]
    parts = [part.query("metric == 'max' and dataset == @MEAN") for part in parts]
    if parts[0].empty:
        return style.message("No policy has scores on every dataset.")
    data = pd.concat([part for part in parts if len(part)], ignore_index=True)
    shown = [panel for panel in ("max@k", *panels.values()) if panel in set(data.panel)]
    size = (WIDTH, 3.0)
    drawn = style.curves(
        data, given.looks, "k", "panel", shown, columns=len(shown), size=size, sharey=False, bands=False
    )
    for ax in drawn.axes[1:]:
        ax.axhline(0, color=BASE_COLOUR, linewidth=0.8)
    drawn.figure.suptitle(_title(given, MEAN), fontsize=8.5)
    return _against_k(given, drawn, "", data)


def _base_against_k(given: Inputs) -> matplotlib.figure.Figure:
    """max@k and pass@k of the base model, where nothing is trained: the mean over datasets with its interval."""
    from maxk.reporting import style

    data = given.means[given.means.dataset == MEAN]
    data = data.assign(panel=data.metric + "@k")
    if data.empty:
        return style.message("The base model lacks scores on a dataset.")
    shown = list(dict.fromkeys(data.panel))
    drawn = style.curves(data, given.looks, "k", "panel", shown, columns=len(shown), size=(WIDTH, 3.0))
    drawn.figure.suptitle(_title(given, MEAN), fontsize=8.5)
    return _against_k(given, drawn, "", data)


def _references(given: Inputs) -> list[str]:
    """What policies are compared with: the base model, and GRPO if it is trained."""
    from maxk.reporting import estimates

    return [BASE, *filter(None, [estimates.roles(given.config).grpo])]


@figure(
    "Differences to the base model and to GRPO, with intervals",
    "What training changed: differences of max@1, and of max@k at the k of table 2, to the base model and to GRPO, on "
    "the same problems, mean over datasets. Lines are intervals over problems, and over training seeds if there are "
    "several (paired_tests.csv); filled dots: the interval excludes zero. With one seed they are about these trained "
    "policies, not about methods.",
    trained=True,
)
def differences(given: Inputs) -> matplotlib.figure.Figure:
    import matplotlib.pyplot as plt

    from maxk.reporting import markdown, style

    ks = dict.fromkeys((1, given.config.report.headline_k))
    panels = [(f"vs {one}", k) for k in ks for one in _references(given)]
    data = given.differences.query("metric == 'max' and dataset == @MEAN")
    data = data[[panel in panels for panel in zip(data.comparison, data.k, strict=True)]]
    if data.empty:
        return style.message("No trained policy has scores on every dataset.")
    policies = list(dict.fromkeys(data.policy))
    size = (WIDTH, 0.22 * len(policies) + 1.0)
    drawn, axes = plt.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for ax, (comparison, k) in zip(axes[0], panels, strict=True):
        part = data[(data.comparison == comparison) & (data.k == k)].set_index("policy")
        _draw_intervals(ax, part, policies, given.looks)
        ax.set_title(f"max@{k} −\n{given.scores.labels[comparison.removeprefix('vs ')]}", fontsize=8)
    axes[0, 0].set_yticks(range(len(policies)), [given.scores.labels[policy] for policy in policies])
    axes[0, 0].invert_yaxis()
    notes = [f"{_title(given, MEAN).capitalize()}.", *markdown.seed_notes(*given.scores.seed_range)]
    drawn.supxlabel(" ".join(notes), fontsize=7)
    return drawn


def _draw_intervals(ax: Axes, data: pd.DataFrame, policies: list[str], looks: Mapping[str, Look]) -> None:
    """One difference with its interval per policy; its dot is filled if the interval excludes zero."""
    ax.axvline(0, color=BASE_COLOUR, linewidth=0.8)
    ax.locator_params(axis="x", nbins=4)
    for place, policy in enumerate(policies):
        if policy in data.index:
            row, look = data.loc[policy], looks[policy]
            fill = look.colour if row.low > 0 or row.high < 0 else "white"
            ax.plot([row.low, row.high], [place, place], color=look.colour)
            ax.plot(row.difference, place, look.marker, color=look.colour, markerfacecolor=fill, markeredgewidth=1.0)


@figure(
    "max@k of every policy on every dataset",
    "One row per policy, one column per dataset and their mean; the base model is dashed in every panel. All panels "
    "share their axes. " + BANDS,
)
def max_at_k_grid(given: Inputs) -> matplotlib.figure.Figure:
    import matplotlib.pyplot as plt

    from maxk.reporting import style

    data, titles = _in_places(given, given.means.query("metric == 'max'"))
    policies = [policy for policy in given.looks if policy in set(data.policy) - {BASE}] or [BASE]
    shape, size = (len(policies), len(titles)), (WIDTH, 0.8 * len(policies) + 0.9)
    drawn, axes = plt.subplots(*shape, figsize=size, squeeze=False, sharex=True, sharey=True, layout="constrained")
    style.log2_axis([axes[0, 0]], given.scores.ks, sparse=True)
    for ax in axes.flat:  # else every line moves the shared limits of all panels, which takes a minute
        ax.set_autoscale_on(False)
    for policy, row in zip(policies, axes, strict=True):
        for title, ax in zip(titles, row, strict=True):
            for one in dict.fromkeys([BASE, policy]):
                part = data[(data.policy == one) & (data.dataset == title)]
                style.band(ax, part, "k", given.looks[one])
                ax.plot(part.k, part["mean"], **(given.looks[one].line | {"marker": ""}))
        row[-1].annotate(given.scores.labels[policy], (1.05, 0.5), xycoords="axes fraction", va="center", fontsize=7)
    for title, ax in zip(titles, axes[0], strict=True):
        ax.set_title(title, fontsize=7)
    axes[0, 0].autoscale()
    drawn.supxlabel("k (samples drawn)", fontsize=8)
    drawn.supylabel("max@k", fontsize=8)
    return drawn


@figure(
    "pass@k of the base model and of GRPO",
    "The paper's Figure 1: pass@k of the base model and of GRPO against k. Where GRPO is below the base model "
    "by more than the bands, it has narrowed what the model can find with enough samples. " + BANDS,
)
def figure1(given: Inputs) -> matplotlib.figure.Figure:
    from maxk.reporting import estimates

    means = given.means[given.means.policy.isin([BASE, estimates.roles(given.config).grpo])]
    return _by_dataset(given, means.query("metric == 'pass'"), "pass@k")


def _by_dataset(given: Inputs, frame: pd.DataFrame, name: str, **options: Any) -> matplotlib.figure.Figure:
    """Curves against k, a panel for each dataset and their mean; `options` are those of `style.curves`."""
    from maxk.reporting import style

    data, titles = _in_places(given, frame)
    columns = min(len(titles), 3)
    size = (WIDTH, 2.1 * -(-len(titles) // columns))
    drawn = style.curves(data, given.looks, "k", "dataset", titles, columns=columns, size=size, **options)
    return _against_k(given, drawn, name, data)


def _in_places(given: Inputs, frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The frame with titles in place of datasets, and the titles in order: the mean first, if it is one of several."""
    datasets = given.scores.datasets
    places = [MEAN, *datasets] if len(datasets) > 1 else list(datasets)
    titles = {place: _title(given, place) for place in places if place in set(frame.dataset)}
    return frame[frame.dataset.isin(titles)].assign(dataset=frame.dataset.map(titles)), list(titles.values())


def _title(given: Inputs, place: str) -> str:
    datasets = given.scores.datasets
    if place == MEAN and len(datasets) > 1:
        return f"mean of {len(datasets)} datasets"
    return datasets[0] if place == MEAN else place


def _against_k(given: Inputs, drawn: Panels, name: str, data: pd.DataFrame) -> matplotlib.figure.Figure:
    """Axes, labels and legend of curves against k."""
    from maxk.reporting import style

    style.log2_axis(drawn.axes, given.scores.ks)
    drawn.label("k (samples drawn)", name)
    policies = [policy for policy in given.looks if policy in set(data.policy)]
    style.legend(drawn.figure, policies, given.scores.labels, given.looks)
    return drawn.figure


# ------------------------------------------------------------------------------------------------------------ figure 2
@figure(
    "Entropy of completions, before and after training",
    "The paper's Figure 2: how sure every policy is of its tokens. Histograms of all completions, of all datasets and "
    "training seeds, by their mean token entropy; the base model's is the dashed outline. Further to the left a policy "
    "is surer, and samples of one problem are more alike. The vertical line is the mean; the last 0.5 % of the tail is "
    "not shown.",
)
def figure2(given: Inputs) -> matplotlib.figure.Figure:
    import matplotlib.pyplot as plt
    import numpy as np

    from maxk.reporting import style

    pooled = {policy: given.scores.entropies(policy) for policy in given.scores.rows}
    drawn = {policy: values for policy, values in pooled.items() if values is not None}
    if not drawn:
        return style.message("No entropies: set sampling.entropy to true and sample again.")
    edges = np.linspace(0, max(float(np.quantile(values, 0.995)) for values in drawn.values()) or 1.0, 61)
    fractions = {policy: np.histogram(values, edges)[0] / len(values) for policy, values in drawn.items()}
    size = (WIDTH, 0.5 * len(drawn) + 0.6)
    made, axes = plt.subplots(
        len(drawn), 1, figsize=size, squeeze=False, sharex=True, sharey=True, layout="constrained"
    )
    for ax, policy in zip(axes[:, 0], drawn, strict=True):
        colour, mean = given.looks[policy].colour, float(drawn[policy].mean())
        ax.stairs(fractions[policy], edges, color=colour, alpha=0.45, fill=True, linewidth=0)
        if BASE in fractions:
            ax.stairs(fractions[BASE], edges, color=BASE_COLOUR, linewidth=0.8, linestyle=(0, (2, 1)))
        ax.axvline(mean, color=colour, linewidth=0.8)
        ax.set(yticks=[], xlim=(0, edges[-1]))
        ax.set_title(f"{given.scores.labels[policy]}, mean {mean:.3f}", loc="right", fontsize=7, y=0.6)
    axes[-1, 0].set_xlabel("mean token entropy of a completion (nats)")
    return made


# ------------------------------------------------------------------------------------------------------------ clusters
@figure(
    "Distinct outputs among k samples",
    "How many different outputs k samples of a problem have, mean over problems and training seeds (diversity.csv). "
    "Programs count as the same if they print the same on all tests; one that prints nothing does not count. A line "
    "that bends early means that further samples repeat earlier answers.",
)
def clusters(given: Inputs) -> matplotlib.figure.Figure:
    from maxk.reporting import diversity, style

    outputs = diversity.outputs_by_k(given.scores, given.config)
    if outputs.empty:
        return style.message("No verdicts with outputs: remove results/…/verdicts and run again.")
    return _by_dataset(given, outputs, "distinct outputs", bands=False, sharey=False)


# ------------------------------------------------------------------------------------------------------------ training
_OVER_TRAINING = (
    "Lines are smoothed over a twentieth of the run and averaged over training seeds; bands are the range of several."
)


@figure(
    "Reward, KL and entropy during training",
    "Mean reward of the training groups, KL to the base model and token entropy during training. " + _OVER_TRAINING,
    trained=True,
)
def training(given: Inputs) -> matplotlib.figure.Figure:
    titles = {
        "reward": "mean reward",
        "kl": "KL to the base model",
        "kl_old": "KL to the policy at generation",
        "entropy": "token entropy (nats)",
    }
    return _during_training(given, titles)


@figure(
    "How far updates are off-policy",
    "How far samples are from the policy that is updated, in off-policy steps: the spread of the ratios of whole "
    "completions, the effective fraction of samples, how often ratios are clipped, and the error of first-order "
    "weights against the exact ones. " + _OVER_TRAINING,
    trained=True,
)
def ratios(given: Inputs) -> matplotlib.figure.Figure:
    titles = {
        "ratio_q99": "99th percentile of the ratios ρ of whole completions",
        "ess_fraction": "effective sample fraction (Σρ)²/(n Σρ²)",
        "clip_fraction": "fraction of ratios outside the clip range",
        "first_order_error": "relative error of first-order weights",
    }
    return _during_training(given, titles)


def _during_training(given: Inputs, titles: Mapping[str, str]) -> matplotlib.figure.Figure:
    """Metrics of the training logs: the mean over seeds and their range."""
    from maxk.reporting import style, training_log

    data = training_log.curves(given.config, titles)
    if data.empty:
        return style.message(f"No training log has these metrics: {', '.join(titles)}.")
    shown = [title for key, title in titles.items() if key in set(data.key)]
    data = data.assign(key=data.key.map(titles))
    size = (WIDTH, 2.0 * len(shown))
    drawn = style.curves(data, given.looks, "at", "key", shown, columns=1, size=size, sharey=False, markers=False)
    drawn.label("fraction of the training run", "")
    style.legend(drawn.figure, list(dict.fromkeys(data.policy)), given.scores.labels, given.looks)
    return drawn.figure
