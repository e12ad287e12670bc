"""The command line: one subcommand per stage; rules of the Snakefile call those of the pipeline.

    maxk score base --config results/config.json

A user error, or a machine without disk space or memory left, is one line on stderr and exit status 2; any other
exception keeps its traceback. Only the module of the given subcommand is imported, and heavy libraries by its `run`,
after the arguments are parsed.
"""

from __future__ import annotations

import argparse
import getpass
import io
import os
import select
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from maxk import __version__
from maxk.artifacts import environment
from maxk.errors import UserError, missing_extra, resource_error, suggest

# By what a user wants, in the order of `maxk --help`.
COMMANDS = {
    "before a run": {
        "doctor": "check what works on this machine, and how to fix the rest",
        "plan": "estimate jobs, GPU time, samples, test runs and disk of an experiment",
    },
    "after a run": {
        "show": "print a table in the terminal",
        "ui": "show the MLflow page of an experiment",
        "inspect": "report on a prepared dataset",
        "power": "problems and seeds that a difference between two methods needs",
        "push": "upload a trained policy with a model card made from its scores",
        "clean": "show or free the disk space of an experiment",
    },
    "evaluate a model": {"evaluate": "max@k and pass@k of a model, at one or several temperatures"},
    "without the pipeline": {
        "grade": "grade samples against problems, in maxk's own form or another tool's",
        "compare": "compare systems: intervals, paired tests, crossing k",
        "select": "Best-of-N with visible tests, a vote or a score; diversity",
    },
    "stages of the pipeline (run by Snakemake)": {
        "configure": "write the resolved configuration and start the tracking",
        "prepare": "convert a dataset to problems",
        "base": "make the base policy",
        "train": "train a policy with an objective",
        "sample": "sample completions from a policy",
        "verify": "grade a policy's samples",
        "score": "samples and verdicts → max@k and pass@k of every problem",
        "table": "write tables from scores",
        "figure": "draw figures from scores",
        "summary": "write one page on a run",
        "report": "write the HTML report of a run",
        "experiment": "write the table and figure of an experiment",
        "finalize": "send all events to MLflow and end the experiment's run",
    },
}
STAGES = tuple(stage for group in COMMANDS.values() for stage in group)

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
    """Reports a wrong argument in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`")


def parser(stage: str) -> argparse.ArgumentParser:
    """The parser of a subcommand. Raises ModuleNotFoundError if its extra is not installed."""
    with environment.importing():
        module = import_module(f"maxk.stages.{stage}")
    found = _Parser(f"maxk {stage}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.set_defaults(run=module.run)
    if hasattr(module, "add_arguments"):
        module.add_arguments(found)
    declared = {action.dest for action in found._actions}
    if stage not in COMMANDS["without the pipeline"] and "config" not in declared:
        found.add_argument("--config", default="results/config.json", help=_CONFIG_HELP)
    return found


def _overview() -> str:
    """All subcommands with their one-line help, by group."""
    lines = ["usage: maxk COMMAND …", "", "max@k training, evaluation and grading. `maxk COMMAND --help` explains one."]
    for group, commands in COMMANDS.items():
        lines += ["", f"{group}:", *(f"  {stage:11} {what}" for stage, what in commands.items())]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand; returns the exit status."""
    stage, *arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if stage in ("-h", "--help", "--version"):
        print(f"maxk {__version__}" if stage == "--version" else _overview())
        return 0
    if stage not in STAGES:
        print(f"maxk: no command {stage!r}{suggest(stage, STAGES)}; see `maxk --help`", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _terminate)
    _name_the_user()
    _escape_what_stdout_lacks()
    try:
        args = parser(stage).parse_args(arguments)
        status = args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"maxk {stage}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            return 128 + signal.SIGPIPE
        if (reason := _reason(error, stage)) is None:
            raise
        print(f"maxk {stage}: {reason}", file=sys.stderr)
        return 2
    return int(status or 0)


def _reason(error: Exception, stage: str) -> str | None:
    """One line on an error that the user can fix; None for any other."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        library = (error.name or "maxk").partition(".")[0]
        return None if library == "maxk" else missing_extra(_EXTRA_OF_LIBRARY.get(library, "pipeline"), library)
    alone = stage in COMMANDS["without the pipeline"]
    return resource_error(error, *(["give fewer problems or samples at once, or fewer --workers"] if alone else []))


def _name_the_user() -> None:
    """Gives a user id without an account, as containers run, the name that torch and Snakemake ask for."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = str(os.getuid())


def _escape_what_stdout_lacks() -> None:
    """Writes a character that the locale's encoding lacks as its escape: an error would come after all work."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


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
