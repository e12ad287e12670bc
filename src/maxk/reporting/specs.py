"""Which tables and figures an experiment has: names, titles, columns and rows, without any numbers.

Light (no numpy), because the Snakefile asks it which files its rules make. Tables are numbered as in the paper: four of
all datasets, then pass@k and max@k of each dataset; figures 1 and 2 are the paper's, the others have names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from maxk.artifacts.paths import BASE
from maxk.config import Config
from maxk.errors import UserError

MEAN = "mean"  # the pseudo-dataset of the mean over datasets

FIGURES = {
    "figure1": "pass@k of the base model and of GRPO",
    "figure2": "Entropy of completions, before and after training",
    "max_at_k": "max@k of all policies",
    "max_at_k_grid": "max@k of every policy on every dataset",
    "training": "Reward, KL and entropy during training",
    "ratios": "How far updates are off-policy",
}


@dataclass(frozen=True)
class Column:
    """Where a column's numbers come from: a dataset (or `mean`) and a quantity such as "max@128"."""

    dataset: str
    quantity: str
    header: str


@dataclass(frozen=True)
class Spec:
    """A table's declaration. `rows` None means every policy of the main tables; else some may be of experiments."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[str, ...] | None = None


def tables(config: Config) -> dict[str, Spec]:
    """All tables of an experiment by name, in the paper's order; two for each dataset from table 5 on."""
    headline = f"max@{config.report.headline_k}"
    both = (1, config.report.headline_k)
    listed = [
        Spec(
            "table1",
            "Binary against continuous reward: pass@k of the base model and of GRPO",
            _per_dataset(config, [f"pass@{k}" for k in both]),
            (BASE, "grpo", "grpo_binary"),
        ),
        Spec("table2", f"{headline} of all policies", _per_dataset(config, [headline])),
        Spec("table3", "max@1 of all policies", _per_dataset(config, ["max@1"])),
        Spec(
            "table4",
            f"max@1 and {headline} of GRPO, by epochs and PPO iterations",
            _per_dataset(config, [f"max@{k}" for k in both]),
            (BASE, *_longer_training(config)),
        ),
    ]
    for dataset in config.evaluated:
        for metric in ("pass", "max"):
            columns = tuple(Column(dataset, q, q) for q in (f"{metric}@{k}" for k in config.report.ks))
            title = f"{metric}@k on {dataset} for different values of k"
            listed.append(Spec(f"table{len(listed) + 1}", title, columns))
    return {spec.name: spec for spec in listed}


def _longer_training(config: Config) -> Iterator[str]:
    """GRPO as in the main tables, and trained for more epochs or PPO iterations, at whatever learning rate."""
    varied = {"epochs", "iterations", "learning_rate"}
    for name, objective in config.every_objective.items():
        if objective.spec == {"type": "grpo"} and objective.training.keys() <= varied:
            yield name


def made_by_experiments(config: Config, spec: Spec) -> list[str]:
    """Rows of a table that only an experiment trains, as far as all of their scores are there."""
    rows = [row for row in spec.rows or () if config.owner(row) is not None]
    return [row for row in rows if all(Path(path).exists() for path in config.scores(config.seeded(row)))]


def _per_dataset(config: Config, quantities: Sequence[str]) -> tuple[Column, ...]:
    places = (*config.evaluated, MEAN)
    if len(quantities) == 1:
        return tuple(Column(place, quantities[0], place) for place in places)
    return tuple(Column(place, q, f"{place} {q}") for place in places for q in quantities)


def table(config: Config, name: str) -> Spec:
    """The declaration of a table. Raises UserError where the experiment has no such table."""
    known = tables(config)
    if name not in known:
        raise UserError(
            f"no table {name!r}; this experiment has table1 … table{len(known)} (two for each of its "
            f"{len(config.evaluated)} evaluated datasets from table5 on)"
        )
    return known[name]
