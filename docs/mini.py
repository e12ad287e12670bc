"""Prints the tables of README.md and docs/results-mini.md on the planned run, from its committed files.

    python docs/mini.py

docs/plan-mini.md says which seeds count. For GRPO and BoN mean, the pair of the primary outcome, these are all that
both have finished; for the other policies, and for GRPO beside them, those that all six have finished. No number is
written here.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maxk import config as configuration
from maxk import statistics
from maxk.artifacts.paths import BASE, policy_name
from maxk.config import Config
from maxk.reporting import MEAN, diversity, estimates, load, markdown, training_log
from maxk.reporting.load import Scores
from maxk.statistics import Floats

PLANNED = Path(__file__).parent.resolve() / "results-mini" / "planned"
PAIR = ("bon_mean", "grpo")
PRIMARY = ("bon_mean", 128)  # on MBPP, not part of a family of tests
NAMES = {"mbpp": "MBPP", "humaneval": "HumanEval", "apps": "APPS", MEAN: "mean of the three"}
MEANS = {"mbpp": (1, 8, 32, 128, 256), "humaneval": (1, 128), "apps": (1, 128)}
KS = (1, 8, 128)
LOGGED = {"reward": "reward", "entropy": "entropy, nats", "kl": "KL to the base model"}
LAST = 12  # batches


def main() -> None:
    """Prints all tables."""
    config = configuration.load(str(PLANNED / "config.json"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        root = Path(config.layout.root)
        root.parent.mkdir()
        root.symlink_to(PLANNED)
        print("\n\n".join("\n".join(table) for table in tables(config)))


def tables(config: Config) -> Iterator[Iterator[str]]:
    """Every table as lines of Markdown."""
    pair, every = (
        load.load(config.model_copy(update={"seeds": finished(config, policies)}))
        for policies in (PAIR, tuple(config.objectives))
    )
    yield headline(pair, every, config)
    yield means(pair, every)
    yield of_the_pair(pair, config)
    yield to_grpo(pair, every, config)
    yield to_bon_mean(every, config)
    yield trainings(config)
    yield solved(pair, every)


def finished(config: Config, policies: Sequence[str]) -> tuple[int, ...]:
    """Training seeds for which all of these policies have scores on every dataset."""

    def scored(seed: int) -> bool:
        names = [policy_name(one, seed) for one in policies]
        return all(Path(config.layout.scores(name, one)).exists() for name in names for one in config.evaluated)

    return tuple(filter(scored, config.seeds))


def chosen(row: str, pair: Scores, every: Scores) -> Scores:
    """The scores, of the seeds that count, of a policy."""
    return pair if row in PAIR else every


# ---- tables


def headline(pair: Scores, every: Scores, config: Config) -> Iterator[str]:
    """MBPP in short."""
    names = ["policy", "seeds", *(f"max@{k}" for k in KS), "max@128 − GRPO", "by seed"]
    yield from markdown.head(names)
    for row in every.rows:
        scores = chosen(row, pair, every)
        cells = [str(len(scores.cells[row, "mbpp"].seeds) or "–")]
        cells += [f"{scores.mean(row, 'mbpp', f'max@{k}'):.3f}" for k in KS]
        if row in (BASE, "grpo"):
            cells += ["–", "–"]
        else:
            found = difference(scores, config, (row, "grpo"), "mbpp", 128)
            cells += [with_ends(found, "+.3f"), by_seed(scores, (row, "grpo"), "mbpp", 128)]
        yield markdown.row([scores.labels[row], *cells])


def means(pair: Scores, every: Scores) -> Iterator[str]:
    """max@k of every policy."""
    columns = [(dataset, k) for dataset, ks in MEANS.items() for k in ks]
    yield from markdown.head(["policy", "seeds", *(f"{NAMES[dataset]} max@{k}" for dataset, k in columns)])
    for row in every.rows:
        scores = chosen(row, pair, every)
        values = [f"{scores.mean(row, dataset, f'max@{k}'):.3f}" for dataset, k in columns]
        yield markdown.row([scores.labels[row], str(len(scores.cells[row, "mbpp"].seeds) or "–"), *values])


def of_the_pair(scores: Scores, config: Config) -> Iterator[str]:
    """BoN mean − GRPO on every dataset; the primary outcome is max@128 on MBPP."""
    yield from markdown.head(["BoN mean − GRPO", "", "difference and 95 %", "p", "99 %", "by seed"], words=2)
    for dataset, name in NAMES.items():
        for k in KS:
            own, wide = (difference(scores, config, PAIR, dataset, k, level) for level in (0.95, 0.99))
            ends = ", ".join(markdown.number(wide[end], "+.3f") for end in ("low", "high"))
            cells = [with_ends(own, "+.4f"), markdown.p_value(own["p_mean"]), f"[{ends}]"]
            yield markdown.row([name, f"max@{k}", *cells, by_seed(scores, PAIR, dataset, k)])


def to_grpo(pair: Scores, every: Scores, config: Config) -> Iterator[str]:
    """Differences to GRPO with the same seeds on MBPP; p of Holm's correction, but for the primary outcome."""
    policies = [row for row in every.rows if row not in (BASE, "grpo")]
    cells = {row: [str(len(chosen(row, pair, every).cells[row, "mbpp"].seeds))] for row in policies}
    for k in KS:
        found = {row: difference(chosen(row, pair, every), config, (row, "grpo"), "mbpp", k) for row in policies}
        p = {row: one["p_mean"] for row, one in found.items()}
        family = [row for row in policies if (row, k) != PRIMARY]
        p |= dict(zip(family, statistics.holm([p[row] for row in family]), strict=True))
        for row, one in found.items():
            cells[row].append(f"{with_ends(one, '+.3f')} ({markdown.p_value(p[row])})")
    yield from markdown.head(["policy − GRPO", "seeds", *(f"max@{k}" for k in KS), "max@128 by seed"])
    for row, own in cells.items():
        scores = chosen(row, pair, every)
        yield markdown.row([scores.labels[row], *own, by_seed(scores, (row, "grpo"), "mbpp", KS[-1])])


