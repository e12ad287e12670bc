"""maxk finalize: called when a pipeline run ends. Sends all events to MLflow and ends the experiment's run: FINISHED,
or with `--failed` FAILED.
"""

from __future__ import annotations

import argparse

from maxk import config as configuration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--failed", action="store_true", help="the pipeline run failed")


def run(args: argparse.Namespace) -> None:
    from maxk.tracking import mirror

    mirror.finalize(configuration.load(args.config), args.failed)
