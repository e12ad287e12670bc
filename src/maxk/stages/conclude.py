"""maxk conclude: what a run does last. It ends the experiment's tracked run as the pipeline ended: FINISHED, or with
`--failed` FAILED, or KILLED where jobs were stopped. Jobs that were killed before they could say so are KILLED, too.
"""

from __future__ import annotations

import argparse
from typing import Any

from maxk import config as configuration
from maxk import tracking


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("conclude", help="end the experiment's tracked run")
    parser.add_argument("--failed", action="store_true", help="the pipeline did not end well")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    tracking.conclude(configuration.load(args.config), args.failed)