def to_bon_mean(every: Scores, config: Config) -> Iterator[str]:
    """Does the paper's off-policy objective add to it, and does a higher entropy explain it?"""
    columns = [("mbpp", 128), (MEAN, 1), (MEAN, 128)]
    yield from markdown.head(["policy − BoN mean", "seeds", *(f"{NAMES[dataset]}, max@{k}" for dataset, k in columns)])
    for row in ("bon_offpolicy", "grpo_entropy"):
        found = [difference(every, config, (row, "bon_mean"), dataset, k) for dataset, k in columns]
        yield markdown.row([every.labels[row], str(found[0]["seeds"]), *(with_ends(one, "+.3f") for one in found)])


def trainings(config: Config) -> Iterator[str]:
    """What the trainings logged in their last batches, means over all their seeds."""
    yield from markdown.head(["policy", "seeds", *LOGGED.values()])
    for row in config.objectives:
        found = training_log.read(config, row, LOGGED)
        values = [f"{found[key][:, -LAST:].mean():.2f}" for key in LOGGED]
        yield markdown.row([config.label(row), str(len(found["kl"])), *values])


def solved(pair: Scores, every: Scores) -> Iterator[str]:
    """Problems of MBPP that any of 256 samples solves, and those lost and gained against the base model."""
    yield from markdown.head(["policy", "seeds", "solved", "lost", "gained"])
    for row in every.rows:
        scores = chosen(row, pair, every)
        cell = scores.cells[row, "mbpp"]
        counts = diversity.solved(cell.rewards, scores.cells[BASE, "mbpp"].rewards)
        yield markdown.row(
            [scores.labels[row], str(len(cell.seeds) or "–"), *(f"{value:g}" for value in counts.values())]
        )


# ---- numbers and their text


def difference(
    scores: Scores, config: Config, rows: tuple[str, str], dataset: str, k: int, level: float = 0.95
) -> dict[str, Any]:
    """The first policy minus the second, with interval and test (`maxk.reporting.estimates`)."""
    report = config.report.model_copy(update={"confidence": level})
    [found] = estimates.compared(scores, report, "", {dataset: rows}, f"max@{k}")
    return found


def by_seed(scores: Scores, rows: tuple[str, str], dataset: str, k: int) -> str:
    """The difference of two policies' means with each training seed."""
    datasets = scores.datasets if dataset == MEAN else (dataset,)
    own, reference = (np.mean([seed_means(scores, row, one, k) for one in datasets], axis=0) for row in rows)
    return ", ".join(markdown.number(value, "+.3f") for value in own - reference)


def seed_means(scores: Scores, row: str, dataset: str, k: int) -> Floats:
    """A policy's mean over problems with each training seed, [seeds]."""
    values = scores.values(row, dataset, f"max@{k}")
    assert values is not None
    return np.asarray(values.mean(axis=1))


def with_ends(row: dict[str, Any], form: str) -> str:
    return markdown.with_ends(row["difference"], row["low"], row["high"], form)


if __name__ == "__main__":
    main()
