"""`maxk select FILE …`: what Best-of-N reaches with a selector that is not an oracle, and how diverse samples are.

    maxk select samples.verdicts.jsonl
    maxk select samples.jsonl --problems problems.jsonl --visible 2 --score reward_model

A FILE holds verdicts of `maxk grade`, or samples, which are graded first; a folder holds the verdict shards of one
policy on one dataset. Selectors: the first `--visible` tests, a majority vote over the outputs on all tests, `--score`
(a key of the sample rows), random, and the oracle, max@k. All are scored on the tests that are not visible
(`maxk.evaluation.selection`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maxk.errors import UserError
from maxk.stages import compare


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument(
        "--visible", type=_visible, default=1, help="first tests, to select by and not to score on (default: 1)"
    )
    parser.add_argument("--score", metavar="KEY", help="key of the sample rows that holds a score")
    compare.add_options(parser)


def run(args: argparse.Namespace) -> None:
    from maxk.evaluation import selection
    from maxk.evaluation.sample_files import SampleFile
    from maxk.evaluation.systems import require_same_tasks
    from maxk.reporting import selection as report

    compare.require_no_input(args, args.files)
    ungraded = {path: SampleFile(path, args.format) for path in args.files if not _has_verdicts(path)}
    if args.score:
        _require_scores(args, ungraded)

    def require(problems: Any) -> None:
        selection.require_hidden_tests(args.problems, problems, args.visible)

    with compare.grading(args, require) as graded:
        samples = {
            str(path): selection.read(graded(path).path, args.visible, ungraded[path], args.score)
            if path in ungraded
            else selection.read(path, args.visible)
            for path in args.files
        }
    require_same_tasks((name, one.tasks) for name, one in samples.items())
    found = {name: selection.select(one, compare.chosen_ks(args.k, one.n)) for name, one in samples.items()}
    print("\n".join(report.to_markdown(name, one, args.level) for name, one in found.items()), end="")
    if args.json:
        compare.write_json(args.json, {name: report.content(one, args.level) for name, one in found.items()})


def _require_scores(args: argparse.Namespace, ungraded: Mapping[Path, Any]) -> None:
    """Raises UserError unless every sample of every file has a score, before any is graded."""
    from maxk.evaluation import selection

    for path in args.files:
        if path not in ungraded:
            raise UserError(f"{path}: contains verdicts; --score needs the file of samples, and --problems")
        selection.require_scores(ungraded[path], args.score)


def _has_verdicts(path: Path) -> bool:
    from maxk.artifacts.json_rows import first_row
    from maxk.evaluation import verdict_shards
    from maxk.evaluation.verdict_files import is_verdict

    return verdict_shards.is_parquet(path) or is_verdict(first_row(path))


def _visible(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tests, 0 or more")
    return int(text)
