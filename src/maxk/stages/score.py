"""`maxk score POLICY`: samples and verdicts of a policy → its scores on every evaluated dataset.

    maxk score base --config results/config.json

Reads all shards, refuses what does not belong together (`maxk.shards`) and writes one row a problem
(`maxk.scoring`).
"""

from __future__ import annotations

import argparse
from typing import Any

from maxk import config as configuration
from maxk import files, records, tracking
from maxk.config import Config


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("score", help="samples and verdicts → max@k and pass@k of every problem")
    parser.add_argument("policy", help="`base` or OBJECTIVE/seedN")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    config = configuration.load(args.config)
    with tracking.stage(config, "score", policy=args.policy) as run:
        run.params(config.settings("score"))
        for dataset in config.evaluated:
            _score(config, args.policy, dataset, run)


def _score(config: Config, policy: str, dataset: str, run: tracking.Run) -> None:
    import numpy as np

    from maxk import shards
    from maxk.scoring import Scorer

    evaluation = shards.read(config, policy, dataset)
    scorer = Scorer(
        policy=policy,
        dataset=dataset,
        problem_ids=evaluation.problem_ids,
        n=config.sampling.n,
        ks=config.report.ks,
        chunk=config.sampling.chunk,
    )
    columns = scorer.columns(evaluation.samples, evaluation.verdicts)
    files.write_table(config.layout.scores(policy, dataset), columns, records.SCORE, evaluation.source)
    path = config.layout.problems(dataset)
    run.dataset(dataset, path, evaluation.source.inputs["problems"], context="evaluation")
    for metric in ("max_at_k", "pass_at_k"):
        # The step is k, so that the tracker draws the curve.
        for k, value in zip(config.report.ks, np.mean(columns[metric], axis=0), strict=True):
            run.metrics({f"{dataset}/{metric}": float(value)}, step=k)
