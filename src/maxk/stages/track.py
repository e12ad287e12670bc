"""maxk track: creates the MLflow database, experiment and parent run, before jobs run side by side."""

from __future__ import annotations

import argparse
from typing import Any

from maxk import config as configuration
from maxk import tracking


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("track", help="start the experiment's tracking")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    tracking.start(configuration.load(args.config))
