"""What a run of the pipeline prints last: its result and what to open, or why it failed and how to go on.

The Snakefile calls it when a run ends (`onsuccess` and `onerror` in workflow/rules/setup.smk). Snakemake itself names
the jobs that failed and prints their logs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from maxk.config import Config
from maxk.reporting import headline, terminal

_JOB_LOG = re.compile(r"^ +log: (.+?) \(check log file", re.MULTILINE)
KEPT = "Finished work is kept: fix the cause and run the same command again."


def success(config: Config) -> None:
    """Prints to stderr the headline table and two sentences on it, if there are scores, and what to open."""
    if (found := headline.read(config)) is not None:
        terminal.write(headline.table(found), file=sys.stderr)
        print(headline.sentences(found, config), file=sys.stderr)
    opened = config.layout.report if Path(config.layout.report).exists() else f"{config.layout.root}/"
    print(f"maxk: done; open {opened}", file=sys.stderr)


def failure(logs: Sequence[str]) -> None:
    """Prints to stderr the last line of the log of every failed job, and how to go on; `logs` are Snakemake's own."""
    reasons = [reason for path in logs for reason in _reasons(Path(path))] or ["see above"]
    print(*(f"maxk: failed: {reason}" for reason in reasons), f"maxk: {KEPT}", sep="\n", file=sys.stderr)


def _reasons(log: Path) -> Iterator[str]:
    """The last line of every failed job's log, with the log's path."""
    for path in dict.fromkeys(_JOB_LOG.findall(_text(log))):
        if lines := [line for line in _text(Path(path)).splitlines() if line.strip()]:
            yield f"{lines[-1]} ({path})"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
