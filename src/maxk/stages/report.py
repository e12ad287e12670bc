"""`maxk report`: one HTML page of all results, `report.html` (`maxk.reporting.report`).

It shows the tables and figures that there are, and of the experiments those that have been made.

    maxk report --config results/config.json      # results/report.html
"""

from __future__ import annotations

import argparse

from maxk import config as configuration


def run(args: argparse.Namespace) -> None:
    from maxk import tracking
    from maxk.artifacts import environment
    from maxk.reporting import report
    from maxk.reporting.load import load

    config = configuration.load(args.config)
    tracking.report(config, [report.write(load(config), config, environment.revision())])
