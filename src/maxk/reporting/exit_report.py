"""What a run of the pipeline prints last: its headline result and what to open, or how to go on after a failure.

The Snakefile calls it when a run ends (`onsuccess` and `onerror` in workflow/rules/setup.smk). Snakemake itself names
the jobs that failed and prints their logs (`show-failed-logs`).
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from maxk.config import Config
from maxk.reporting import terminal

FAILURE = "maxk: failed; see the logs above. Finished work is kept: fix the cause and run the same command again"


def success(config: Config) -> None:
    """Prints to stderr the headline table and one sentence on it, if the table exists, and what to open."""
    layout = config.layout
    if Path(layout.table("table2")).exists():
        terminal.show(layout.table("table2", "md"), notes=False, file=sys.stderr)
        print(headline(config), file=sys.stderr)
    opened = layout.report if Path(layout.report).exists() else f"{layout.root}/"
    print(f"maxk: done; open {opened}", file=sys.stderr)


def headline(config: Config) -> str:
    """One sentence: which policy has the highest mean max@k in table 2, beside the base model."""
    with Path(config.layout.table("table2")).open(newline="", encoding="utf-8") as handle:
        means = {row["label"]: float(row["mean"]) for row in csv.DictReader(handle) if row["mean"]}
    what = f"max@{config.report.headline_k}, mean over datasets"
    base, best = config.label("base"), max(means, key=lambda label: means[label])
    if best == base:
        return f"{what}: {base}, {means[base]:.3f}, is the best policy."
    return f"{what}: {best}, {means[best]:.3f}, is the best policy; {base}: {means[base]:.3f}."
