"""`maxk figure NAME …`: figures from scores and training logs, as PNG and PDF.

Which figures there are, `maxk.reporting.figures` says.

    maxk figure figure1 figure2 training --config results/config.json
    maxk figure all --config results/config.json
"""

from __future__ import annotations

import argparse
from typing import Any

from maxk import config as configuration


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("figure", help="draw figures from scores")
    parser.add_argument("names", nargs="+", metavar="NAME", help="figure1, figure2, training, … or `all`")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from maxk.progress import track
    from maxk.reporting import figures, publish

    names = list(figures.FIGURES) if "all" in args.names else args.names
    for name in names:
        figures.require(name)  # an unknown name is told before any work
    publish(
        configuration.load(args.config),
        lambda scores, config: [
            path for name in track(names, len(names), "figures") for path in figures.write(name, scores, config)
        ],
    )
