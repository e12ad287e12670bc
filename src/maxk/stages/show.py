"""`maxk show NAME`: a table in the terminal, as `maxk table` wrote it.

Nothing is computed: the Markdown twin is shown with its marks.

    maxk show table2 --config results/config.json
"""

from __future__ import annotations

import argparse
from typing import Any

from maxk import config as configuration


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("show", help="print a table in the terminal")
    parser.add_argument("name", metavar="NAME", help="table1, table2, … or comparison")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from maxk.reporting import terminal

    config = configuration.load(args.config)
    terminal.show(config.layout.table(args.name, "md"))
