"""Prints the tables of README.md and docs/results-mini.md, from the committed files.

    python docs/mini.py

docs/plan-mini.md has the outcomes, and its amendment the seeds that count: for GRPO and BoN mean, the pair of the
primary outcome, all that both have finished; for the other policies, and for GRPO beside them, those that all six have
finished. Tests are those of the plan: Holm's correction is over the policies, on each dataset and for each k, and the
primary outcome is outside of it.

The first run has an older format of configuration and scores, so its tables are made of per-problem rewards and of the
training logs as they are.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from maxk import config as configuration
from maxk import statistics
from maxk.artifacts.paths import BASE, policy_name
from maxk.config import Config
from maxk.estimators import max_at_k
from maxk.reporting import MEAN, diversity, estimates, load, markdown, power, training_log
from maxk.reporting.load import Scores
from maxk.statistics import Floats

PLANNED = Path(__file__).parent.resolve() / "results-mini" / "planned"
PAIR = ("bon_mean", "grpo")
PRIMARY = ("mbpp", 128)  # of the pair
NAMES = {"mbpp": "MBPP", "humaneval": "HumanEval", "apps": "APPS", MEAN: "mean of the three"}
MEANS = {"mbpp": (1, 8, 32, 128, 256), "humaneval": (1, 128), "apps": (1, 128)}
KS = (1, 8, 128)
LOGGED = {"reward": "reward", "entropy": "entropy, nats", "kl": "KL to the base model"}
LAST = 12  # batches

FIRST = PLANNED.parent / "first"
FIRST_POLICIES = {
    "base": "Base model",
    "grpo": "GRPO",
    "grpo_binary": "GRPO, binary reward",
    "bon_mean": "BoN mean",
    "bon_loo1": "BoN LOO-1",
    "bon_offpolicy": "Off-policy BoN (paper)",
    "bon_offpolicy_exact": "Exact off-policy BoN",
    "bon_offpolicy_exact_fast": "Exact off-policy BoN, 5·10⁻⁶",
}
RATIOS = {  # by name of that time
    "ratio_q01": "ρ, 1 %",
    "ratio_q99": "ρ, 99 %",
    "effective_sample_share": "effective sample fraction",
    "clamped_share": "completions clamped",
    "first_order_error": "first-order error",
}


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
    yield primary(pair, config)
    yield means(pair, every)
    yield of_the_pair(pair, config)
    yield humaneval(pair, config)
    yield power_of_the_primary(pair)
    yield secondary(pair, every, config)
    yield to_bon_mean(every, config)
    yield trainings(pair, every, config)
    yield solved(pair, every)
    yield first_run(config.report.confidence)
    yield first_ratios()


def finished(config: Config, policies: Sequence[str]) -> tuple[int, ...]:
    """Training seeds for which all of these policies have scores on every dataset."""

    def scored(seed: int) -> bool:
        names = [policy_name(one, seed) for one in policies]
        return all(Path(config.layout.scores(name, one)).exists() for name in names for one in config.evaluated)

    return tuple(filter(scored, config.seeds))


def chosen(row: str, pair: Scores, every: Scores) -> Scores:
    """The scores, of the seeds that count, of a policy."""
    return pair if row in PAIR else every


def seeds(scores: Scores, row: str) -> str:
    """The number of training seeds; a dash for the base model."""
    return str(len(scores.cells[row, "mbpp"].seeds) or "–")


# ---- tables


def headline(pair: Scores, every: Scores, config: Config) -> Iterator[str]:
    """MBPP in short."""
    yield from markdown.head(["policy", "seeds", *(f"max@{k}" for k in KS), "max@128 − GRPO", "by seed"])
    for row in every.rows:
        scores = chosen(row, pair, every)
        cells = [seeds(scores, row), *(f"{scores.mean(row, 'mbpp', f'max@{k}'):.3f}" for k in KS)]
        if row in (BASE, "grpo"):
            cells += ["–", "–"]
        else:
            found = difference(scores, config, (row, "grpo"), "mbpp", 128)
            cells += [with_ends(found, "+.3f"), by_seed(scores, (row, "grpo"), "mbpp", 128)]
        yield markdown.row([scores.labels[row], *cells])


def primary(scores: Scores, config: Config) -> Iterator[str]:
    """The primary outcome, with the interval of the stopping rule."""
    own, wide = (difference(scores, config, PAIR, *PRIMARY, level) for level in (0.95, 0.99))
    yield from markdown.head(["BoN mean − GRPO, MBPP max@128", "difference and 95 % interval", "p", "99 % interval"])
    ends = ", ".join(markdown.number(wide[end], "+.4f") for end in ("low", "high"))
    yield markdown.row(
        [f"{seeds(scores, 'grpo')} seeds", with_ends(own, "+.4f"), markdown.p_value(own["p_mean"]), f"[{ends}]"]
    )


def means(pair: Scores, every: Scores) -> Iterator[str]:
    """max@k of every policy."""
    columns = [(dataset, k) for dataset, ks in MEANS.items() for k in ks]
    yield from markdown.head(["policy", "seeds", *(f"{NAMES[dataset]} max@{k}" for dataset, k in columns)])
    for row in every.rows:
        scores = chosen(row, pair, every)
        values = [f"{scores.mean(row, dataset, f'max@{k}'):.3f}" for dataset, k in columns]
        yield markdown.row([scores.labels[row], seeds(scores, row), *values])


def of_the_pair(scores: Scores, config: Config) -> Iterator[str]:
    """BoN mean − GRPO at every k, as the plan describes them: without tests."""
    yield from markdown.head(["BoN mean − GRPO", *NAMES.values(), "MBPP by seed"])
    for k in config.report.ks:
        found = [with_ends(difference(scores, config, PAIR, one, k), "+.3f") for one in NAMES]
        yield markdown.row([f"max@{k}", *found, by_seed(scores, PAIR, "mbpp", k)])


def humaneval(scores: Scores, config: Config) -> Iterator[str]:
    """The pair on HumanEval with each seed: max@1, and the fraction of samples that the token limit cuts."""
    yield from markdown.head(["HumanEval by seed", "max@1", "cut at the token limit"])
    alone = [load.load(config.model_copy(update={"seeds": (seed,)})) for seed in scores.configured]
    for row in PAIR[::-1]:
        values = ", ".join(f"{mean:.3f}" for mean in seed_means(scores, row, "humaneval", 1))
        cut = ", ".join(f"{one.cells[row, 'humaneval'].truncated:.2f}" for one in alone)
        yield markdown.row([scores.labels[row], values, cut])


def power_of_the_primary(scores: Scores) -> Iterator[str]:
    """Of the stopping rule now, and of all six seeds."""
    parts = power.components(scores, PAIR, PRIMARY[0], f"max@{PRIMARY[1]}")
    problems, now = scores.problems(PRIMARY[0]), len(scores.configured)
    designs = {f"{now} seeds, 99 %": (now, 0.99), f"{now} seeds, 95 %": (now, 0.95), "6 seeds, 95 %": (6, 0.95)}
    yield from markdown.head([f"true difference; seeds vary by {parts.seed**0.5:.3f}", *designs])
    for true in (0.015, 0.02, 0.03):
        found = [power.power(parts, true, problems, many, level) for many, level in designs.values()]
        yield markdown.row([f"{true:.3f}", *(f"{one:.2f}" for one in found)])


def secondary(pair: Scores, every: Scores, config: Config) -> Iterator[str]:
    """Differences to GRPO with the same seeds, and p after Holm's correction; the primary outcome stands by itself."""
    policies = [row for row in every.rows if row not in (BASE, "grpo")]
    yield from markdown.head(["policy − GRPO", "seeds", *(f"{NAMES[one]} max@{k}" for one in MEANS for k in (1, 128))])
    cells = {row: [seeds(chosen(row, pair, every), row)] for row in policies}
    for dataset in MEANS:
        for k in (1, 128):
            found = {row: difference(chosen(row, pair, every), config, (row, "grpo"), dataset, k) for row in policies}
            family = [row for row in policies if (row, dataset, k) != (PAIR[0], *PRIMARY)]
            corrected = dict(zip(family, statistics.holm([found[row]["p_mean"] for row in family]), strict=True))
            for row, values in found.items():
                p = markdown.p_value(corrected[row]) if row in corrected else "primary"
                cells[row].append(f"{with_ends(values, '+.3f')} ({p})")
    for row, own in cells.items():
        yield markdown.row([every.labels[row], *own])


