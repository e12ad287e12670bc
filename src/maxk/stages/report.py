"""`maxk report`: everything that was made, in one HTML file that opens without a network.

Snakemake writes it (`snakemake --report`) from the outputs that the rules mark for it. It shows the experiments that
have been made, and makes none.

    maxk report --config results/config.json      # results/report.html
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from maxk import config as configuration
from maxk.artifacts import files
from maxk.config import Config
from maxk.errors import UserError


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("report", help="write the HTML report of a run")
    parser.add_argument("--snakefile", default="Snakefile", help="the workflow that made the results")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from maxk import tracking

    config = configuration.load(args.config)
    if not Path(args.snakefile).exists():
        raise UserError(f"{args.snakefile}: no such file; name the workflow by --snakefile")
    with files.atomic(config.layout.report) as temporary:
        html = temporary.with_suffix(".html")  # Snakemake goes by the suffix
        try:
            _snakemake(args.snakefile, args.config, html, ["tables", "figures", "summary", *experiments(config)])
            html.replace(temporary)
        finally:
            html.unlink(missing_ok=True)
    tracking.report(config, [config.layout.report])


def experiments(config: Config) -> list[str]:
    """Tables of the experiments that have been made."""
    paths = [config.layout.experiment(name, "csv") for name in config.experiments]
    return [path for path in paths if Path(path).exists()]


def _snakemake(snakefile: str, config: str, html: Path, targets: list[str]) -> None:
    stylesheet = Path(snakefile).parent / "workflow" / "report" / "style.css"
    command = [sys.executable, "-m", "snakemake", "--snakefile", snakefile, "--configfile", config]
    # The run that this is a job of holds the lock; nothing is run here.
    command += ["--nolock", "--report", str(html), "--report-stylesheet", str(stylesheet), "--", *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(f"Snakemake cannot write the report: {' '.join(reason[-3:])}")
