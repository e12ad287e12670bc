"""maxk prepare DATASET: converts a source's rows to problems; `funnel.json` counts what every filter left.

maxk prepare mbpp --config results/mini/config.json
"""

from __future__ import annotations

import argparse
import sys

from maxk import config as configuration
from maxk import tracking
from maxk.artifacts import environment, files
from maxk.artifacts.records import Provenance
from maxk.errors import lookup


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", help="a key of `datasets`")


def run(args: argparse.Namespace) -> None:
    from maxk import data
    from maxk.evaluation import problem_grader

    environment.arrow_without_pandas()
    config = configuration.load(args.config)
    name, layout = args.dataset, config.layout
    configured = lookup(config.datasets, name, "dataset")
    settings = config.settings("prepare", dataset=name)
    with tracking.stage(config, "prepare", dataset=name) as run:
        dataset, commits = data.at_commits(name, configured)
        validate = problem_grader.validate_solutions(config, f"prepare {name}: programs run")
        problems, funnel = data.load(name, dataset, validate)
        for line in data.lines(name, funnel):
            print(line, file=sys.stderr)
        files.write_json(layout.funnel(name), funnel)
        source = Provenance("prepare", config.name, settings, environment={"commits": commits})
        files.write_problems(layout.problems(name), problems, source)
        run.params(settings)
        run.metrics({f"funnel/{step}": count for step, count in funnel.items()})
        run.dataset(name, layout.problems(name), files.digest(layout.problems(name)), context="prepared")
        run.artifact(layout.funnel(name))
