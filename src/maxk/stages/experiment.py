"""`maxk experiment NAME …`: the table and figure of experiments, from scores and training logs.

`maxk.reporting.experiments` says what they hold. Policies without scores are blank, with a note.

    maxk experiment k_sweep offpolicy_study --config results/config.json
    maxk experiment all --config results/config.json
"""

from __future__ import annotations

import argparse

from maxk import config as configuration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="keys of `experiments`, or `all`")


def run(args: argparse.Namespace) -> None:
    from maxk import tracking
    from maxk.reporting import experiments

    config = configuration.load(args.config)
    names = list(config.experiments) if "all" in args.names else args.names
    tracking.report(config, [path for name in names for path in experiments.write(name, config)])
