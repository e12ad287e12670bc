"""Every path under `results/` of an experiment.

The same methods serve the code (`layout.samples("base", "pocket-contests", 0)`) and Snakemake, which passes wildcards
(`layout.samples("{policy}", "{dataset}", "{shard}")`). A policy's name is `base` or `{objective}/seed{seed}`, which is
also its folder. `{objective}@{i}/seed{seed}` is the same training at its i-th milestone.
"""

from __future__ import annotations

from dataclasses import dataclass

BASE = "base"
POLICY_PATTERN = rf"{BASE}|[A-Za-z0-9_.-]+(@\d+)?/seed\d+"


def policy_name(objective: str, seed: int | str) -> str:
    """The name of the policy trained with `objective` from `seed`."""
    return f"{objective}/seed{seed}"


def at_milestone(objective: str, number: int | str) -> str:
    """The row of an objective's policies as they were at a milestone of their training."""
    return f"{objective}@{number}"


def trained(name: str) -> str:
    """The row or policy whose training made this one: `grpo/seed0` for `grpo@1/seed0`, `grpo` for `grpo@1`."""
    objective, slash, seed = name.partition("/")
    return f"{objective.partition('@')[0]}{slash}{seed}"


@dataclass(frozen=True)
class Layout:
    """Paths of one experiment's files; `root` is `results` or `results/{name}`."""

    root: str = "results"

    @property
    def config(self) -> str:
        """The validated configuration with all defaults; every stage reads it."""
        return f"{self.root}/config.json"

    @property
    def tracking(self) -> str:
        """Where this experiment's MLflow runs are, and which events were sent to them."""
        return f"{self.root}/tracking.json"

    @property
    def events_folder(self) -> str:
        """What all jobs log for MLflow."""
        return f"{self.root}/logs/tracking"

    def events(self, job: str) -> str:
        """What a job logs for MLflow, one JSON object per line."""
        return f"{self.events_folder}/{job}.jsonl"

    def verdict_cache(self, host: str) -> str:
        """Verdicts of programs graded before, per machine: SQLite's write-ahead log does not work over a network."""
        return f"{self.root}/cache/verdicts-{host}.sqlite"

    @property
    def input_digests(self) -> str:
        """Digests of local models and data, so that gigabytes are read once per change and not once per job."""
        return f"{self.root}/cache/inputs.json"

    def problems(self, dataset: str) -> str:
        """Problems of a dataset, with both splits."""
        return f"{self.root}/data/{dataset}/problems.parquet"

    def funnel(self, dataset: str) -> str:
        """Rows left after every filter, in order."""
        return f"{self.root}/data/{dataset}/funnel.json"

    def policy(self, policy: str) -> str:
        """A policy: the place of its weights, and its lineage. Written last: it exists only for a complete policy."""
        return f"{self.root}/policies/{policy}/policy.json"

    def metrics(self, policy: str) -> str:
        """Training log, one line per optimiser step."""
        return f"{self.root}/policies/{policy}/metrics.jsonl"

    def samples(self, policy: str, dataset: str, shard: int | str) -> str:
        """Completions of a policy for the test problems of a shard."""
        return f"{self.root}/samples/{policy}/{dataset}/{shard}.parquet"

    def drawn(self, policy: str, digest: str) -> str:
        """Folder of the completions that sampling jobs with the same settings have drawn so far (a journal)."""
        return f"{self.root}/drawn/{policy}/{digest}"

    def measured(self, policy: str, digest: str) -> str:
        """Folder of the entropies of these completions (a journal)."""
        return f"{self.drawn(policy, digest)}/entropy"

    def prompts(self, policy: str, dataset: str, shard: int | str) -> str:
        """Rendered prompts, one row per problem."""
        return f"{self.root}/samples/{policy}/{dataset}/{shard}.prompts.parquet"

    def verdicts(self, policy: str, dataset: str, shard: int | str) -> str:
        """The status of every test, one row per completion."""
        return f"{self.root}/verdicts/{policy}/{dataset}/{shard}.parquet"

    def scores(self, policy: str, dataset: str) -> str:
        """Rewards, max@k and pass@k, one row per problem."""
        return f"{self.root}/scores/{policy}/{dataset}.parquet"

    def table(self, name: str, suffix: str = "csv") -> str:
        """A table: plain numbers (csv), Markdown (md) or LaTeX (tex)."""
        return f"{self.root}/{name}.{suffix}"

    def figure(self, name: str, suffix: str = "png") -> str:
        """A figure, as png or pdf."""
        return f"{self.root}/{name}.{suffix}"

    def written(self, path: str) -> str:
        """The digests of a file as it was written, and of the scores that it was made from."""
        return f"{self.root}/logs/written/{path.removeprefix(f'{self.root}/')}"

    @property
    def report(self) -> str:
        """The whole run as one HTML page that needs no network."""
        return f"{self.root}/report.html"

    @property
    def summary(self) -> str:
        """One page on the run, as Markdown."""
        return f"{self.root}/summary.md"

    def experiment(self, name: str, suffix: str) -> str:
        """Table or figure of an entry of `experiments`."""
        return f"{self.root}/experiments/{name}.{suffix}"

    def log(self, stage: str, *parts: str) -> str:
        """Log of a job."""
        return "/".join([f"{self.root}/logs", stage, *parts]) + ".log"

    def benchmark(self, stage: str, *parts: str) -> str:
        """Time and memory of a job, measured by Snakemake."""
        return "/".join([f"{self.root}/benchmarks", stage, *parts]) + ".tsv"


def command(layout: Layout, *targets: str) -> str:
    """The command that makes files of an experiment that was run before, as part of an error."""
    config = [] if layout.root == "results" else ["--configfile", layout.config]
    return " ".join(["snakemake", *config, "--cores", "all", *targets])
