"""`maxk plan`: the cost of an experiment, before anything runs.

    maxk plan                                                   # of the default experiment
    maxk plan --config config/paper.yaml --experiment k_sweep

See `maxk.reporting.plan`.
"""

from __future__ import annotations

import argparse
import os

from maxk import config as configuration
from maxk.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", help="config file of the experiment (default: the default experiment)")
    parser.add_argument("--rates", help="measured rates; by default config/rates.yaml")
    parser.add_argument("--profile", help="a profile of the rates; by default that of the base model")
    parser.add_argument("--cores", type=int, help="cores for grading; by default those of this machine")
    parser.add_argument("--experiment", help="a key of `experiments`: plan its policies, not those of the main tables")


def run(args: argparse.Namespace) -> None:
    from maxk.reporting import plan

    config = configuration.experiment(args.config)
    if args.experiment is not None:
        config = config.restricted_to(args.experiment)
    rates = plan.read_rates(args.rates or str(configuration.DEFAULTS.with_name("rates.yaml")))
    cores = len(os.sched_getaffinity(0)) if args.cores is None else args.cores
    if cores < 1:
        raise UserError(f"--cores must be at least 1, got {cores}")
    profile = plan.choose(rates, config, args.profile)
    print(*plan.lines(config, rates, profile, cores, here=args.cores is None), sep="\n")
