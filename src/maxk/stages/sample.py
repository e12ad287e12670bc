"""maxk sample POLICY --shard I: samples completions for one shard of the test problems of every evaluated dataset.

One process samples for all datasets, so the model is loaded once and GPU memory is released at the end. Samples are
kept in a journal (`maxk.artifacts.journal`), so a restarted job, or one with a larger n or more problems, draws only
what is missing; one with a smaller n draws nothing. A backend that does not measure entropies as it draws leaves them
to a pass (`maxk.sampling.entropy`), when the samples are drawn and its memory is free; these have their own journal.

    maxk sample base --shard 0 --config results/config.json
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from maxk import config as configuration
from maxk import tracking
from maxk.artifacts import environment, files, journal, models, records
from maxk.artifacts.digests import digest_of
from maxk.artifacts.journal import Columns, Journal
from maxk.artifacts.records import Policy, Provenance, Task
from maxk.config import Config
from maxk.errors import UserError, counted
from maxk.progress import Progress
from maxk.resources import gpus, launcher

if TYPE_CHECKING:
    from maxk import sampling


class Sample(NamedTuple):
    """The part of a completion that is kept in memory."""

    text: str
    n_tokens: int
    finish_reason: str


Numbered = dict[str, dict[int, Any]]  # by problem id and sample number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("policy", help="`base` or OBJECTIVE/seedS")
    parser.add_argument("--shard", type=int, default=0)


def run(args: argparse.Namespace) -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from maxk import sampling

    environment.arrow_without_pandas()
    config = configuration.load(args.config)
    config.require_policy(args.policy)
    launcher.clear()
    sampling.require_installed("sampling.backend", config.sampling.backend)
    policy = files.read_policy(config.layout.policy(args.policy))
    mine = share_of(config, args.shard)
    tasks = {name: _tasks(config, name, mine) for name in config.evaluated}
    job = _Job(config, policy, [task for share in tasks.values() for task in share])
    job.write_prompts(args.shard)
    if job.has_work:  # otherwise it needs no GPU and does not wait for one
        gpus.hold(config.sampling.gpus if config.gpus else 0, config.sampling.gpu)
    with tracking.stage(config, "sample", policy=policy.name, shard=str(args.shard)) as run:
        run.params({**config.settings("sample"), "n": config.sampling.n})
        job.draw()
        job.measure()
        for dataset, share in tasks.items():
            job.write(dataset, args.shard, share)
        _track(run, job.samples)
        _warn_of_lost_programs(policy, job.samples)


def share_of(config: Config, shard: int) -> slice:
    """The shard's part of a dataset's test problems: every `shards`-th."""
    if not 0 <= shard < config.sampling.shards:
        raise UserError(
            f"--shard {shard}: sampling.shards={config.sampling.shards} allows 0 … {config.sampling.shards - 1}"
        )
    return slice(shard, None, config.sampling.shards)


def _tasks(config: Config, dataset: str, share: slice) -> list[Task]:
    return files.read_tasks(config.layout.problems(dataset), "test")[share]


def _track(run: tracking.Run, samples: Sequence[Sample]) -> None:
    run.metrics({"completions": len(samples)})
    if samples:  # a shard may have no problem
        run.metrics({"mean_tokens": sum(one.n_tokens for one in samples) / len(samples)})
        for name, reason in (("truncated", "length"), ("stopped", "stop_string")):
            run.metrics({name: sum(one.finish_reason == reason for one in samples) / len(samples)})


def _warn_of_lost_programs(policy: Policy, samples: Sequence[Sample]) -> None:
    """Warns if completions stopped before a program: other blocks came first, or the block names no language."""
    from maxk.grading import extract_program

    stopped = [one.text for one in samples if one.finish_reason == "stop_string"]
    lost = sum(extract_program(text).program is None for text in stopped)
    if lost:
        print(
            f"{policy.name}: {lost} of {len(samples)} completions were stopped by sampling.stop and hold no "
            "program; set sampling.stop and training.stop to [], or ask for one ```python block in prompt.template",
            file=sys.stderr,
        )


class _Job:
    """The samples of a shard: what earlier jobs have drawn and measured of them, and what is missing."""

    def __init__(self, config: Config, policy: Policy, tasks: Sequence[Task]) -> None:
        from maxk import sampling
        from maxk.data import prompts

        environment.quiet_libraries()
        self.config, self.policy, self.tasks = config, policy, tasks
        self.tokenizer = models.tokenizer(policy.model, policy.revision)
        self.prompts = {
            task.problem_id: prompts.render(task.statement, config.prompt, self.tokenizer) for task in tasks
        }
        self.digests = {problem_id: digest_of(prompt) for problem_id, prompt in self.prompts.items()}
        self.drawn: Numbered = {task.problem_id: {} for task in tasks}
        self.entropies: Numbered = {task.problem_id: {} for task in tasks}
        self.past, self.past_entropies = _journals(config, policy)
        self.environments = [*self._recalled()]
        self.requests = sampling.requests(tasks, list(self.prompts.values()), policy.name, config.sampling, self.drawn)
        if self.requests:  # before a GPU is taken and the model loaded
            sampling.encode(
                self.requests, self.tokenizer, config.sampling, sampling.context_limit(policy, config.sampling)
            )

    def _recalled(self) -> Iterator[journal.Environment]:
        """Keeps what earlier jobs have drawn and measured; yields the environments in which that was made.

        In the order of writing: an entropy that is older than its sample is of another one, lost with a killed job.
        """
        asked = [self.past, *([self.past_entropies] if self.config.sampling.entropy else [])]
        for stored, batch, made in journal.in_order(*asked):
            if stored is self.past and self._keep(batch.select(_KEPT).to_pydict()):
                yield self._used(made)
            elif stored is self.past_entropies and self._keep_entropies(batch.to_pydict()):
                yield made

    @property
    def samples(self) -> list[Sample]:
        return [sample for one in self.drawn.values() for sample in one.values()]

    @property
    def has_work(self) -> bool:
        return bool(self.requests) or (self.config.sampling.entropy and self._unmeasured > 0)

    @property
    def _unmeasured(self) -> int:
        return sum(map(len, self.drawn.values())) - sum(map(len, self.entropies.values()))

    # ---- drawing
    def draw(self) -> None:
        """Draws what is missing; loads the model only then."""
        from maxk import sampling

        recorded = {"backend": self.config.sampling.backend, **environment.versions()}
        if not self.requests:
            self.environments = self.environments or [recorded]
            return
        if self.config.sampling.backend == "transformers":
            self._limit_memory()
        with closing(sampling.BACKENDS[self.config.sampling.backend](self.policy, self.config.sampling)) as backend:
            parts: Iterator[Columns] = map(self._columns, backend.sample(self.requests))

            def made() -> dict[str, Any]:  # vLLM knows its facts once it runs
                way = f"{backend.facts['device']} {backend.facts['dtype']}, while drawing" if backend.measures else None
                return {**recorded, **backend.facts, **({"entropy": way} if way else {})}

            count = sum(request.count for request in self.requests)
            with Progress(count, f"sample {self.policy.name}") as progress:
                for part in self.past.record(parts, made):
                    progress.advance(self._keep(part))
            self.environments.append(made())

    def _used(self, made: journal.Environment) -> journal.Environment:
        """The environment of a batch of samples, without that of their entropies where these are not asked for."""
        return {key: value for key, value in made.items() if key != "entropy" or self.config.sampling.entropy}

    def _columns(self, done: sampling.Drawn) -> dict[str, list[Any]]:
        """Finished requests as columns of `records.DRAWN`."""
        rows = [
            (r.problem_id, number, text, len(tokens), reason, self.digests[r.problem_id], tokens, entropy)
            for r, completions in done
            for number, (text, tokens, reason, entropy) in enumerate(completions, r.first)
        ]
        return _transposed(rows, records.DRAWN.names)

    def _keep(self, columns: Columns) -> int:
        """Adds the completions that are needed and were drawn for the current prompt; returns how many it added."""
        kept = 0
        for problem_id, number, *sample, digest, entropy in zip(*(columns[name] for name in _KEPT), strict=True):
            if self._needs(problem_id, number, digest) and number not in self.drawn[problem_id]:
                self.drawn[problem_id][number] = Sample(*sample)
                if entropy is not None and self.config.sampling.entropy:
                    self.entropies[problem_id][number] = entropy
                kept += 1
        return kept

    def _needs(self, problem_id: str, number: int, digest: str) -> bool:
        return self.digests.get(problem_id) == digest and number < self.config.sampling.n

    # ---- measuring
    def measure(self) -> None:
        """Measures the entropies that are missing."""
        from maxk.sampling.entropy import Entropies

        if not self.config.sampling.entropy or not self._unmeasured:
            return
        self._limit_memory()
        entropies = Entropies(self.policy, self.config.sampling)
        with Progress(self._unmeasured, f"entropies of {self.policy.name}") as progress:
            for part in self.past_entropies.record(self._measured(entropies), lambda: entropies.facts):
                progress.advance(self._keep_entropies(part))
        self.environments.append(entropies.facts)

    def _measured(self, entropies: Any) -> Iterator[Columns]:
        """Columns of `records.MEASURED` for those batches of the journal that have samples without an entropy.

        Batch by batch as they were drawn, so that a resumed job rounds as an uninterrupted one does.
        """
        from maxk import sampling

        ids = {name: sampling.prompt_ids(prompt, self.tokenizer) for name, prompt in self.prompts.items()}
        for batch, _ in self.past.read():
            rows = [row for row in batch.to_pylist() if self._lacks_entropy(*(row[name] for name in _KEY))]
            if rows:
                means = entropies([(ids[row["problem_id"]], row["tokens"]) for row in rows])
                found = [(*(row[name] for name in _KEY), mean) for row, mean in zip(rows, means, strict=True)]
                yield _transposed(found, records.MEASURED.names)

    def _keep_entropies(self, columns: Columns) -> int:
        """Adds the entropies that samples lack; returns how many it added."""
        kept = 0
        for *key, entropy in zip(*(columns[name] for name in records.MEASURED.names), strict=True):
            problem_id, number, _ = key
            if self._lacks_entropy(*key):
                self.entropies[problem_id][number] = entropy
                kept += 1
        return kept

    def _lacks_entropy(self, problem_id: str, number: int, digest: str) -> bool:
        """Whether the sample is needed and drawn, and its entropy is not known."""
        drawn = self._needs(problem_id, number, digest) and number in self.drawn[problem_id]
        return drawn and number not in self.entropies[problem_id]

    def _limit_memory(self) -> None:
        """Limits this process to the job's fraction of a GPU. (vLLM's engine is a separate process.)"""
        if self.config.gpus and self.config.sampling.gpu < 1:
            gpus.limit_memory(self.config.sampling.gpu)

    # ---- writing
    def write_prompts(self, shard: int) -> None:
        """Stores the rendered prompts, one file per dataset; before the samples, whose files mark the job as done."""
        config = self.config
        for dataset in config.evaluated:
            names = [task.problem_id for task in self.tasks if task.dataset == dataset]
            columns = {"problem_id": names, "prompt": [self.prompts[name] for name in names]}
            source = Provenance("sample", config.name, config.settings("sample"))
            files.write_table(config.layout.prompts(self.policy.name, dataset, shard), columns, records.PROMPT, source)

    def write(self, dataset: str, shard: int, tasks: Sequence[Task]) -> None:
        """Writes the samples of a dataset, n of every task."""
        config, layout = self.config, self.config.layout
        for task in tasks:
            got = len(self.drawn[task.problem_id])
            if got != config.sampling.n:
                raise UserError(
                    f"{self.policy.name}, {dataset}, {task.problem_id}: {counted(got, 'completion')}, expected "
                    f"n={config.sampling.n}"
                )
        source = Provenance(
            stage="sample",
            experiment=config.name,
            settings=config.settings("sample"),
            inputs={"problems": files.digest(layout.problems(dataset)), "policy": digest_of(self.policy.lineage)},
            environment=journal.common(self.environments),
        )
        columns = _transposed(list(self._rows(tasks)), records.SAMPLE.names)
        files.write_table(layout.samples(self.policy.name, dataset, shard), columns, records.SAMPLE, source)

    def _rows(self, tasks: Sequence[Task]) -> Iterator[tuple[Any, ...]]:
        for task in tasks:
            entropies = self.entropies[task.problem_id]
            for number, sample in sorted(self.drawn[task.problem_id].items()):
                yield task.problem_id, number, *sample, entropies.get(number)


_KEPT = [name for name in records.DRAWN.names if name != "tokens"]
_KEY = ("problem_id", "sample_index", "prompt_digest")


def _transposed(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _journals(config: Config, policy: Policy) -> tuple[Journal, Journal]:
    """The journals of all samples of this policy with these settings, and of their entropies, shared by all shards."""
    from maxk import sampling

    settings = config.settings("sample")
    del settings["sampling"]["entropy"]  # it does not change the samples
    dtype = sampling.dtype_of(config.sampling, on_gpu=bool(config.gpus))
    inputs = {"policy": digest_of(policy.lineage), "weights": _weights(config, policy), "dtype": dtype}
    source, digest = Provenance("sample", config.name, settings, inputs), digest_of([settings, inputs])
    layout = config.layout
    drawn = Journal(Path(layout.drawn(policy.name, digest)), records.DRAWN, source)
    return drawn, Journal(Path(layout.measured(policy.name, digest)), records.MEASURED, source)


def _weights(config: Config, policy: Policy) -> str:
    """Identifies the weights: a digest of the model's files, or the commit on the hub."""
    weights = models.digest(policy.model, config.layout.input_digests) or str(policy.revision)
    if policy.lineage.get("weights", "pretrained") not in ("pretrained", weights):
        raise UserError(f"{policy.model}: not the files that `maxk base` recorded; run `maxk base` again")
    return weights
