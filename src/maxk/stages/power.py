"""`maxk power POLICY POLICY`: the problems and training seeds that a difference between two methods needs.

    maxk power grpo bon_mean --difference 0.015 --config results/config.json
    maxk power grpo bon_mean --difference 0.015 --seed-sd 0.01 --problems 100 408 600 --seeds 2 3 5 8

Variance components come from the scores of this experiment, which must have two or more seeds; `maxk.reporting.power`
says how.
"""

from __future__ import annotations

import argparse

from maxk import config as configuration
from maxk.stages import grade


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("policies", nargs=2, metavar="POLICY", help="two keys of `objectives`")
    parser.add_argument("--difference", type=float, required=True, help="difference to detect, such as 0.015")
    parser.add_argument("--quantity", help="quantity to compare (default: max@headline_k)")
    parser.add_argument("--dataset", help="dataset to compare on (default: the first evaluated one)")
    parser.add_argument("--problems", type=int, nargs="+", default=[50, 100, 200, 400, 800], help="rows of the table")
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3, 5, 8], help="columns of the table")
    parser.add_argument("--seed-sd", type=float, help="standard deviation between seeds (default: estimated)")
    parser.add_argument(
        "--level",
        type=grade.up_to(0.9999, float),
        default=0.95,
        help="level of the interval that must exclude zero (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    from maxk.errors import UserError, unknown
    from maxk.reporting import estimates, markdown, power
    from maxk.reporting.load import load

    if min(*args.problems, *args.seeds) < 2:
        raise UserError("--problems and --seeds must be 2 or more: one seed allows no claim about methods")
    config = configuration.load(args.config)
    quantity, dataset = args.quantity or f"max@{config.report.headline_k}", args.dataset or config.evaluated[0]
    scores = load(config)
    known = estimates.quantities(scores)
    if quantity not in known:
        raise UserError(f"no quantity {quantity!r}{unknown(quantity, known)}")
    parts = power.with_seed_sd(power.components(scores, args.policies, dataset, quantity), args.seed_sd)
    frame = power.table(parts, args.difference, args.problems, args.seeds, args.level)
    difference = markdown.number(args.difference, "+g")
    title = f"Power for {' and '.join(args.policies)}: {difference} of {quantity} on {dataset}"
    print(power.to_markdown(parts, frame, title, args.level), end="")
