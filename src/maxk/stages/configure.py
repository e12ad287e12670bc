"""maxk configure: called when a pipeline run starts. Validates the configuration, starts the tracking, and writes the
resolved configuration to `results/config.json`, where every stage reads it.
"""

from __future__ import annotations

import argparse
import json

from maxk import config as configuration
from maxk.artifacts import files
from maxk.config import Config
from maxk.errors import UserError
from maxk.resources import gpus, launcher


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("content", help="the configuration as JSON")
    parser.add_argument("--local", action="store_true", help="jobs run on this machine: it must have what they need")


def run(args: argparse.Namespace) -> None:
    from maxk.tracking import mirror, reporters

    try:
        content = json.loads(args.content)
    except ValueError as error:
        raise UserError(f"not JSON ({error})") from None
    config = configuration.parse(content)
    if args.local:
        _require_machine(config)
    reporters.prepare(config)
    mirror.start(config)
    files.write_json(config.layout.config, config.model_dump(mode="json"))


def _require_machine(config: Config) -> None:
    """Raises UserError if this machine alone cannot run the training jobs."""
    if config.gpus:
        gpus.require(config.gpus)
    nodes = max((config.training_of(name).nodes for name in config.objectives), default=1)
    if nodes > 1:
        raise launcher.needs_slurm(nodes)
