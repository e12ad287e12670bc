"""The common look of all figures, and files that come out byte for byte the same.

A method has one colour in every figure of every experiment; policies that share a method differ in dashes and markers.
The base model is dark grey and dashed. Colours are Okabe & Ito's (2008), chosen for colour vision deficiencies, with
Tol's (2021) wine, olive, indigo and teal, brown and grey.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

os.environ["MPLBACKEND"] = "Agg"  # no display is needed, and a notebook's backend, inherited, may not be installed

import matplotlib as mpl

mpl.use("Agg")  # before pyplot, which seaborn imports

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from maxk.artifacts import environment, files
from maxk.artifacts.paths import BASE
from maxk.config import Config
from maxk.config.colours import colours

with environment.importing(without=["scipy"]):  # seaborn takes it for densities and clusters, which no figure has
    import seaborn as sns

DASHES: tuple[Any, ...] = ("", (1, 1), (4, 1.5), (4, 1, 1, 1))  # as seaborn takes them; "" is solid
MARKERS = ("o", "s", "^", "D", "v", "P")

_RC: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so figures are the same on every machine
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # nothing is above a panel; otherwise matplotlib looks for it, at every drawing
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "figure.constrained_layout.w_pad": 0.06,
    "axes.edgecolor": "#888888",
    "axes.formatter.useoffset": False,
    "grid.color": "#E6E6E6",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "lines.markeredgewidth": 0,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # text stays text
}


# --------------------------------------------------------------------------------------------------------------- looks
@dataclass(frozen=True)
class Look:
    """How a policy is drawn, in every figure."""

    colour: str
    dashes: Any = ""
    marker: str = "o"

    @property
    def line(self) -> dict[str, Any]:
        """Keyword arguments of a matplotlib line."""
        return {"color": self.colour, "linestyle": (0, self.dashes) if self.dashes else "-", "marker": self.marker}


def looks(config: Config) -> dict[str, Look]:
    """The look of the base model and of every policy of the configuration, those of experiments included."""
    of = colours(config)
    found, seen = {BASE: Look(of[BASE], DASHES[2], "s")}, dict[str, int]()
    for name, objective in config.every_objective.items():
        again = seen[objective.type] = seen.get(objective.type, -1) + 1
        found[name] = Look(of[name], DASHES[again % len(DASHES)], MARKERS[again % len(MARKERS)])
    return found


# --------------------------------------------------------------------------------------------------------------- files
@contextmanager
def applied() -> Iterator[None]:
    """Figures made within have the common look, whatever the user's matplotlibrc says; they are closed at the end.

    The garbage collector waits until then: it would take a quarter of the time.
    """
    look = {**sns.axes_style("ticks"), **sns.plotting_context("paper"), **_RC}
    with environment.uncollected(), plt.style.context(look, after_reset=True):
        try:
            yield
        finally:
            plt.close("all")


def save(figure: Figure, paths: Iterable[str]) -> None:
    """Writes a figure atomically, without dates, so that the same numbers give the same bytes."""
    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)
    figure.set_layout_engine(None)  # the layout is final; with an engine, each file would be drawn twice
    for path in paths:
        suffix = path.rsplit(".", 1)[1].lower()
        metadata: Any = {"CreationDate": None, "ModDate": None} if suffix == "pdf" else {"Software": None}
        with files.atomic(path) as temporary:
            figure.savefig(temporary, format=suffix, metadata=metadata)


def message(text: str) -> Figure:
    """A small figure that only says why there is nothing to draw."""
    figure = plt.figure(figsize=(8, 0.8))
    figure.text(0.5, 0.5, text, ha="center", va="center", color="#555555")
    return figure


# --------------------------------------------------------------------------------------------------------------- parts
@dataclass(frozen=True)
class Panels:
    """Axes of one figure, row by row; the last row may have fewer than `columns`."""

    figure: Figure
    axes: list[Axes]
    columns: int

    def label(self, x: str, y: str) -> None:
        """Labels the lowest axes of each column and the first of each row."""
        for number, ax in enumerate(self.axes):
            ax.set_xlabel(x if number + self.columns >= len(self.axes) else "")
            ax.set_ylabel("" if number % self.columns else y)


def panels(titles: Sequence[str], columns: int, size: tuple[float, float], sharey: bool) -> Panels:
    """One panel for each title; they share the x axis, and if asked the y axis. `size` in inches is the figure's."""
    figure = plt.figure(figsize=size, layout="constrained")
    shape, axes = (-(-len(titles) // columns), columns), list[Axes]()
    for number, title in enumerate(titles):
        first = axes[0] if axes else None
        ax = figure.add_subplot(*shape, number + 1, sharex=first, sharey=first if sharey else None)
        ax.set_title(title, fontsize=mpl.rcParams["axes.labelsize"])
        ax.tick_params(labelbottom=number + columns >= len(titles), labelleft=not (sharey and number % columns))
        axes.append(ax)
    return Panels(figure, axes, columns)


def curves(
    data: pd.DataFrame,
    looks: Mapping[str, Look],
    x: str,
    on: str,
    titles: Sequence[str],
    *,
    columns: int,
    size: tuple[float, float],
    sharey: bool = True,
    markers: bool = True,
    bands: bool = True,
) -> Panels:
    """Lines of `mean` against `x`, one per policy, with bands from `low` to `high`.

    Each of `titles` is a panel of the rows that have it in the column `on`.
    """
    # Not relplot, whose FacetGrid computes a layout twice that is not used.
    drawn = panels(titles, columns, size, sharey)
    order = [policy for policy in looks if policy in set(data["policy"])]
    for title, ax in zip(titles, drawn.axes, strict=True):
        part = data[data[on] == title]
        sns.lineplot(
            part,
            x=x,
            y="mean",
            hue="policy",
            style="policy",
            hue_order=order,
            style_order=order,
            palette={policy: looks[policy].colour for policy in order},
            dashes={policy: looks[policy].dashes for policy in order},
            markers={policy: looks[policy].marker for policy in order} if markers else False,
            estimator=None,  # the rows are means already
            legend=False,
            ax=ax,
        )
        for policy, one in part.groupby("policy", sort=False) if bands else ():
            band(ax, one, x, looks[str(policy)])
    return drawn


def band(ax: Axes, data: pd.DataFrame, x: str, look: Look) -> None:
    """The band from `low` to `high` of one policy."""
    ax.fill_between(data[x], data["low"], data["high"], color=look.colour, alpha=0.12, linewidth=0)


def legend(figure: Figure, policies: Iterable[str], labels: Mapping[str, str], looks: Mapping[str, Look]) -> None:
    """Names of policies below all panels, row by row."""
    handles = [Line2D([], [], label=labels[policy], **looks[policy].line) for policy in policies]
    columns = min(len(handles), 5)
    rows = -(-len(handles) // columns)
    by_row = [handles[i] for column in range(columns) for i in range(column, len(handles), columns)]
    figure.legend(handles=by_row if rows > 1 else handles, loc="outside lower center", ncols=columns)


def log2_axis(axes: Iterable[Axes], ks: Sequence[int], sparse: bool = False) -> None:
    """k on a base-2 logarithmic axis, ticked at every k, or `sparse`: at three."""
    ticked = sorted({ks[0], ks[len(ks) // 2], ks[-1]}) if sparse else ks
    for ax in axes:
        ax.set_xscale("log", base=2)
        ax.set_xticks(ticked, [str(k) for k in ticked])
        ax.minorticks_off()
