"""`maxk compare`: our numbers beside the paper's, in `comparison.csv` and `comparison.md`.

Where tasks or base model are not the paper's, only directions are compared (`maxk.reporting.compare`).

    maxk compare --config results/config.json
"""

from __future__ import annotations

import argparse
from typing import Any

from maxk import config as configuration


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("compare", help="set our numbers beside the published ones")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from maxk.reporting import compare, publish

    publish(configuration.load(args.config), compare.write)
