"""maxk finalize: called when a pipeline run ends. Sends all events to MLflow and ends the experiment's run: FINISHED,
or with `--failed` FAILED.
"""

from __future__ import annotations

import argparse
from typing import Any

from maxk import config as configuration


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("finalize", help="send all events to MLflow and end the experiment's run")
    parser.add_argument("--failed", action="store_true", help="the pipeline run failed")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from maxk.tracking import mirror

    mirror.finalize(configuration.load(args.config), args.failed)
