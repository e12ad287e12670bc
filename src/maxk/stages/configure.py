"""maxk configure: validates a configuration and writes it, resolved, to `results/config.json`.

The Snakefile hands over the configuration that it has validated already; every stage reads the file.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from maxk import config as configuration
from maxk import files
from maxk.errors import UserError


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("configure", help="write the resolved configuration")
    parser.add_argument("content", help="the configuration as JSON")
    parser.add_argument("--config", help="where it must go, if not where its name says")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    try:
        content = json.loads(args.content)
    except ValueError as error:
        raise UserError(f"not JSON ({error})") from None
    config = configuration.parse(content)
    files.write_json(args.config or config.layout.config, config.model_dump(mode="json"))
