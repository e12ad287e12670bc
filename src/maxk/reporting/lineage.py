"""What made an experiment's results, for the report: policies, versions, problems, run times, configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from maxk.artifacts import files, journal
from maxk.artifacts.paths import Layout
from maxk.config import Config
from maxk.config.messages import brief
from maxk.data import SPLITS
from maxk.reporting import markdown

# Stages by what they need, those side by side that may run at the same time.
GRAPH = (
    ("prepare", "base"),
    ("train",),
    ("sample",),
    ("verify",),
    ("score",),
    ("table", "experiment"),
    ("figure", "summary"),
    ("report",),
)


def policies(config: Config) -> str:
    """Keys, labels, objectives and training settings, as a table."""
    lines = markdown.head(["key", "row in tables", "objective", "training"], words=4)
    for name, objective in config.objectives.items():
        training = brief(objective.training) or "as configured"
        lines.append(markdown.row(map(markdown.escape, (name, config.label(name), brief(objective.spec), training))))
    return "\n".join(lines)


def versions(config: Config) -> dict[str, str]:
    """Versions that the policies were made with; several where they differ."""
    paths = [Path(config.layout.policy(policy)) for policy in config.policies]
    return journal.common(files.read_policy(path).environment for path in paths if path.exists())


def funnels(config: Config) -> dict[str, str]:
    """By dataset, the problems left after every filter, and those of the splits that are drawn from them."""
    paths = {dataset: Path(config.layout.funnel(dataset)) for dataset in config.datasets}
    return {dataset: _funnel(files.read_json(path)) for dataset, path in paths.items() if path.exists()}


def _funnel(counts: Mapping[str, int]) -> str:
    filters = [f"{step.replace('_', ' ')} {rows}" for step, rows in counts.items() if step not in SPLITS]
    splits = [f"{rows} {split}" for split, rows in counts.items() if split in SPLITS]
    return f"{' → '.join(filters)}: {', '.join(splits)}"


def configuration(config: Config) -> str:
    """The whole configuration as YAML."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def stages(layout: Layout) -> dict[str, Any]:
    """By stage with a recorded job: jobs, and their times in seconds (`wall`, `cpu`, `longest`); some ran in parallel.

    From Snakemake's benchmark files. CPU time is a lower bound: Snakemake samples a job's processes every 0.5 s, from
    about 15 s on every 30 s. It misses what follows the last sample, and processes that end between two samples:
    programs under test. `getrusage` would miss these too: bubblewrap does not wait for the process that starts them.
    """
    folder = Path(layout.root, "benchmarks")
    jobs = [
        pd.read_csv(path, sep="\t", na_values="-").assign(stage=path.relative_to(folder).parts[0].removesuffix(".tsv"))
        for path in sorted(folder.rglob("*.tsv"))
        if path.stat().st_size  # else of a killed job
    ]
    if not jobs:
        return {}
    sums = {"jobs": ("s", "size"), "wall": ("s", "sum"), "cpu": ("cpu_time", "sum"), "longest": ("s", "max")}
    return {str(name): row for name, row in pd.concat(jobs).groupby("stage").agg(**sums).to_dict("index").items()}
