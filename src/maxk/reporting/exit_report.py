"""What a run of the pipeline prints first, where its jobs tell their progress, and last: its result, or how to go on.

The Snakefile calls it when a run starts and ends (`onstart`, `onsuccess` and `onerror` in workflow/rules/setup.smk).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from maxk.config import Config
from maxk.reporting import terminal


def start(config: Config) -> None:
    """Prints to stderr a command that shows how far the running jobs are: the last line of each of their logs."""
    logs = shlex.quote(f"{config.layout.root}/logs")
    print(f"maxk: how far the jobs are: find {logs} -name '*.log' -mmin -1 | xargs -r tail -vn 1", file=sys.stderr)


def success(config: Config) -> Callable[[], None]:
    """Returns what prints to stderr the table and the result of the summary, if it was made, and what to open.

    It is called when the process ends, since until then Snakemake's progress bars overwrite what others print. Files
    are read before: at the end the process is no longer in Snakemake's working directory.
    """
    parts = _opening(config)
    opened = config.layout.report if Path(config.layout.report).exists() else f"{config.layout.root}/"

    def tell() -> None:
        for part in parts:
            terminal.write(part, file=sys.stderr)
        print(f"maxk: done; open {opened}", file=sys.stderr)

    return tell


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
    """Prints to stderr how to go on, when the process ends.

    Snakemake itself prints the log of every failed job above (`show-failed-logs`).
    """
    print("maxk: Finished work is kept: fix the cause and run the same command again.", file=sys.stderr)
