"""maxk sample POLICY --shard I: samples completions for one shard of the test problems of every evaluated dataset.

One process samples for all datasets, so the model is loaded once and GPU memory is released at the end.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from maxk import config as configuration
from maxk import progress, tracking
from maxk.artifacts import environment, files, records
from maxk.artifacts.digests import digest_of
from maxk.artifacts.records import Policy, Provenance, Task
from maxk.config import Config
from maxk.errors import UserError
from maxk.resources import gpus


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
    mine = share_of(config, args.shard)
    tasks = {name: _tasks(config, name, mine) for name in config.evaluated}
    with tracking.stage(config, "sample", policy=policy.name, shard=str(args.shard)) as run:
        run.params(config.settings("sample"))
        completions, facts = _sample(config, policy, [task for share in tasks.values() for task in share], args.shard)
        for dataset, share in tasks.items():
            _write(config, policy, dataset, args.shard, share, completions, facts)
        everything = [c for one in completions.values() for c in one]
        run.metrics({"completions": len(everything)})
        if everything:  # a shard may have no problem
            run.metrics({"mean_tokens": sum(c.n_tokens for c in everything) / len(everything)})
            run.metrics({"truncated": sum(c.finish_reason == "length" for c in everything) / len(everything)})


def share_of(config: Config, shard: int) -> slice:
    """The shard's part of a dataset's test problems: every `shards`-th."""
    if not 0 <= shard < config.sampling.shards:
        raise UserError(
            f"shard {shard}: sampling.shards={config.sampling.shards} allows 0 … {config.sampling.shards - 1}"
        )
    return slice(shard, None, config.sampling.shards)


def _tasks(config: Config, dataset: str, share: slice) -> list[Task]:
    return files.read_tasks(config.layout.problems(dataset), "test")[share]


def _sample(
    config: Config, policy: Policy, tasks: list[Task], shard: int
) -> tuple[dict[str, list[Any]], Mapping[str, str | float]]:
    """All completions of the tasks, in sample order, by problem id; and the backend's facts for the provenance."""
    from maxk import sampling
    from maxk.artifacts import models
    from maxk.data import prompts

    environment.quiet_libraries()
    tokenizer = models.tokenizer(policy.model, policy.revision)
    rendered = [prompts.render(task.statement, config.prompt, tokenizer) for task in tasks]
    _write_prompts(config, policy, shard, tasks, rendered)
    requests = sampling.requests(tasks, rendered, policy.name, config.sampling)
    backend = sampling.BACKENDS[config.sampling.backend](policy, config.sampling)
    chunks: dict[str, dict[int, list[Any]]] = defaultdict(dict)
    done = progress.track(backend.sample(requests), total=len(requests), label=f"sample {policy.name}")
    for request, completions in done:
        chunks[request.problem_id][request.first] = completions
    return {name: [c for first in sorted(one) for c in one[first]] for name, one in chunks.items()}, backend.facts


def _write_prompts(config: Config, policy: Policy, shard: int, tasks: list[Task], rendered: list[str]) -> None:
    """Stores the rendered prompts, one file per dataset; before the samples, whose existence means completion."""
    for dataset in config.evaluated:
        pairs = [(t.problem_id, text) for t, text in zip(tasks, rendered, strict=True) if t.dataset == dataset]
        columns = {"problem_id": [problem_id for problem_id, _ in pairs], "prompt": [text for _, text in pairs]}
        source = Provenance("sample", config.name, config.settings("sample"))
        files.write_table(config.layout.prompts(policy.name, dataset, shard), columns, records.PROMPT, source)


def _write(
    config: Config,
    policy: Policy,
    dataset: str,
    shard: int,
    tasks: list[Task],
    completions: dict[str, list[Any]],
    facts: Mapping[str, str | float],
) -> None:
    for task in tasks:
        got = len(completions[task.problem_id])
        if got != config.sampling.n:
            raise UserError(
                f"{policy.name}, {dataset}, {task.problem_id}: {got} completions, expected n={config.sampling.n}"
            )
    rows = [(t.problem_id, i, *c) for t in tasks for i, c in enumerate(completions[t.problem_id])]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(records.SAMPLE.names)}
    layout = config.layout
    source = Provenance(
        stage="sample",
        experiment=config.name,
        settings=config.settings("sample"),
        inputs={
            "problems": files.digest(layout.problems(dataset)),
            "policy": digest_of(policy.lineage),
        },
        environment={"backend": config.sampling.backend, **facts, **environment.versions()},
    )
    files.write_table(layout.samples(policy.name, dataset, shard), columns, records.SAMPLE, source)
