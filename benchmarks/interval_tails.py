"""How often tests of 5 %, 1 % and 0.1 % about methods reject a true hypothesis, alone and after Holm's correction.

    python benchmarks/interval_tails.py       # six minutes on one core

The tables of docs/statistics.md, "Below 5 %" and "Unequal spread", and its numbers on the wider of two intervals.
Normal components and 400 problems. V_P, the variance of a difference between trainings, is 1; in units of it,
`interaction` is its part V_I of seeds × problems, and `spread` what the spread between seeds adds. Shown are the
largest rates of a grid of both. They are computed by the formulas of `maxk.statistics.difference`, for many data sets
at once and without the kurtosis term, which normal components do not need:

    package      of one comparison: of two methods, or of a method with the base model, which has no seeds
    Student's t  the same, if the tail below 5 % were that of Student's t
    Holm         that any of five methods, compared with the same sixth, differs after Holm's correction, at 5 %
    unequal      of two methods at 5 %, where the second's standard deviation between seeds is a part of the first's

Standard errors, in percent: 0.07, 0.03 and 0.01 at 5, 1 and 0.1 %; Holm 0.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from maxk.statistics import Floats, combined, critical, holm, tail

PROBLEMS, DATASETS, FAMILIES, METHODS = 400, 100_000, 4_000, 5
LEVELS = (0.05, 0.01, 0.001)
INTERACTIONS = (0.0, 0.5, 1.0)
SPREADS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 30.0)
SEEDS = (2, 3, 4, 6)
EQUAL, A_THIRD, ZERO, BASE = (0.5, 0.5), (0.9, 0.1), (1.0, 0.0), (1.0,)  # of the spread: each seeded method's part


def main() -> None:
    print("rejections, percent       package            Student's t      Holm")
    print("                        5      1    0.1       5      1    0.1      5")
    for parts, name in ((EQUAL, "two methods"), (BASE, "against base")):
        for seeds in SEEDS:
            rates = [*largest(seeds, parts), *largest(seeds, parts, student=True)]
            corrected = f"  {100 * largest_of_families(seeds):5.1f}" if parts is EQUAL else ""
            print(
                f"{name:13s}{seeds} seeds  " + "  ".join(f"{100 * rate:5.2f}" for rate in rates) + corrected, flush=True
            )
    print("\nunequal spread      a third   zero")
    for seeds in SEEDS:
        rates = [largest(seeds, parts)[0] for parts in (A_THIRD, ZERO)]
        print(f"{seeds} seeds             " + "   ".join(f"{100 * rate:5.1f}" for rate in rates), flush=True)
    print(
        "\ntwo seeds, V_I = 0.75: the interval about methods is narrower than that about trainings, and then excludes 0"
    )
    for spread in (0.0, 1.0):
        narrower, rejecting = first_interval(0.75, spread, seeds=2)
        print(f"spread {spread:g}: {100 * narrower:.0f} %, {100 * rejecting:.0f} % of these")


def cells() -> Iterator[tuple[float, float]]:
    """Interaction and spread."""
    return ((interaction, spread) for interaction in INTERACTIONS for spread in SPREADS)


def largest(seeds: int, parts: Sequence[float], student: bool = False) -> list[float]:
    """The largest rate of rejections at each level."""
    return [max(rejected(*cell, seeds, level, parts, student) for cell in cells()) for level in LEVELS]


def rejected(
    interaction: float, spread: float, seeds: int, level: float, parts: Sequence[float], student: bool
) -> float:
    size, *of_both = bounds(interaction, spread, seeds, level, parts, student)
    return float((size > np.maximum(*of_both)).mean())


def first_interval(interaction: float, spread: float, seeds: int) -> tuple[float, float]:
    """How often it is narrower than the second, and how often it then excludes 0."""
    size, of_methods, of_trainings = bounds(interaction, spread, seeds, 0.05)
    narrower = of_methods < of_trainings
    return float(narrower.mean()), float((size > of_methods)[narrower].mean())


def bounds(
    interaction: float,
    spread: float,
    seeds: int,
    level: float,
    parts: Sequence[float] = EQUAL,
    student: bool = False,
) -> tuple[Floats, Floats, Floats]:
    """Sizes of differences whose true value is 0, and half of their intervals about methods and about trainings."""
    rng = np.random.default_rng(0)
    size = np.abs(rng.normal(0, np.sqrt(1 + spread), DATASETS))
    expected = [part * spread + interaction / len(parts) for part in parts]
    of_seeds = sum(one * chi_squared(rng, seeds - 1, DATASETS) for one in expected)
    seed_df = len(parts) * (seeds - 1)
    of_problems = chi_squared(rng, PROBLEMS - 1, DATASETS)
    of_both = interaction * chi_squared(rng, seed_df * (PROBLEMS - 1), DATASETS)
    variance, df = combined(of_problems, of_seeds, of_both, PROBLEMS - 1, seed_df)
    at = np.linspace(1e-4, 1, 500)
    of_methods = np.interp(1 / df, at, [critical(level, 1 / one, 0 if student else seed_df) for one in at])
    of_trainings = critical(level, PROBLEMS - 1, 0)
    return size, of_methods * np.sqrt(variance), of_trainings * np.sqrt(of_problems)


def chi_squared(rng: np.random.Generator, df: int, shape: int | tuple[int, int]) -> Floats:
    """Over its degrees of freedom."""
    return rng.chisquare(df, shape) / df


def largest_of_families(seeds: int) -> float:
    return max(rejecting_families(*cell, seeds) for cell in cells())


def rejecting_families(interaction: float, spread: float, seeds: int) -> float:
    """The fraction of families of equal methods in which one is found to differ from the sixth.

    Half of a difference's spread and interaction is each method's own. Estimates of V_P, which 400 problems make nearly
    exact, are drawn independently.
    """
    rng = np.random.default_rng(0)
    shape = (METHODS + 1, FAMILIES)
    means = rng.normal(0, np.sqrt((1 + spread) / 2), shape)
    of_seeds = (interaction + spread) / 2 * chi_squared(rng, seeds - 1, shape)
    of_both = interaction / 2 * chi_squared(rng, (seeds - 1) * (PROBLEMS - 1), shape)
    of_problems = chi_squared(rng, PROBLEMS - 1, (METHODS, FAMILIES))
    seed_df = 2 * (seeds - 1)
    variance, df = combined(of_problems, of_seeds[1:] + of_seeds[0], of_both[1:] + of_both[0], PROBLEMS - 1, seed_df)
    sizes = np.abs(means[1:] - means[0])

    def p_value(method: int, family: int) -> float:
        at = method, family
        of_trainings = tail(sizes[at] / np.sqrt(of_problems[at]), PROBLEMS - 1, 0)
        return max(tail(sizes[at] / np.sqrt(variance[at]), df[at], seed_df), of_trainings)

    families = ([p_value(method, family) for method in range(METHODS)] for family in range(FAMILIES))
    return sum(bool((holm(p_values) < 0.05).any()) for p_values in families) / FAMILIES


if __name__ == "__main__":
    main()
