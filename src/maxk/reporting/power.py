"""How many problems and training seeds a comparison of two methods needs.

Power is the fraction of simulated comparisons, with normal components estimated from scores of both policies, in which
the interval of the tables (`maxk.statistics.difference`), at 95 % or another level, excludes zero:

    Var = σ²_method×problem/N + 2·σ²_seed/S + 2·σ²_rest/(N·S), rest: seeds × problems, and sampling of completions.

Two or three seeds estimate σ_seed badly: try other values (`--seed-sd`) before trusting a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

from maxk.errors import UserError, counted, lookup, unknown
from maxk.reporting import markdown
from maxk.reporting.load import Scores
from maxk.statistics import Floats, combined, critical, interaction

SIMULATIONS = 20_000
LEVEL = 0.95


@dataclass(frozen=True)
class Components:
    """Variance components of a difference between two methods."""

    problem: float  # method × problem: of the difference between the methods on a problem
    seed: float  # of a method's mean between training seeds
    rest: float  # seed × problem and sampling, of one method on one problem


def components(scores: Scores, pair: Sequence[str], dataset: str, quantity: str) -> Components:
    """Estimates them from the scores of two policies. Raises UserError if there are fewer than two seeds of either."""
    values = [_values(scores, policy, dataset, quantity) for policy in pair]
    rests = [interaction(one) for one in values]
    seeds = [one.mean(axis=1).var(ddof=1) - rest / one.shape[1] for one, rest in zip(values, rests, strict=True)]
    differences = values[0].mean(axis=0) - values[1].mean(axis=0)
    from_rest = sum(rest / len(one) for one, rest in zip(values, rests, strict=True))
    return Components(
        problem=max(0.0, float(differences.var(ddof=1) - from_rest)),
        seed=max(0.0, float(np.mean(seeds))),
        rest=float(np.mean(rests)),
    )


def _values(scores: Scores, policy: str, dataset: str, quantity: str) -> Floats:
    lookup(scores.labels, policy, "policy")
    if dataset not in scores.datasets:
        raise UserError(f"no dataset {dataset!r}{unknown(dataset, scores.datasets)}")
    values = scores.values(policy, dataset, quantity)
    if values is None or values.shape[0] < 2 or values.shape[1] < 2:
        raise UserError(
            f"{policy} on {dataset}: variance components need scores of at least two training seeds on two problems; "
            "add seeds (`seeds: [0, 1, 2]`) and run again"
        )
    return values


def power(parts: Components, difference: float, problems: int, seeds: int, level: float = LEVEL) -> float:
    """Probability that the interval at `level` excludes zero if the methods differ by `difference`; `seeds` ≥ 2."""
    rng = np.random.default_rng(0)
    df_problem, df_seed = problems - 1, 2 * (seeds - 1)
    rest = 2 * parts.rest / (problems * seeds)
    of_problems, of_seeds = parts.problem / problems + rest, 2 * parts.seed / seeds + rest

    def estimated(variance: float, df: int) -> Floats:
        return variance * rng.chisquare(df, SIMULATIONS) / df

    seen = difference + rng.normal(0, np.sqrt(of_problems + 2 * parts.seed / seeds), SIMULATIONS)
    of_both = estimated(rest, df_seed * df_problem)
    means = estimated(of_problems, df_problem), estimated(of_seeds, df_seed)
    variance, df = combined(*means, of_both, df_problem, df_seed)
    of_methods = np.interp(1 / df, *_bounds(level, df_seed)) ** 2 * variance
    of_trainings = critical(1 - level, df_problem, 0) ** 2 * means[0]
    return float(np.mean(seen**2 > np.maximum(of_methods, of_trainings)))


@cache
def _bounds(level: float, df_seed: int) -> tuple[Floats, Floats]:
    """Values of 1/df and the bounds of the test there."""
    at = np.linspace(1e-4, 1, 500)
    return at, np.array([critical(1 - level, 1 / one, df_seed) for one in at])


def table(
    parts: Components, difference: float, problems: Sequence[int], seeds: Sequence[int], level: float = LEVEL
) -> pd.DataFrame:
    """Power by number of problems and of seeds: columns problems, seeds, power."""
    rows = [(n, s, power(parts, difference, n, s, level)) for n in problems for s in seeds]
    return pd.DataFrame(rows, columns=["problems", "seeds", "power"])


def with_seed_sd(parts: Components, seed_sd: float | None) -> Components:
    """The same with another standard deviation between seeds."""
    return parts if seed_sd is None else replace(parts, seed=seed_sd**2)


def to_markdown(parts: Components, frame: pd.DataFrame, title: str, level: float = LEVEL) -> str:
    """The components and the table, problems × seeds."""
    wide = frame.pivot(index="problems", columns="seeds", values="power")
    lines = [f"**{title}**", "", *markdown.head(["problems", *(counted(int(seeds), "seed") for seeds in wide.columns)])]
    lines += [markdown.row([str(n), *(f"{one:.2f}" for one in row)]) for n, row in wide.iterrows()]
    spreads = [f"{name} {np.sqrt(value):.4f}" for name, value in vars(parts).items()]
    notes = [
        f"Probability that the {markdown.percent(level)} interval of the mean difference excludes zero. "
        f"Standard deviations: {', '.join(spreads)} (problem: method × problem; seed: a method's mean between seeds; "
        "rest: seed × problem and sampling).",
    ]
    return markdown.below(lines, notes)
