"""`maxk select FILE …`: what Best-of-N reaches with a selector that is not an oracle, and how diverse samples are.

    maxk select samples.verdicts.jsonl
    maxk select samples.jsonl --problems problems.jsonl --visible 2 --score reward_model

A FILE holds verdicts of `maxk grade`, or samples, which are graded first; a folder holds the verdict shards of one
policy on one dataset. Selectors: the first `--visible` tests, a majority vote over outputs, `--score` (a key of the
sample rows), random, and the oracle, max@k. All are scored on the tests that are not visible
(`maxk.evaluation.selection`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from maxk.errors import UserError
from maxk.stages import compare


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--visible", type=_visible, default=1, help="tests that a selector sees (default: 1)")
    parser.add_argument("--score", metavar="KEY", help="key of the sample rows that holds a score")
    compare.add_options(parser)


def run(args: argparse.Namespace) -> None:
    from maxk.evaluation.selection import select
    from maxk.reporting import selection as report

    with compare.grading(args) as graded:
        samples = {str(path): _read(args, graded, path) for path in args.files}
    found = {name: select(one, compare.chosen_ks(args.k, one.n)) for name, one in samples.items()}
    if args.json:
        compare.write_json(args.json, {name: report.content(one, args.level) for name, one in found.items()})
    print("\n".join(report.to_markdown(name, one, args.level) for name, one in found.items()), end="")


def _read(args: argparse.Namespace, graded: Callable[[Path], Any], path: Path) -> Any:
    from maxk.artifacts.json_rows import first_row
    from maxk.evaluation import selection, verdict_shards
    from maxk.evaluation.sample_files import SampleFile
    from maxk.evaluation.verdict_files import is_verdict

    if not verdict_shards.is_parquet(path) and not is_verdict(first_row(path)):
        verdicts = graded(path).path
        return selection.read(verdicts, args.visible, SampleFile(path, args.format), args.score)
    if args.score:
        raise UserError(f"{path}: contains verdicts; --score needs the file of samples, and --problems")
    return selection.read(path, args.visible)


def _visible(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tests, 0 or more")
    return int(text)
