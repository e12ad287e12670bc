"""`maxk table NAME …`: tables from scores, as CSV, most also as Markdown and LaTeX.

    maxk table table2 table3 --config results/config.json
    maxk table all --config results/config.json

`maxk.reporting.tables` declares them: the paper's numbered tables, `statistics` (intervals of every number),
`paired_tests` (differences between policies), `comparison` (our numbers beside the paper's) and `diversity` (problems
solved and lost, and from which k a policy is above GRPO).
"""

from __future__ import annotations

import argparse

from maxk import config as configuration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help="table1, …, statistics, paired_tests, comparison, diversity, or `all`",
    )


def run(args: argparse.Namespace) -> None:
    from maxk import tracking
    from maxk.progress import track
    from maxk.reporting import tables
    from maxk.reporting.load import load

    config = configuration.load(args.config)
    names = tables.tables(config) if "all" in args.names else args.names
    wanted = [tables.table(config, name) for name in names]  # an unknown name is an error before any work
    scores = load(config)
    written = [path for table in track(wanted, len(wanted), "tables") for path in table.write(scores, config)]
    tracking.report(config, written)
