"""`maxk table NAME …`: the paper's tables from scores, as CSV with Markdown and LaTeX twins.

Best, second best and significance are marked as in the paper (`maxk.reporting.tables`).

    maxk table table2 table3 --config results/config.json
    maxk table all --config results/config.json
"""

from __future__ import annotations

import argparse
from typing import Any

from maxk import config as configuration


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("table", help="write tables from scores")
    parser.add_argument("names", nargs="+", metavar="NAME", help="table1, table2, … or `all`")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from maxk.reporting import publish, tables

    config = configuration.load(args.config)
    names = list(tables.specs(config)) if "all" in args.names else args.names
    specs = [tables.spec_of(config, name) for name in names]  # an unknown name is told before any work
    publish(
        config,
        lambda scores, config: [
            path for spec in specs for path in tables.write(tables.build(scores, config, spec), config)
        ],
    )
