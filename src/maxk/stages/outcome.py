"""What a run says last: where its results are, or which job failed, why, and how to go on.

The Snakefile prints it when a run ends (`onsuccess`, `onerror` in workflow/rules/setup.smk).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from maxk.config import Config

# How Snakemake's own log names a failed job: its rule, what a cluster says of it, and the log that the rule writes; on
# Slurm the batch system's log follows it.
_FAILED = re.compile(r"^Error in rule (\w+):$", re.MULTILINE)
_MESSAGE = re.compile(r"^ +message: (.*?):? *(?:For further error details.*)?$", re.MULTILINE)
_LOG = re.compile(r"^ +log: ([^,\n]+?)(?:,.*)? \(check log file", re.MULTILINE)

# What a process of several says before its launcher reports that one failed, and, of one that was killed, the report.
_LAUNCHER = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
# Earlier ones first: a process that fails takes others with it, and the launcher kills the rest.
_OF_A_PROCESS = (
    re.compile(r"^(maxk \w+: .+)$", re.MULTILINE),
    re.compile(r"^\[rank\d+\]: ([\w.]*(?:Error|Exception)\b.*)$", re.MULTILINE),
    re.compile(r"Root Cause \(first observed failure\):.*?traceback : (Signal .+?)$", re.MULTILINE | re.DOTALL),
)


def success(config: Config) -> str:
    """Where to look after a run that ended well; names only what is there."""
    layout = config.layout
    option = "" if layout.config == "results/config.json" else f" --config {layout.config}"
    found = sorted(path.name for path in Path(layout.root).glob("*") if path.suffix in (".md", ".png", ".csv"))
    lines = [f"maxk: done. Results are in {layout.root}/: {', '.join(found) or 'no table or figure was asked for'}"]
    if Path(layout.table("table2", "md")).exists():
        lines.append(f"maxk: max@{config.report.headline_k} of every policy: maxk show table2{option}")
    if config.tracking.enabled:
        lines.append(f"maxk: curves of every job: maxk ui{option}")
    return "\n".join(lines)


def failure(logs: Sequence[str]) -> str:
    """Which jobs failed and the last words of each, from Snakemake's own logs of the run, and how to go on."""
    text = "".join(Path(log).read_text(encoding="utf-8", errors="replace") for log in logs if Path(log).exists())
    lines = [f"maxk: {rule} failed: {_reason(message, log)}" for (rule, log), message in _failed(text).items()]
    if not lines:
        lines = [f"maxk: stopped before its end; Snakemake says why in {', '.join(logs)}"]
    return "\n".join([*lines, "maxk: what is finished stays; to go on, mend this and type the same command again"])


def _failed(text: str) -> dict[tuple[str, str], str]:
    """By rule and log ("" where it has none) of each failed job, what a cluster last said of it, if anything.

    A job is told of once, though it is tried several times, and on a cluster by two Snakemakes.
    """
    found: dict[tuple[str, str], str] = {}
    _, *parts = _FAILED.split(text)
    for rule, block in zip(parts[::2], parts[1::2], strict=True):
        log, message = _LOG.search(block), _MESSAGE.search(block)
        said = "" if message is None or message[1] == "None" else message[1].rstrip(".")
        job = (rule, "" if log is None else log[1])
        found[job] = said or found.get(job, "")
    return found


def _reason(message: str, log: str) -> str:
    """What the cluster says, which a job that it ended cannot know, and what the job said itself."""
    if not log:
        return message or "it writes no log"
    said = f"{_last_words(log)} ({log})"
    if not message:
        return said
    return f"{message}; its last words: {said}" if Path(log).exists() else message


def _last_words(path: str) -> str:
    """The line of a job's log that says why it ended: the last, but for a launcher's report of its processes."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "without a log"
    if _LAUNCHER in text:
        for pattern in _OF_A_PROCESS:
            if said := pattern.search(text):
                return said[1]
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "without a word")
