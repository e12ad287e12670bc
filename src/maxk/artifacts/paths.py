"""Every path under `results/`, once.

The same methods serve the code (`layout.samples("base", "pocket-contests", 0)`) and Snakemake, which passes its
wildcards instead of values (`layout.samples("{policy}", "{dataset}", "{shard}")`).

A policy's name is `base` or `{objective}/seed{seed}`, so that a policy's files stand in one folder of that name.
"""

from __future__ import annotations

from dataclasses import dataclass

BASE = "base"
POLICY_PATTERN = rf"{BASE}|[A-Za-z0-9_.-]+/seed\d+"


def policy_name(objective: str, seed: int | str) -> str:
    """The name of the policy trained with `objective` from `seed`."""
    return f"{objective}/seed{seed}"


@dataclass(frozen=True)
class Layout:
    """Where one experiment keeps its files; `root` is `results` or `results/{experiment}`."""

    root: str = "results"

    @property
    def config(self) -> str:
        """The validated configuration with every default filled in; all stages read it."""
        return f"{self.root}/config.json"

    @property
    def tracking(self) -> str:
        """Where this experiment's MLflow runs are, and which records were sent to them."""
        return f"{self.root}/tracking.json"

    @property
    def records_folder(self) -> str:
        """Records of all jobs for MLflow."""
        return f"{self.root}/logs/tracking"

    def records(self, job: str) -> str:
        """Records of a job for MLflow, one JSON object per line."""
        return f"{self.records_folder}/{job}.jsonl"

    def verdict_cache(self, host: str) -> str:
        """Verdicts of programs graded before, by machine: SQLite's log is shared through memory, not over a network."""
        return f"{self.root}/cache/verdicts-{host}.sqlite"

    def problems(self, dataset: str) -> str:
        """Problems of a dataset, both splits."""
        return f"{self.root}/data/{dataset}/problems.parquet"

    def funnel(self, dataset: str) -> str:
        """Rows that were left after every filter, in order."""
        return f"{self.root}/data/{dataset}/funnel.json"

    def policy(self, policy: str) -> str:
        """A policy: where its weights are, and its lineage. Written last: it exists when the policy is complete."""
        return f"{self.root}/policies/{policy}/policy.json"

    def metrics(self, policy: str) -> str:
        """Everything logged in every optimiser step, a line a step."""
        return f"{self.root}/policies/{policy}/metrics.jsonl"

    def samples(self, policy: str, dataset: str, shard: int | str) -> str:
        """Completions of a policy for a shard's share of the test problems."""
        return f"{self.root}/samples/{policy}/{dataset}/{shard}.parquet"

    def prompts(self, policy: str, dataset: str, shard: int | str) -> str:
        """What the policy read, a row a problem."""
        return f"{self.root}/samples/{policy}/{dataset}/{shard}.prompts.parquet"

    def verdicts(self, policy: str, dataset: str, shard: int | str) -> str:
        """The status of every test, a row a completion."""
        return f"{self.root}/verdicts/{policy}/{dataset}/{shard}.parquet"

    def scores(self, policy: str, dataset: str) -> str:
        """Rewards, max@k and pass@k, a row a problem."""
        return f"{self.root}/scores/{policy}/{dataset}.parquet"

    def table(self, name: str, suffix: str = "csv") -> str:
        """A table: plain numbers (csv), Markdown (md) or LaTeX (tex)."""
        return f"{self.root}/{name}.{suffix}"

    def figure(self, name: str, suffix: str = "png") -> str:
        """A figure, as png or pdf."""
        return f"{self.root}/{name}.{suffix}"

    def page(self, name: str) -> str:
        """A page of the report, as HTML."""
        return f"{self.root}/report/{name}.html"

    @property
    def report(self) -> str:
        """The whole run as one HTML file."""
        return f"{self.root}/report.html"

    @property
    def summary(self) -> str:
        """One page on the run, as Markdown."""
        return f"{self.root}/summary.md"

    def experiment(self, name: str, suffix: str) -> str:
        """The answer to a question in `experiments`: csv, md and figures."""
        return f"{self.root}/experiments/{name}.{suffix}"

    @property
    def statistics(self) -> str:
        """Bootstrap intervals of every number in the tables."""
        return f"{self.root}/statistics.csv"

    def log(self, stage: str, *parts: str) -> str:
        """Output of a job."""
        return "/".join([f"{self.root}/logs", stage, *parts]) + ".log"

    def benchmark(self, stage: str, *parts: str) -> str:
        """A job's seconds, CPU and memory, as Snakemake measured them."""
        return "/".join([f"{self.root}/benchmarks", stage, *parts]) + ".tsv"
