"""The command line: one subcommand per stage; rules of the Snakefile call those of the pipeline.

    maxk score base --config results/config.json

A user error, or a machine without disk space or memory left, is one line on stderr and exit status 2; any other
exception keeps its traceback. Heavy libraries are imported by the stages that need them, after the arguments are
parsed, so that `maxk --help` is instant.
"""

from __future__ import annotations

import argparse
import getpass
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

from maxk import __version__
from maxk.errors import UserError, missing_extra, resource_error

# By what a user wants, in the order of `maxk --help`.
GROUPS = {
    "before a run": ("doctor", "plan"),
    "after a run": ("show", "ui", "inspect", "power", "push", "clean"),
    "evaluate a model": ("evaluate",),
    "without the pipeline": ("grade", "compare", "select"),
    "stages of the pipeline (run by Snakemake)": (
        *("configure", "prepare", "base", "train", "sample", "verify", "score"),
        *("table", "figure", "summary", "report", "experiment", "finalize"),
    ),
}
STAGES = tuple(stage for group in GROUPS.values() for stage in group)

# Extras by library; what is not here is in `pipeline`.
_EXTRA_OF_LIBRARY = {
    "deepspeed": "deepspeed",
    "liger_kernel": "deepspeed",
    "pyseccomp": "grade",
    "tqdm": "grade",
    "trackio": "track",
    "vllm": "vllm",
    "wandb": "track",
}

_CONFIG_HELP = "the run: its config.json, or the config file it was started with (default: results/config.json)"


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line, without the usage; its subparsers do, too."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`\n")


def parser(stages: Sequence[str] = STAGES) -> argparse.ArgumentParser:
    """The parser of some subcommands, by default of all."""
    top = _Parser(prog="maxk", formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False)
    top.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    top.add_argument("--version", action="version", version=f"maxk {__version__}", help=argparse.SUPPRESS)
    subparsers = top.add_subparsers(dest="stage", required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    for stage in stages:
        try:
            module = import_module(f"maxk.stages.{stage}")
        except ModuleNotFoundError as error:
            _register_unavailable(subparsers, stage, _without_library(error))
        else:
            module.register_parser(subparsers)
    for stage, subparser in subparsers.choices.items():
        has = {action.dest for action in subparser._actions}
        if stage not in GROUPS["without the pipeline"] and not has & {"config", "arguments"}:
            subparser.add_argument("--config", default="results/config.json", help=_CONFIG_HELP)
    top.usage = "maxk COMMAND …"  # only now: subparsers take theirs from it
    if stages == STAGES:
        top.description = _overview({action.dest: action.help or "" for action in subparsers._choices_actions})
    return top


def _without_library(error: ModuleNotFoundError) -> UserError:
    """What to install for a library that could not be imported. Raises `error` again if the module is our own."""
    library = (error.name or "maxk").partition(".")[0]
    if library == "maxk":
        raise error
    extra = _EXTRA_OF_LIBRARY.get(library, "pipeline")
    return UserError(missing_extra(extra, library))


def _register_unavailable(subparsers: Any, stage: str, reason: UserError) -> None:
    """A subcommand that takes any arguments and reports why it cannot run."""

    def run(_: argparse.Namespace) -> int:
        raise reason

    # No argument starts with NUL, so that all of them, options too, are positional.
    parser = subparsers.add_parser(stage, help="(its extra is not installed)", add_help=False, prefix_chars="\0")
    parser.add_argument("arguments", nargs="*")
    parser.set_defaults(run=run)


def _overview(helps: Mapping[str, str]) -> str:
    """All subcommands with their one-line help, by group."""
    lines = ["max@k training, evaluation and grading. `maxk COMMAND --help` explains a command."]
    for group, stages in GROUPS.items():
        lines += ["", f"{group}:", *(f"  {stage:11} {helps[stage]}" for stage in stages)]
    return "\n".join(lines)


def _unknown(command: str) -> str:
    nearest = get_close_matches(command, STAGES, n=1)
    meant = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    return f"no command {command!r}{meant}; see `maxk --help`"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    if given and not given[0].startswith("-") and given[0] not in STAGES:
        print(f"maxk: {_unknown(given[0])}", file=sys.stderr)
        return 2
    # The other subcommands import what this one may not need: building the schema of a config takes seconds.
    args, unknown = parser(given[:1] if given and given[0] in STAGES else STAGES).parse_known_args(given)
    if unknown:
        print(f"maxk {args.stage}: no argument {' '.join(unknown)}; see `maxk {args.stage} --help`", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _terminate)
    _name_the_user()
    try:
        status = args.run(args)
        sys.stdout.flush()
    except UserError as error:
        print(f"maxk {args.stage}: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"maxk {args.stage}: {_without_library(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"maxk {args.stage}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            return 128 + signal.SIGPIPE
        if (words := resource_error(error)) is None:
            raise
        print(f"maxk {args.stage}: {words}", file=sys.stderr)
        return 2
    return int(status or 0)


def _name_the_user() -> None:
    """Gives a user id without an account, as containers run, the name that torch and Snakemake ask for."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = str(os.getuid())


def _reader_is_gone() -> bool:
    """True if the reader of stdout has exited (`| head`); the rest of our output is then discarded."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    gone = any(event & select.POLLERR for _, event in poll.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return gone


def _terminate(*_: Any) -> None:
    """Turns SIGTERM into SystemExit, so that temporary files are removed and the tracked run ends as KILLED."""
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
