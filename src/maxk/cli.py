"""The command line: one subcommand a stage, one stage a rule of the Snakefile.

    maxk score base --config results/config.json

A user's mistake, or a machine without disk or memory left, is one line on stderr and exit status 2; an unexpected error
keeps its traceback. Torch and the like are imported by the stages that need them, after the arguments are parsed, so
`maxk --help` is instant.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from maxk.errors import UserError, lack

STAGES = (
    "configure",
    "prepare",
    "base",
    "train",
    "sample",
    "verify",
    "grade",
    "score",
    "table",
    "summary",
    "figure",
    "report",
    "experiment",
    "show",
    "inspect",
    "plan",
    "ui",
    "doctor",
    "clean",
    "conclude",
)


def parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    top = argparse.ArgumentParser(prog="maxk", description="max@k training, evaluation and grading")
    subparsers = top.add_subparsers(dest="stage", required=True, metavar="STAGE")
    for stage in STAGES:
        import_module(f"maxk.stages.{stage}").register_parser(subparsers)
    for subparser in subparsers.choices.values():
        if not any(action.dest == "config" for action in subparser._actions):
            subparser.add_argument("--config", default="results/config.json", help="the resolved configuration")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand; returns the exit status."""
    args = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        status = args.run(args)  # a number, or nothing where there is only one way to end well
        sys.stdout.flush()
    except UserError as error:
        print(f"maxk {args.stage}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"maxk {args.stage}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _unread():
            return 128 + signal.SIGPIPE
        if (words := lack(error)) is None:
            raise
        print(f"maxk {args.stage}: {words}", file=sys.stderr)
        return 2
    return int(status or 0)


def _unread() -> bool:
    """Whether who reads our output has gone (`maxk plan | head`); what is left of it then goes nowhere."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    gone = any(event & select.POLLERR for _, event in poll.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return gone


def _terminate(*_: Any) -> None:
    """SIGTERM unwinds the stack, so that temporary files go and the tracked run ends as KILLED."""
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
