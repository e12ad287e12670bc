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
        return f"{self.root}/config.json"

    @property
    def tracking(self) -> str:
        return f"{self.root}/tracking.json"

    def verdict_cache(self, host: str) -> str:
        """A machine's own: SQLite's log is shared through memory, which machines that share a folder do not."""
        return f"{self.root}/cache/verdicts-{host}.sqlite"

    def problems(self, dataset: str) -> str:
        return f"{self.root}/data/{dataset}/problems.parquet"

    def funnel(self, dataset: str) -> str:
        return f"{self.root}/data/{dataset}/funnel.json"

    def policy(self, policy: str) -> str:
        return f"{self.root}/policies/{policy}/policy.json"

    def metrics(self, policy: str) -> str:
        return f"{self.root}/policies/{policy}/metrics.jsonl"

    def samples(self, policy: str, dataset: str, shard: int | str) -> str:
        return f"{self.root}/samples/{policy}/{dataset}/{shard}.parquet"

    def prompts(self, policy: str, dataset: str, shard: int | str) -> str:
        return f"{self.root}/samples/{policy}/{dataset}/{shard}.prompts.parquet"

    def verdicts(self, policy: str, dataset: str, shard: int | str) -> str:
        return f"{self.root}/verdicts/{policy}/{dataset}/{shard}.parquet"

    def scores(self, policy: str, dataset: str) -> str:
        return f"{self.root}/scores/{policy}/{dataset}.parquet"

    def table(self, name: str, suffix: str = "csv") -> str:
        return f"{self.root}/{name}.{suffix}"

    def figure(self, name: str, suffix: str = "png") -> str:
        return f"{self.root}/{name}.{suffix}"

    def page(self, name: str) -> str:
        """A page of the report, as HTML."""
        return f"{self.root}/report/{name}.html"

    @property
    def report(self) -> str:
        return f"{self.root}/report.html"

    @property
    def summary(self) -> str:
        return f"{self.root}/summary.md"

    def experiment(self, name: str, suffix: str) -> str:
        return f"{self.root}/experiments/{name}.{suffix}"

    @property
    def statistics(self) -> str:
        return f"{self.root}/statistics.csv"

    def log(self, stage: str, *parts: str) -> str:
        return "/".join([f"{self.root}/logs", stage, *parts]) + ".log"

    def benchmark(self, stage: str, *parts: str) -> str:
        return "/".join([f"{self.root}/benchmarks", stage, *parts]) + ".tsv"
