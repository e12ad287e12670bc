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

from maxk import install
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

# Extras that a configuration may ask for, beside the one that a subcommand always needs.
_EXTRA_OF_LIBRARY = {
    "deepspeed": "deepspeed",
    "liger_kernel": "deepspeed",
    "trackio": "track",
    "vllm": "vllm",
    "wandb": "track",
}


def parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    top = argparse.ArgumentParser(prog="maxk", description="max@k training, evaluation and grading")
    subparsers = top.add_subparsers(dest="stage", required=True, metavar="STAGE")
    for stage in STAGES:
        try:
            module = import_module(f"maxk.stages.{stage}")
        except ModuleNotFoundError as error:
            _register_unavailable(subparsers, stage, _missing_extra(stage, error))
        else:
            module.register_parser(subparsers)
    for subparser in subparsers.choices.values():
        if not {action.dest for action in subparser._actions} & {"config", "arguments"}:
            subparser.add_argument("--config", default="results/config.json", help="the resolved configuration")
    return top


def _missing_extra(stage: str, error: ModuleNotFoundError) -> UserError:
    """What to install for a stage that could not import a library. Raises `error` again if the module is our own."""
    library = (error.name or "maxk").partition(".")[0]
    if library == "maxk":
        raise error
    extra = _EXTRA_OF_LIBRARY.get(library, "grade" if stage == "grade" else "pipeline")
    return UserError(f"needs the extra `{extra}` (no module {library!r}): {install(extra)}")


def _register_unavailable(subparsers: Any, stage: str, reason: UserError) -> None:
    """A subcommand that takes any arguments and reports why it cannot run."""

    def run(_: argparse.Namespace) -> int:
        raise reason

    # No argument starts with NUL, so that all of them, options too, are positional.
    parser = subparsers.add_parser(stage, help=str(reason), add_help=False, prefix_chars="\0")
    parser.add_argument("arguments", nargs="*")
    parser.set_defaults(run=run)


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
    except ModuleNotFoundError as error:
        print(f"maxk {args.stage}: {_missing_extra(args.stage, error)}", file=sys.stderr)
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
