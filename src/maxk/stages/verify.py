"""`maxk verify POLICY --shard I`: grades the programs in a shard's samples on their problems' tests.

Identical programs for a problem are graded once, even across policies (the verdict cache). A completion without an
extractable program is `unparseable` on every test.

    maxk verify base --shard 0 --config results/config.json
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any

from maxk import config as configuration
from maxk import tracking
from maxk.artifacts import environment, files, records
from maxk.artifacts.digests import digest_of_text
from maxk.artifacts.records import Provenance
from maxk.config import Config
from maxk.progress import Progress
from maxk.stages.sample import share_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("policy", help="`base` or OBJECTIVE/seedS")
    parser.add_argument("--shard", type=int, default=0)


def run(args: argparse.Namespace) -> None:
    from maxk.evaluation import problem_grader

    environment.arrow_without_pandas()
    config = configuration.load(args.config)
    config.require_policy(args.policy)
    with tracking.stage(config, "verify", policy=args.policy, shard=str(args.shard)) as run:
        run.params(config.settings("verify"))
        with problem_grader.grader(config) as grader:
            grader.canary()
            run.tag("maxk.sandbox", grader.tier)
            for dataset in config.evaluated:
                fractions = _verify(config, args.policy, dataset, args.shard, grader)
                run.metrics({f"{dataset}/{status}": value for status, value in fractions.items()})
            for complaint in grader.stats.complaints():
                print(complaint, file=sys.stderr)


def _verify(config: Config, policy: str, dataset: str, shard: int, grader: Any) -> dict[str, float]:
    """Writes the verdicts of one dataset; returns the fraction of tests with each status."""
    from maxk.evaluation import problem_grader

    layout = config.layout
    source = layout.samples(policy, dataset, shard)
    samples = files.read_table(source, records.SAMPLE)
    tasks = files.read_problems(layout.problems(dataset), "test", share_of(config, shard))
    problems = {problem.problem_id: problem for problem in tasks}
    extractions = _extractions(samples.column("completion"))
    problem_ids = samples.column("problem_id").to_pylist()
    pairs = list(zip(problem_ids, (extraction.program for extraction in extractions), strict=True))
    repeats = Counter(pairs)  # equal programs of a problem are graded once
    distinct, limits = list(repeats), problem_grader.limits(config)
    submissions = (problem_grader.submission(program, problems[name], limits) for name, program in distinct)
    verdicts: dict[tuple[str, str | None], Any] = {}
    with Progress(len(pairs), f"verify {policy} {dataset}") as progress:
        for position, verdict in grader.grade_iter(submissions):
            verdicts[distinct[position]] = verdict
            progress.advance(repeats[distinct[position]])
    digests = {program: digest_of_text(program) for _, program in distinct if program is not None}
    columns = {
        "problem_id": samples.column("problem_id"),
        "sample_index": samples.column("sample_index"),
        "extraction": [extraction.status for extraction in extractions],
        "statuses": [verdicts[pair].statuses for pair in pairs],
        "program": [digests.get(program) for _, program in pairs],
        "outputs": [verdicts[pair].outputs for pair in pairs],
    }
    provenance = Provenance(
        stage="verify",
        experiment=config.name,
        settings=config.settings("verify"),
        inputs={"samples": files.digest(source), "problems": files.digest(layout.problems(dataset))},
        environment={"sandbox": grader.tier, **_place(config, shard), **environment.versions()},
    )
    files.write_table(layout.verdicts(policy, dataset, shard), columns, records.VERDICT_AND_OUTPUTS, provenance)
    counts = Counter(status for statuses in columns["statuses"] for status in statuses)
    return {status: count / counts.total() for status, count in counts.items()}


def _extractions(completions: Any) -> list[Any]:
    """The extraction of every completion of a column; equal texts are read once."""
    from maxk.grading import extract_program

    texts = completions.to_pylist()
    found = {text: extract_program(text) for text in dict.fromkeys(texts)}
    return [found[text] for text in texts]


def _place(config: Config, shard: int) -> dict[str, int]:
    """Lets a reader of the verdicts alone find missing shards (`maxk.evaluation.verdict_shards`)."""
    return {"shard": shard, "shards": config.sampling.shards, "n": config.sampling.n}