def to_bon_mean(every: Scores, config: Config) -> Iterator[str]:
    """Does the paper's off-policy objective add to it, and does a higher entropy explain it?"""
    columns = [("mbpp", 128), (MEAN, 1), (MEAN, 128)]
    yield from markdown.head(["policy − BoN mean", "seeds", *(f"{NAMES[dataset]}, max@{k}" for dataset, k in columns)])
    for row in ("bon_offpolicy", "grpo_entropy"):
        found = [difference(every, config, (row, "bon_mean"), dataset, k) for dataset, k in columns]
        yield markdown.row([every.labels[row], str(found[0]["seeds"]), *(with_ends(one, "+.3f") for one in found)])


def trainings(pair: Scores, every: Scores, config: Config) -> Iterator[str]:
    """What the trainings logged in their last batches."""
    yield from markdown.head(["policy", "seeds", *LOGGED.values()])
    for row in config.objectives:
        scores = chosen(row, pair, every)
        found = training_log.read(config.model_copy(update={"seeds": scores.configured}), row, LOGGED)
        values = [f"{found[key][:, -LAST:].mean():.2f}" for key in LOGGED]
        yield markdown.row([config.label(row), seeds(scores, row), *values])


def solved(pair: Scores, every: Scores) -> Iterator[str]:
    """Problems of MBPP that any of 256 samples solves, and those lost and gained against the base model."""
    yield from markdown.head(["policy", "seeds", "solved", "lost", "gained"])
    for row in every.rows:
        scores = chosen(row, pair, every)
        counts = diversity.solved(scores.cells[row, "mbpp"].rewards, scores.cells[BASE, "mbpp"].rewards)
        yield markdown.row([scores.labels[row], seeds(scores, row), *(f"{value:g}" for value in counts.values())])


