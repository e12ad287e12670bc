"""`maxk experiment NAME`: the table and figure of an experiment, from scores and training logs.

`maxk.reporting.experiments` says what they hold. Policies without scores are blank, with a note.

    maxk experiment k_sweep --config results/config.json
"""

from __future__ import annotations

import argparse

from maxk import config as configuration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a key of `experiments`")


def run(args: argparse.Namespace) -> None:
    from maxk import tracking
    from maxk.reporting import experiments

    config = configuration.load(args.config)
    tracking.report(config, experiments.write(args.name, config))
