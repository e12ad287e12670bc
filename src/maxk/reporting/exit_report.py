"""What a run of the pipeline prints first, where its jobs tell their progress, and last: its result, or how to go on.

The Snakefile calls it when a run starts and ends (`onstart`, `onsuccess` and `onerror` in workflow/rules/setup.smk).
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from maxk.config import Config
from maxk.reporting import terminal


def start(config: Config) -> None:
    """Prints to stderr a command that shows how far the running jobs are: the last line of each of their logs."""
    logs = shlex.quote(f"{config.layout.root}/logs")
    print(f"maxk: how far the jobs are: find {logs} -name '*.log' -mmin -1 | xargs -r tail -vn 1", file=sys.stderr)


def success(config: Config) -> None:
    """Prints to stderr the table and the result of the summary, if it was made, and what to open."""
    for part in _opening(config):
        terminal.write(part, file=sys.stderr)
    opened = config.layout.report if Path(config.layout.report).exists() else f"{config.layout.root}/"
    print(f"maxk: done; open {opened}", file=sys.stderr)


def _opening(config: Config) -> list[str]:
    """The main table and the result; nothing without a summary, or if an earlier version of maxk wrote it."""
    path = Path(config.layout.summary)
    if not path.exists():
        return []
    parts = path.read_text(encoding="utf-8").split("\n\n## ")
    sections = {title: text for title, _, text in (part.partition("\n\n") for part in parts)}
    titles = (f"max@1 and max@{config.report.headline_k}", "Result")
    return [sections[title] for title in titles] if sections.keys() >= set(titles) else []


def failure() -> None:
    """Prints to stderr how to go on. Snakemake itself prints the log of every failed job above (`show-failed-logs`)."""
    print("maxk: Finished work is kept: fix the cause and run the same command again.", file=sys.stderr)