# ---- tables of the first run


def first_run(level: float) -> Iterator[str]:
    """max@k of every policy, and its difference to GRPO at max@128 with all seeds of both."""
    yield from markdown.head(["policy", "seeds", *(f"max@{k}" for k in KS), "max@128 − GRPO"])
    grpo = first_values("grpo", 128)
    for policy, label in FIRST_POLICIES.items():
        means = [f"{first_values(policy, k).mean():.3f}" for k in KS]
        found = statistics.difference(first_values(policy, 128), grpo)
        low, high = found.interval(level, statistics.DIFFERENCE_BOUNDS)
        text = "–" if policy in (BASE, "grpo") else markdown.with_ends(found.value, low, high, "+.3f")
        count = "–" if policy == BASE else str(len(first_values(policy, 1)))
        yield markdown.row([label, count, *means, text])


def first_values(policy: str, k: int) -> Floats:
    """max@k, [seeds, problems]."""
    files = sorted((FIRST / "scores" / policy).rglob("mbpp.parquet"))
    rewards = [np.stack(pq.read_table(one, columns=["rewards"])["rewards"].to_numpy()) for one in files]
    return np.array([max_at_k(one, [k])[:, 0] for one in rewards])


def first_ratios() -> Iterator[str]:
    """Ratios of whole completions in the steps on stale samples: seed 0, medians over batches."""
    yield from markdown.head(["policy", "step of a batch", *RATIOS.values()])
    for policy in ("bon_offpolicy_exact", "bon_offpolicy_exact_fast", "bon_offpolicy"):
        lines = (FIRST / "policies" / policy / "seed0" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        steps = [json.loads(line) for line in lines]
        for place in (1, 2):
            medians = (float(np.median([one[key] for one in steps[place::3]])) for key in RATIOS)
            yield markdown.row([FIRST_POLICIES[policy], str(place + 1), *(f"{float(f'{m:.2g}'):,g}" for m in medians)])


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
