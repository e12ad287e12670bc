"""`maxk figure NAME …`: figures as PNG and PDF, from scores, training logs and the tables of statistics.

`maxk.reporting.figures` declares them. Make `maxk table statistics paired_tests` first.

    maxk figure figure1 figure2 training --config results/config.json
    maxk figure all --config results/config.json
"""

from __future__ import annotations

import argparse

from maxk import config as configuration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="figure1, figure2, training, … or `all`")


def run(args: argparse.Namespace) -> None:
    from maxk import tracking
    from maxk.progress import track
    from maxk.reporting import figures
    from maxk.reporting.load import load

    config = configuration.load(args.config)
    names = figures.figures(config) if "all" in args.names else args.names
    wanted = [figures.get(config, name) for name in names]  # an unknown name is an error before any work
    given = figures.inputs(load(config), config)
    written = [path for one in track(wanted, len(wanted), "figures") for path in figures.write(one, given)]
    tracking.report(config, written)
