"""maxk sample POLICY --shard I: completions of a policy for its share of every evaluated dataset.

One process serves all datasets, so that the model is loaded once and GPU memory is given back at the end.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from maxk import config as configuration
from maxk import environment, files, gpus, progress, records, tracking
from maxk.config import Config
from maxk.errors import UserError
from maxk.records import Policy, Problem, Provenance


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("sample", help="sample completions from a policy")
    parser.add_argument("policy", help="`base` or OBJECTIVE/seedS")
    parser.add_argument("--shard", type=int, default=0)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    config = configuration.load(args.config)
    gpus.hold(config.sampling.gpus if config.gpus else 0)
    policy = files.read_policy(config.layout.policy(args.policy))
    problems = {name: shard_of(config, name, args.shard) for name in config.evaluated}
    with tracking.stage(config, "sample", policy=policy.name, shard=str(args.shard)) as run:
        run.params(config.settings("sample"))
        completions, facts = _sample(config, policy, [p for share in problems.values() for p in share], args.shard)
        for dataset, share in problems.items():
            _write(config, policy, dataset, args.shard, share, completions, facts)
        everything = [c for one in completions.values() for c in one]
        run.metrics({"completions": len(everything)})
        if everything:  # a shard may have no problem
            run.metrics({"mean_tokens": sum(c.n_tokens for c in everything) / len(everything)})
            run.metrics({"truncated": sum(c.finish_reason == "length" for c in everything) / len(everything)})


def shard_of(config: Config, dataset: str, shard: int) -> list[Problem]:
    """The shard's share of a dataset's test problems: every `shards`-th of them."""
    if not 0 <= shard < config.sampling.shards:
        raise UserError(
            f"shard {shard}: sampling.shards={config.sampling.shards} allows 0 … {config.sampling.shards - 1}"
        )
    return files.read_problems(config.layout.problems(dataset), "test")[shard :: config.sampling.shards]


def _sample(
    config: Config, policy: Policy, problems: list[Problem], shard: int
) -> tuple[dict[str, list[Any]], Mapping[str, str | float]]:
    """All completions of the problems, in sample order, by problem id; and what the backend tells of itself."""
    from maxk import models, prompts, sampling

    environment.quiet_libraries()
    tokenizer = models.tokenizer(policy.model, policy.revision)
    rendered = [prompts.render(problem.statement, config.prompt, tokenizer) for problem in problems]
    _write_prompts(config, policy, shard, problems, rendered)
    requests = sampling.requests(problems, rendered, policy.name, config.sampling)
    backend = sampling.BACKENDS[config.sampling.backend](policy, config.sampling)
    chunks: dict[str, dict[int, list[Any]]] = defaultdict(dict)
    done = progress.track(backend.sample(requests), total=len(requests), label=f"sample {policy.name}")
    for request, completions in done:
        chunks[request.problem_id][request.first] = completions
    return {name: [c for first in sorted(one) for c in one[first]] for name, one in chunks.items()}, backend.facts


def _write_prompts(config: Config, policy: Policy, shard: int, problems: list[Problem], rendered: list[str]) -> None:
    """Stores what the policy reads, a dataset a file; before the samples, whose existence means completion."""
    for dataset in config.evaluated:
        pairs = [(p.problem_id, text) for p, text in zip(problems, rendered, strict=True) if p.dataset == dataset]
        columns = {"problem_id": [problem_id for problem_id, _ in pairs], "prompt": [text for _, text in pairs]}
        source = Provenance("sample", config.name, config.settings("sample"))
        files.write_table(config.layout.prompts(policy.name, dataset, shard), columns, records.PROMPT, source)


def _write(
    config: Config,
    policy: Policy,
    dataset: str,
    shard: int,
    problems: list[Problem],
    completions: dict[str, list[Any]],
    facts: Mapping[str, str | float],
) -> None:
    for problem in problems:
        got = len(completions[problem.problem_id])
        if got != config.sampling.n:
            raise UserError(
                f"{policy.name}, {dataset}, {problem.problem_id}: {got} completions, expected n={config.sampling.n}"
            )
    rows = [(p.problem_id, i, *c) for p in problems for i, c in enumerate(completions[p.problem_id])]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(records.SAMPLE.names)}
    layout = config.layout
    source = Provenance(
        stage="sample",
        experiment=config.name,
        settings=config.settings("sample"),
        inputs={
            "problems": files.digest(layout.problems(dataset)),
            "policy": files.digest_of(policy.lineage),
        },
        environment={"backend": config.sampling.backend, **facts, **environment.versions()},
    )
    files.write_table(layout.samples(policy.name, dataset, shard), columns, records.SAMPLE, source)
