"""The one look of all figures (seaborn's "ticks" with changes), and files that come out byte for byte the same.

A policy has one colour in every figure of an experiment, by its place in the configuration; the base model is
dark grey and dashed. The palette is Okabe & Ito's (2008), chosen to be told apart with colour vision
deficiencies, with Tol's (2021) wine, olive and indigo, brown and grey for further policies; beyond those, line
styles change. Text is a shade darker than its line, to be legible on white.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from maxk.artifacts import files
from maxk.artifacts.paths import BASE

BASE_COLOUR = "#333333"
PALETTE = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # green
    "#CC79A7",  # purple
    "#D55E00",  # vermilion
    "#56B4E9",  # sky
    "#882255",  # wine
    "#999933",  # olive
    "#332288",  # indigo
    "#8C6D46",  # brown
    "#7F7F7F",  # grey
)
# When the palette is used up: other lines, and other points.
_DASHES = ("solid", (0, (4, 1.5)), (0, (1, 1)))
_MARKERS = ("o", "s", "^")

_RC: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so figures are the same on every machine
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # text stays text
    "svg.hashsalt": "maxk",
}


@dataclass(frozen=True)
class Look:
    """How a policy is drawn, in every figure."""

    colour: str
    dashes: Any = "solid"
    marker: str = "o"

    @property
    def text(self) -> Any:
        return tuple(0.78 * part for part in to_rgb(self.colour))


def looks(rows: Sequence[str]) -> dict[str, Look]:
    """The look of each row; `rows` must be all rows of the experiment, whatever a figure shows of them."""
    trained = [row for row in rows if row != BASE]
    found = {BASE: Look(BASE_COLOUR, _DASHES[1])}
    for index, row in enumerate(trained):
        again = index // len(PALETTE) % len(_DASHES)
        found[row] = Look(PALETTE[index % len(PALETTE)], _DASHES[again], _MARKERS[again])
    return found


@contextmanager
def figure(width: float, height: float) -> Iterator[Figure]:
    """A figure in the shared style (inches). No global state is touched, and no display is needed."""
    with mpl.rc_context({**sns.axes_style("ticks"), **sns.plotting_context("paper"), **_RC}):
        yield Figure(figsize=(width, height))


def panels(drawn: Figure, rows: int, columns: int, labels: Iterable[str], tight: bool = False) -> NDArray[Any]:
    """Panels of equal size [rows, columns] that share their x axis, with room for line labels right of the last column.

    In a `tight` grid panels share the y axis, too, and stand close together.
    """
    width, height = drawn.get_size_inches()
    room = 0.25 + 0.052 * max(map(len, labels))  # inches that the longest name takes at 6.5 points
    bottom, top, ticks = 0.45, 0.3, 0.5
    across, down = (0.12, 0.1) if tight else (0.45, 0.4)
    panel = (width - ticks - room - (columns - 1) * across) / columns
    tall = (height - bottom - top - (rows - 1) * down) / rows
    return drawn.subplots(
        rows,
        columns,
        squeeze=False,
        sharex=True,
        sharey=tight,
        gridspec_kw={
            "left": ticks / width,
            "right": 1 - room / width,
            "wspace": across / panel,
            "bottom": bottom / height,
            "top": 1 - top / height,
            "hspace": down / tall,
        },
    )  # fmt: skip


def name_row(ax: Axes, name: str, look: Look) -> None:
    """A row's name in its colour, right of its last panel."""
    ax.text(1.08, 0.5, name, transform=ax.transAxes, va="center", fontsize=6.5, color=look.text, weight="bold")


def save(drawn: Figure, paths: Iterable[str]) -> None:
    """Writes a figure atomically, without dates, so that the same scores give the same bytes."""
    for path in paths:
        suffix = path.rsplit(".", 1)[1]
        nothing = {"pdf": {"CreationDate": None, "ModDate": None}, "svg": {"Date": None}}
        with files.atomic(path) as temporary:
            drawn.savefig(temporary, format=suffix, metadata=nothing.get(suffix, {"Software": None}))


def save_note(text: str, paths: Iterable[str]) -> None:
    """A small figure that only says why there is nothing to draw."""
    with figure(6.4, 0.8) as drawn:
        drawn.text(0.5, 0.5, text, ha="center", va="center", color="#555555")
        save(drawn, paths)


def log2_axis(panels: Sequence[Axes], ks: Sequence[int], sparse: bool = False) -> None:
    """k on the base-2 logarithmic axis that all `panels` share, ticked at every k shown, or `sparse`: at three.

    Set once, as Matplotlib goes through all panels that share an axis whenever one of them changes it.
    """
    ticked = sorted({ks[0], ks[len(ks) // 2], ks[-1]}) if sparse else ks
    first = panels[0]
    first.set_xscale("log", base=2)
    first.set_xlim(ks[0], ks[-1])
    first.set_xticks(ticked, [str(k) for k in ticked])
    first.minorticks_off()
    for ax in panels if sparse else ():  # neighbours in a tight grid: labels stay within their panel
        if labels := ax.get_xticklabels():
            labels[0].set_horizontalalignment("left")
            labels[-1].set_horizontalalignment("right")


def label_lines(ax: Axes, ends: Mapping[str, float], names: Mapping[str, str], looks: Mapping[str, Look]) -> None:
    """Names beside the right ends of lines, moved apart vertically where they would overlap.

    `ends` holds the y value of each line at the right edge. Call it when the limits of the axis are final.
    """
    if not ends:
        return
    low, high = ax.get_ylim()
    size = ax.get_window_extent().height / ax.get_figure(root=True).dpi * 72  # type: ignore[union-attr]
    wanted = {row: (y - low) / (high - low) for row, y in ends.items()}
    placed = spread(wanted, gap=min(7.6 / size, 1 / len(wanted)))
    for row, y in placed.items():
        leader = {"arrowstyle": "-", "color": looks[row].colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 0}
        ax.annotate(
            names[row],
            xy=(1.0, wanted[row]),
            xytext=(1.035, y),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            fontsize=6.5,
            color=looks[row].text,
            arrowprops={**leader, "relpos": (0.0, 0.5)},
            annotation_clip=False,
        )


def spread(wanted: Mapping[str, float], gap: float) -> dict[str, float]:
    """Positions at least `gap` apart, in the same order, in [0, 1], as near to the wanted ones as possible.

    Least squares with y_i − i·gap not decreasing, solved by merging neighbours that overlap (pool adjacent
    violators); clipping that to [0, 1 − (number − 1)·gap] keeps all labels beside the panel.
    """
    order = sorted(wanted, key=lambda row: wanted[row])
    blocks: list[tuple[float, int]] = []  # mean of shifted positions, number of labels
    for index, row in enumerate(order):
        blocks.append((wanted[row] - index * gap, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, m), (b, n) = blocks[-2:]
            blocks[-2:] = [((a * m + b * n) / (m + n), m + n)]
    room = max(0.0, 1 - (len(order) - 1) * gap)
    shifted = [min(max(mean, 0.0), room) for mean, number in blocks for _ in range(number)]
    return {row: shift + index * gap for index, (row, shift) in enumerate(zip(order, shifted, strict=True))}
