"""maxk sample POLICY --shard I: samples completions for one shard of the test problems of every evaluated dataset.

One process samples for all datasets, so the model is loaded once and GPU memory is released at the end. Samples are
kept in a journal (`maxk.artifacts.journal`), so a restarted job, or one with a larger n or more problems, draws only
what is missing; one with a smaller n draws nothing.

    maxk sample base --shard 0 --config results/config.json
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maxk import config as configuration
from maxk import tracking
from maxk.artifacts import environment, files, journal, models, records
from maxk.artifacts.digests import digest_of
from maxk.artifacts.journal import Journal
from maxk.artifacts.records import Policy, Provenance, Task
from maxk.config import Config
from maxk.errors import UserError
from maxk.progress import Progress
from maxk.resources import gpus

if TYPE_CHECKING:
    from maxk import sampling

Drawn = dict[str, dict[int, Any]]  # completions by problem id and number


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("sample", help="sample completions from a policy")
    parser.add_argument("policy", help="`base` or OBJECTIVE/seedS")
    parser.add_argument("--shard", type=int, default=0)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    config = configuration.load(args.config)
    gpus.hold(config.sampling.gpus if config.gpus else 0, config.sampling.gpu)
    policy = files.read_policy(config.layout.policy(args.policy))
    mine = share_of(config, args.shard)
    tasks = {name: _tasks(config, name, mine) for name in config.evaluated}
    with tracking.stage(config, "sample", policy=policy.name, shard=str(args.shard)) as run:
        run.params({**config.settings("sample"), "n": config.sampling.n})
        drawn, made_with = _sample(config, policy, [task for share in tasks.values() for task in share], args.shard)
        for dataset, share in tasks.items():
            _write(config, policy, dataset, args.shard, share, drawn, made_with)
        completions = [completion for one in drawn.values() for completion in one.values()]
        _track(run, completions)
        _warn_of_lost_programs(policy, completions)


def share_of(config: Config, shard: int) -> slice:
    """The shard's part of a dataset's test problems: every `shards`-th."""
    if not 0 <= shard < config.sampling.shards:
        raise UserError(
            f"shard {shard}: sampling.shards={config.sampling.shards} allows 0 … {config.sampling.shards - 1}"
        )
    return slice(shard, None, config.sampling.shards)


def _tasks(config: Config, dataset: str, share: slice) -> list[Task]:
    return files.read_tasks(config.layout.problems(dataset), "test")[share]


def _track(run: tracking.Run, completions: Sequence[Any]) -> None:
    run.metrics({"completions": len(completions)})
    if completions:  # a shard may have no problem
        run.metrics({"mean_tokens": sum(c.n_tokens for c in completions) / len(completions)})
        for name, reason in (("truncated", "length"), ("stopped", "stop_string")):
            run.metrics({name: sum(c.finish_reason == reason for c in completions) / len(completions)})


def _warn_of_lost_programs(policy: Policy, completions: Sequence[Any]) -> None:
    """Warns if completions stopped before a program: other blocks came first, or the block names no language."""
    from maxk.grading import extract_program

    stopped = [c.text for c in completions if c.finish_reason == "stop_string"]
    lost = sum(extract_program(text).program is None for text in stopped)
    if lost:
        print(
            f"{policy.name}: {lost} of {len(completions)} completions were stopped by sampling.stop and hold no "
            "program; set sampling.stop and training.stop to [], or ask for one ```python block in prompt.template",
            file=sys.stderr,
        )


# ---- drawing
def _sample(config: Config, policy: Policy, tasks: list[Task], shard: int) -> tuple[Drawn, dict[str, Any]]:
    """The first n completions of every task, and the merged environment in which they were drawn.

    Reads from the journal what earlier jobs have drawn; loads the model only if something is missing.
    """
    from maxk import sampling
    from maxk.data import prompts

    environment.quiet_libraries()
    tokenizer = models.tokenizer(policy.model, policy.revision)
    rendered = [prompts.render(task.statement, config.prompt, tokenizer) for task in tasks]
    _write_prompts(config, policy, shard, tasks, rendered)
    digests = {task.problem_id: digest_of(prompt) for task, prompt in zip(tasks, rendered, strict=True)}
    drawn: Drawn = {task.problem_id: {} for task in tasks}
    past = _journal(config, policy, _weights(policy))
    environments = [made_with for batch, made_with in past.read() if _keep(config, drawn, digests, batch.to_pydict())]
    requests = sampling.requests(tasks, rendered, policy.name, config.sampling, drawn)
    recorded = {"backend": config.sampling.backend, **environment.versions()}
    if not requests:
        return drawn, journal.common(environments or [recorded])
    backend = sampling.BACKENDS[config.sampling.backend](policy, config.sampling)

    def present() -> dict[str, Any]:
        return {**recorded, **backend.facts}

    parts = (_columns(done, digests) for done in backend.sample(requests))
    with Progress(sum(request.count for request in requests), f"sample {policy.name}") as progress:
        for part in past.record(parts, present):
            progress.advance(_keep(config, drawn, digests, part))
    return drawn, journal.common([*environments, present()])


def _weights(policy: Policy) -> str:
    """Identifies the weights: a digest of the model's files, or the commit on the hub."""
    weights = models.digest(policy.model) or str(policy.revision)
    if policy.lineage.get("weights", "pretrained") not in ("pretrained", weights):
        raise UserError(f"{policy.model}: not the files that `maxk base` recorded; run `maxk base` again")
    return weights


