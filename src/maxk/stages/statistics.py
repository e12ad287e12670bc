"""`maxk statistics`: intervals of every number and paired tests between policies.

Writes `statistics.csv` (one row a policy, dataset and quantity) and `paired_tests.csv` (one row a pair,
dataset and quantity).

    maxk statistics --config results/config.json
"""

from __future__ import annotations

import argparse
from typing import Any

from maxk import config as configuration
from maxk import tracking


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("statistics", help="write intervals and paired tests")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from maxk.reporting import statistics
    from maxk.reporting.load import load
    from maxk.reporting.tidy import write_csv

    config = configuration.load(args.config)
    scores = load(config)
    replicates = statistics.resample(scores, config.report)
    write_csv(config.layout.statistics, statistics.statistics_rows(scores, replicates))
    write_csv(config.layout.table("paired_tests"), statistics.paired_rows(scores, replicates, config))
    tracking.report(config, [config.layout.statistics, config.layout.table("paired_tests")])
