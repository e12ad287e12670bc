"""`maxk statistics`: intervals of every number and paired tests between policies.

Writes `statistics.csv` (one row a policy, dataset and quantity) and `paired_tests.csv` (one row a pair,
dataset and quantity).

    maxk statistics --config results/config.json
"""

from __future__ import annotations

import argparse
from typing import Any

from maxk import config as configuration


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("statistics", help="write intervals and paired tests")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from maxk.reporting import publish, statistics

    publish(configuration.load(args.config), statistics.write)
