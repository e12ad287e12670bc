"""`maxk compare A B [C …]`: which system is better, at which k, and with what certainty.

    maxk compare a.verdicts.jsonl b.verdicts.jsonl
    maxk compare a.jsonl b.jsonl --problems problems.jsonl                       grades the samples first
    maxk compare grpo=g0.jsonl,g1.jsonl bon=b0.jsonl,b1.jsonl --problems p.jsonl   two seeds of each
    maxk compare ours=counts.csv theirs=other.csv --plot curves.png --json all.json

A system is [NAME=]FILE[,FILE…], one file per seed. A file holds samples in any form that `maxk grade` reads (this needs
`--problems`; verdicts are kept beside the samples), verdicts, scores of the pipeline, or CSV with the columns problem,
n, c and optionally seed.

Problems are paired by id; only those that all systems have are compared. With one seed each, results are about these
sets of samples; with several, about the methods (`maxk.evaluation.comparing`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from maxk.errors import UserError, counted
from maxk.stages import grade

_PICTURES = (".png", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("systems", nargs="+", metavar="[NAME=]FILE[,FILE…]", help="two or more systems")
    parser.add_argument("--plot", type=grade.writable, metavar="FILE", help="draw the curves, as .png or .pdf")
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """How results are read and reported, for every subcommand that does so."""
    parser.add_argument("--k", type=grade.numbers, help="values of k, comma-separated (default: 1, 2, 4, … and n)")
    parser.add_argument(
        "--level", type=grade.up_to(0.9999, float), default=0.95, help="level of the intervals (default: %(default)s)"
    )
    parser.add_argument("--json", type=grade.writable, help="write all numbers to this file")
    parser.add_argument("--problems", type=Path, help="problems, needed to grade a file of samples")
    grade.add_options(parser)


def run(args: argparse.Namespace) -> None:
    from maxk.evaluation import comparing
    from maxk.evaluation.systems import (
        files_of,
        of_tally,
        paired,
        read_results,
        read_system,
        require_different_names,
    )
    from maxk.reporting import systems as report

    if len(args.systems) < 2:
        raise UserError("give two or more systems: maxk compare A B")
    require_picture(args.plot)
    given_files = [files_of(one) for one in args.systems]  # all, before any is graded
    require_different_names([name for name, _ in given_files])
    require_no_input(args, (path for _, paths in given_files for path in paths))
    with grading(args) as graded:

        def seeds(path: Path) -> Sequence[Any]:
            results = read_results(path)
            return [of_tally(graded(path))] if results is None else results

        given = paired([read_system(name, paths, seeds) for name, paths in given_files])
    found = comparing.compare(given, chosen_ks(args.k, given.n), args.level)
    print(report.to_markdown(found), end="")  # first: what a full disk cannot take, the terminal can
    if args.plot:
        report.draw(found, str(args.plot))
    if args.json:
        write_json(args.json, found.content())


@contextmanager
def grading(
    args: argparse.Namespace, require: Callable[[Any], None] = lambda problems: None
) -> Iterator[Callable[[Path], Any]]:
    """Yields a function that grades a file of samples and returns its tally; one grader serves all files.

    require: raises UserError for problems that do not serve, before a sample is graded.
    """
    with ExitStack() as stack:

        @cache
        def samples() -> grade.Samples:
            given = grade.Samples(args, args.problems)
            require(given.problems)
            return stack.enter_context(given)

        def graded(path: Path) -> Any:
            if args.problems is None:
                raise UserError(f"{path}: contains no verdicts; if it has samples, give --problems FILE to grade them")
            tally = samples().tally(path)
            tally.require_graded()
            if lacking := [name for name, n in tally.sizes.items() if n == 0]:
                problems = counted(len(lacking), "problem")
                print(f"{path}: left out {problems} without samples, first {lacking[0]!r}", file=sys.stderr)
            return tally

        yield graded


def chosen_ks(wanted: list[int] | None, n: int) -> list[int]:
    """The requested ks, by default 1, 2, 4, … and n. Raises UserError if one is above n, as `maxk grade` does."""
    from maxk.estimators import usual_ks

    if wanted is None:
        return usual_ks(n)
    if max(wanted) > n:
        raise UserError(f"--k: {max(wanted)} is more than {n}, the fewest samples of a problem")
    return sorted(set(wanted))


def require_no_input(args: argparse.Namespace, inputs: Iterable[str | Path]) -> None:
    """Raises UserError if `--json` names a file that is read, or the verdicts of one: writing would destroy it."""
    from maxk.evaluation.result_files import verdicts_beside

    if args.json is None:
        return
    given = [Path(one) for one in inputs]
    read = [*given, *map(verdicts_beside, given), *([args.problems] if args.problems else [])]
    if args.json.resolve() in [one.resolve() for one in read]:
        raise UserError(f"--json: {args.json} is read by this command; name another file")


def require_picture(path: Path | None) -> None:
    """Raises UserError or ModuleNotFoundError unless a plot, if one is asked for, can be drawn: its kind, the extra."""
    if path is None:
        return
    if path.suffix.lower() not in _PICTURES:
        raise UserError(f"--plot: expected a name that ends in {' or '.join(_PICTURES)}, got {path}")
    import_module("maxk.reporting.style")


def write_json(path: Path, content: Any) -> None:
    """Writes a file named on the command line. (`maxk.artifacts.files` needs pyarrow, which `maxk[grade]` lacks.)"""
    from maxk.evaluation.result_files import replacing

    try:
        with replacing(path) as file:
            file.write(json.dumps(_finite(content), indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def _finite(value: Any) -> Any:
    """Replaces NaN and infinity, which JSON lacks, by null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
