"""max@k and pass@k of one model at several temperatures, and the best temperature for every k.

The best is chosen by the same estimates that are shown, so its value is biased upwards where the intervals overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from maxk.artifacts import files
from maxk.config import Config
from maxk.reporting import MEAN, estimates, markdown
from maxk.reporting.load import load
from maxk.reporting.rendering import to_csv

NOTE = (
    "Means over problems (and datasets) with intervals. The best temperature is chosen by these same numbers: where "
    "intervals overlap, its lead may be chance."
)


def write(configs: Mapping[float, Config], name: str) -> list[str]:
    """Writes NAME.csv and NAME.md from the statistics of every temperature; returns the lines of the latter."""
    frame = table({temperature: estimates.read(load(config), config)[0] for temperature, config in configs.items()})
    text = markdown.below(list(lines(frame)), [NOTE])
    files.write_text(f"{name}.csv", to_csv(frame))
    files.write_text(f"{name}.md", text)
    return text.splitlines()


def table(means: Mapping[float, pd.DataFrame]) -> pd.DataFrame:
    """One row per metric, k and temperature: mean, interval, fractions of samples, and whether it is the best."""
    columns = ["metric", "k", "mean", "low", "high", "mean_tokens", "truncated", "stopped"]
    parts = [
        frame[frame.dataset == MEAN][columns].assign(temperature=temperature) for temperature, frame in means.items()
    ]
    joined = pd.concat(parts, ignore_index=True).sort_values(["metric", "k", "temperature"], ignore_index=True)
    best = joined.groupby(["metric", "k"])["mean"].transform("max")
    return joined.assign(best=joined["mean"] == best)


def lines(frame: pd.DataFrame) -> Iterator[str]:
    """A pipe table with one row per metric and k."""
    temperatures: Sequence[float] = sorted(frame.temperature.unique())
    yield from markdown.head(["quantity", *(f"temperature {one:g}" for one in temperatures), "best"])
    for (metric, k), rows in frame.groupby(["metric", "k"], sort=True):
        cells = [markdown.with_ends(row["mean"], row["low"], row["high"]) for row in rows.to_dict("records")]
        best = ", ".join(f"{one:g}" for one in rows[rows.best].temperature)
        yield markdown.row([f"{metric}@{k}", *cells, best])