def _journal(config: Config, policy: Policy, weights: str) -> Journal:
    """The journal of all samples of this policy with these settings, shared by all shards."""
    from maxk import sampling

    settings = config.settings("sample")
    dtype = sampling.dtype_of(config.sampling, on_gpu=bool(config.gpus))
    inputs = {"policy": digest_of(policy.lineage), "weights": weights, "dtype": dtype}
    folder = Path(config.layout.drawn(policy.name, digest_of([settings, inputs])))
    return Journal(folder, records.DRAWN, Provenance("sample", config.name, settings, inputs))


def _columns(done: sampling.Drawn, digests: Mapping[str, str]) -> dict[str, list[Any]]:
    """Finished requests as columns of `records.DRAWN`."""
    rows = [
        (request.problem_id, number, *completion, digests[request.problem_id])
        for request, completions in done
        for number, completion in enumerate(completions, request.first)
    ]
    return {name: [row[i] for row in rows] for i, name in enumerate(records.DRAWN.names)}


def _keep(config: Config, drawn: Drawn, digests: Mapping[str, str], columns: Mapping[str, Sequence[Any]]) -> int:
    """Adds the completions that are needed and were drawn for the current prompt; returns how many it added."""
    from maxk.sampling import Completion

    before = sum(map(len, drawn.values()))
    for problem_id, number, *completion, digest in zip(*columns.values(), strict=True):
        if digests.get(problem_id) == digest and number < config.sampling.n:
            drawn[problem_id].setdefault(number, Completion(*completion))
    return sum(map(len, drawn.values())) - before


# ---- writing
def _write_prompts(config: Config, policy: Policy, shard: int, tasks: list[Task], rendered: list[str]) -> None:
    """Stores the rendered prompts, one file per dataset; before the samples, whose files mark the job as done."""
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
    drawn: Drawn,
    made_with: Mapping[str, Any],
) -> None:
    for task in tasks:
        got = len(drawn[task.problem_id])
        if got != config.sampling.n:
            raise UserError(
                f"{policy.name}, {dataset}, {task.problem_id}: {got} completions, expected n={config.sampling.n}"
            )
    rows = [(t.problem_id, number, *c) for t in tasks for number, c in sorted(drawn[t.problem_id].items())]
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
        environment=made_with,
    )
    files.write_table(layout.samples(policy.name, dataset, shard), columns, records.SAMPLE, source)
