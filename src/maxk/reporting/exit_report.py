"""What a run of the pipeline prints first, where its jobs tell their progress, and last: its result, or how to go on.

The Snakefile calls it when a run starts and ends (`onstart`, `onsuccess` and `onerror` in workflow/rules/setup.smk);
handlers of Snakemake's logger say what is to be said where it calls no hook.
"""

from __future__ import annotations

import atexit
import logging
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from maxk.artifacts.paths import Layout
from maxk.config import Config
from maxk.errors import suggest
from maxk.reporting import terminal, written


def start(config: Config) -> None:
    """Prints to stderr a command that shows how far the running jobs are: the last line of each of their logs."""
    logs = shlex.quote(f"{config.layout.root}/logs")
    command = f"find {logs} -name '*.log' -mmin -1 | xargs -r tail -vn 1"
    print(f"maxk: to see how far each job is, in another terminal: {command}", file=sys.stderr)


def success(config: Config) -> Callable[[], None]:
    """Returns a function that prints the table and the result of the summary, and what to open, to stderr.

    Of a summary that was changed, or made from other scores, it prints the command that makes it again. It is called
    when the process ends, since until then Snakemake's progress bars overwrite what others print. Files are read
    before: at the end the process is no longer in Snakemake's working directory.
    """
    parts, summary = _opening(config), Path(config.layout.summary)
    again = f"`maxk summary --config {config.layout.config}`"
    outdated = f"maxk: {summary}: changed, or of other scores; make it again: {again}\n"
    ending = outdated if summary.exists() and not parts else ""
    ending += f"maxk: done; open {_to_open(config.layout)}"

    def tell() -> None:
        for part in parts:
            terminal.write(part, file=sys.stderr, whole=str(summary))
        print(ending, file=sys.stderr)

    return tell


class NothingToDo(logging.Handler):
    """Of a run that has nothing to do, Snakemake calls no hook: hears it say so, and has what to open printed last."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._layout = config.layout

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("Nothing to be done"):
            atexit.register(print, f"maxk: nothing to do; open {_to_open(self._layout)}", file=sys.stderr)


class UnknownTarget(logging.Handler):
    """Hears Snakemake say that no rule makes a target, and has the nearest one printed last.

    known: gives the names of rules and the files that they make.
    """

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        super().__init__()
        self._known = known

    def emit(self, record: logging.LogRecord) -> None:
        if (found := re.search(r"No rule to produce (\S+) ", record.getMessage())) is None:
            return
        nearest = suggest(found[1], self._known()) or "; `snakemake --list` lists the rules"
        atexit.register(print, f"maxk: no target {found[1]}{nearest}", file=sys.stderr)


def targets(config: Config) -> list[str]:
    """The files that rules with wildcards make, but for single shards."""
    layout = config.layout
    experiments = [
        layout.experiment(name, suffix) for name in config.experiments for suffix in ("csv", "md", "png", "pdf")
    ]
    return [
        *map(layout.problems, config.datasets),
        *map(layout.policy, config.every_policy),
        *config.scores(config.every_policy),
        *experiments,
    ]


def _to_open(layout: Layout) -> str:
    """The report, or the folder of a run that has made none."""
    return str(layout.report if Path(layout.report).exists() else f"{layout.root}/")


def _opening(config: Config) -> list[str]:
    """The main table and the result; nothing without a summary of the scores that there are."""
    path = config.layout.summary
    if written.faults(config.layout, [path], written.digest_of_scores(config)):
        return []
    parts = Path(path).read_text(encoding="utf-8").split("\n\n## ")
    sections = {title: text for title, _, text in (part.partition("\n\n") for part in parts)}
    titles = (f"max@1 and max@{config.report.headline_k}", "Result")
    return [sections[title] for title in titles] if sections.keys() >= set(titles) else []


def failure() -> None:
    """Prints to stderr how to go on, when the process ends.

    Snakemake itself prints the log of every failed job above (`show-failed-logs`).
    """
    print("maxk: Finished work is kept: fix the cause and run the same command again.", file=sys.stderr)
