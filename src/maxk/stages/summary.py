"""`maxk summary`: one page on a run, `summary.md`.

The page's findings are computed from the paired tests that `maxk table statistics` wrote (`maxk.reporting.summary`).

    maxk summary --config results/config.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from maxk import config as configuration


def run(args: argparse.Namespace) -> None:
    from maxk import tracking
    from maxk.reporting import summary
    from maxk.reporting.load import load

    config = configuration.load(args.config)
    path = summary.write(load(config), config)
    # What the experiment's page in MLflow shows first.
    tracking.report(config, [path], note=Path(path).read_text(encoding="utf-8"))
