"""`maxk score POLICY`: samples and verdicts of a policy → its scores on every evaluated dataset.

    maxk score base --config results/config.json

Reads all shards, refuses those that do not belong together (`maxk.evaluation.shards`) and writes one row per problem
(`maxk.evaluation.scoring`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from statistics import fmean

from maxk import config as configuration
from maxk import tracking
from maxk.artifacts import environment, files, records
from maxk.config import Config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("policy", help="`base` or OBJECTIVE/seedN")


def run(args: argparse.Namespace) -> None:
    environment.arrow_without_pandas()
    config = configuration.load(args.config)
    config.require_policy(args.policy)
    with tracking.stage(config, "score", policy=args.policy) as run:
        run.params(config.settings("score"))
        curves = {dataset: _score(config, args.policy, dataset, run) for dataset in config.evaluated}
        _track(config, curves, run)


def _score(config: Config, policy: str, dataset: str, run: tracking.Run) -> dict[str, list[float]]:
    """Writes the scores of one dataset; returns its means of max@k and pass@k, one number per k."""
    import numpy as np

    from maxk.evaluation import shards
    from maxk.evaluation.scoring import Scorer

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
    run.tag("maxk.sandbox", str(evaluation.source.environment["sandbox"]))
    return {metric: np.mean(columns[metric], axis=0).tolist() for metric in ("max_at_k", "pass_at_k")}


def _track(config: Config, curves: Mapping[str, Mapping[str, Sequence[float]]], run: tracking.Run) -> None:
    """Logs the curves of every dataset and of their mean; the step is k, so that the tracker draws them.

    `max_at_1` and `max_at_{headline_k}` repeat two points of the mean, rounded as in the tables, to sort runs by.
    """
    means = {
        metric: [fmean(values) for values in zip(*(curve[metric] for curve in curves.values()), strict=True)]
        for metric in ("max_at_k", "pass_at_k")
    }
    for place, curve in {**curves, "mean": means}.items():
        for metric, values in curve.items():
            for k, value in zip(config.report.ks, values, strict=True):
                run.metrics({f"{place}/{metric}": value}, step=k)
    by_k = dict(zip(config.report.ks, means["max_at_k"], strict=True))
    run.metrics({f"max_at_{k}": round(by_k[k], 4) for k in (1, config.report.headline_k)})
