"""`maxk table NAME …`: the paper's tables from scores, as CSV with Markdown and LaTeX twins, and what they rest on.

    maxk table table2 table3 --config results/config.json
    maxk table all --config results/config.json

Beside the numbered tables (`maxk.reporting.tables`) there are `statistics` (intervals of every number, and paired
tests: `maxk.reporting.estimates`) and `comparison` (beside the paper's numbers: `maxk.reporting.comparison`).
"""

from __future__ import annotations

import argparse
from typing import Any

from maxk import config as configuration


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("table", help="write tables from scores")
    parser.add_argument("names", nargs="+", metavar="NAME", help="table1, table2, …, statistics, comparison or `all`")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from maxk.progress import track
    from maxk.reporting import comparison, estimates, publish, specs, tables

    config = configuration.load(args.config)
    further = {"statistics": estimates.write, "comparison": comparison.write}
    names = [*specs.tables(config), *further] if "all" in args.names else args.names
    numbered = [specs.table(config, name) for name in names if name not in further]  # unknown: told before any work
    publish(
        config,
        lambda scores, config: [
            *(
                path
                for spec in track(numbered, len(numbered), "tables")
                for path in tables.write(tables.build(scores, config, spec), config)
            ),
            *(path for name in names if name in further for path in further[name](scores, config)),
        ],
    )
