"""`maxk score POLICY`: samples and verdicts of a policy → its scores on every evaluated dataset.

    maxk score base --config results/config.json

Reads all shards, refuses what does not belong together (`maxk.shards`) and writes one row a problem
(`maxk.scoring`).
"""

from __future__ import annotations

import argparse
from typing import Any

from maxk import config as configuration
from maxk import files, records


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("score", help="samples and verdicts → max@k and pass@k of every problem")
    parser.add_argument("policy", help="`base` or OBJECTIVE/seedN")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from maxk import shards
    from maxk.scoring import Scorer

    config = configuration.load(args.config)
    for dataset in config.evaluated:
        evaluation = shards.read(config, args.policy, dataset)
        scorer = Scorer(
            policy=args.policy,
            dataset=dataset,
            problem_ids=evaluation.problem_ids,
            n=config.sampling.n,
            ks=config.report.ks,
            chunk=config.sampling.chunk,
        )
        columns = scorer.columns(evaluation.samples, evaluation.verdicts)
        files.write_table(config.layout.scores(args.policy, dataset), columns, records.SCORE, evaluation.source)
