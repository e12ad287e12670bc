"""maxk configure: what a run does first. It validates the configuration, writes it, resolved, to
`results/config.json`, where every stage reads it, and starts the tracking (the MLflow database must exist before jobs
run side by side).
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from maxk import config as configuration
from maxk import tracking
from maxk.artifacts import environment, files
from maxk.errors import UserError


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("configure", help="write the resolved configuration and start the tracking")
    parser.add_argument("content", help="the configuration as JSON")
    parser.add_argument("--local", action="store_true", help="jobs run on this machine: its GPUs must suffice")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    try:
        content = json.loads(args.content)
    except ValueError as error:
        raise UserError(f"not JSON ({error})") from None
    config = configuration.parse(content)
    if args.local and config.gpus:
        environment.require_gpus(config.gpus)
    tracking.start(config)
    files.write_json(config.layout.config, config.model_dump(mode="json"))
