"""What a run of the pipeline prints last: its result and what to open, or how to go on.

The Snakefile calls it when a run ends (`onsuccess` and `onerror` in workflow/rules/setup.smk).
"""

from __future__ import annotations

import sys
from pathlib import Path

from maxk.config import Config
from maxk.reporting import terminal


def success(config: Config) -> None:
    """Prints to stderr the table and the result of the summary, if it was made, and what to open."""
    if Path(config.layout.summary).exists():
        _, result, table, *_ = Path(config.layout.summary).read_text(encoding="utf-8").split("\n\n## ")
        for part in (table, result):
            terminal.write(part.partition("\n\n")[2], file=sys.stderr)
    opened = config.layout.report if Path(config.layout.report).exists() else f"{config.layout.root}/"
    print(f"maxk: done; open {opened}", file=sys.stderr)


def failure() -> None:
    """Prints to stderr how to go on. Snakemake itself prints the log of every failed job above (`show-failed-logs`)."""
    print("maxk: Finished work is kept: fix the cause and run the same command again.", file=sys.stderr)
