"""`maxk ui`: the MLflow page of an experiment, on the scores with their charts.

Where jobs are tracked by a server, its page is named; else one is served on this machine until it is stopped.

    maxk ui                                        # the default experiment
    maxk ui --config config/mini.yaml
"""

from __future__ import annotations

import argparse
from typing import Any

from maxk import config as configuration


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("ui", help="open the MLflow page of an experiment")
    parser.add_argument("--config", help="the experiment's config file; by default the default experiment")
    parser.add_argument("--port", type=int, default=5000, help="where to serve it; another if this is taken")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from maxk.tracking import page

    page.show(configuration.experiment(args.config), args.port)
