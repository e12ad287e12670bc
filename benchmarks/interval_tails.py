"""How often tests of 5 %, 1 % and 0.1 % about methods reject a true hypothesis, alone and after Holm's correction.

    python benchmarks/interval_tails.py       # four minutes on one core

The tables of docs/statistics.md, "Below 5 %" and "Unequal spread", and its numbers on the wider of two intervals.
Normal components and 400 problems; the variance of a difference between trainings, V_P, is 1. A part V_I of it is the
interaction of seeds and problems, and seeds add σ². Rates are those of `maxk.statistics.difference`, computed for many
data sets at once, and the largest over V_I and σ²:

    package      of one comparison of two methods
    Student's t  the same, if the tail below 5 % were that of Student's t
    Holm         that any of five methods, compared with the same sixth, differs after Holm's correction, at 5 %
    unequal      at 5 %, where the second method's standard deviation between seeds is a third of the first's, or 0
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from maxk.statistics import Floats, combined, critical, holm, tail

PROBLEMS, DATASETS, FAMILIES = 400, 100_000, 4_000
LEVELS = (0.05, 0.01, 0.001)
INTERACTIONS = (0.0, 0.5, 1.0)
SPREADS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 30.0)  # σ² in units of V_P
METHODS = 5


def main() -> None:
    print("rejections, percent")
    print("                 package              Student's t      Holm   unequal: 1/3, 0")
    print("seeds      5      1    0.1         5      1    0.1         5         5      5")
    for seeds in (2, 3, 4, 6):
        numbers = [
            "  ".join(f"{100 * rate:5.2f}" for rate in largest(seeds, LEVELS)),
            "  ".join(f"{100 * rate:5.2f}" for rate in largest(seeds, LEVELS, student=True)),
            f"{100 * family(seeds):5.1f}",
            *(f"{100 * largest(seeds, (0.05,), part=part)[0]:5.1f}" for part in (1 / 3, 0.0)),
        ]
        print(f"{seeds:5d}  " + "     ".join(numbers), flush=True)
    for spread in (0.0, 1.0):
        narrower, rejecting = first_interval(0.75, spread, seeds=2)
        print(
            f"two seeds, V_I = 0.75, σ² = {spread:g}: the interval about methods is the narrower one in "
            f"{100 * narrower:.0f} % of data sets, and excludes a true 0 in {100 * rejecting:.0f} % of these"
        )


def largest(seeds: int, levels: tuple[float, ...], student: bool = False, part: float = 1.0) -> list[float]:
    """The largest rates of rejections at the levels. `part`: of the first method's standard deviation between seeds."""
    rates = [rejections(*cell, seeds, levels, student, part) for cell in cells()]
    return [max(of_level) for of_level in zip(*rates, strict=True)]


def cells() -> Iterator[tuple[float, float]]:
    return ((interaction, spread) for interaction in INTERACTIONS for spread in SPREADS)


def rejections(
    interaction: float, spread: float, seeds: int, levels: tuple[float, ...], student: bool, part: float
) -> list[float]:
    found = [bounds(interaction, spread, seeds, level, student, part) for level in levels]
    return [float((size > np.maximum(*of_both)).mean()) for size, *of_both in found]


def first_interval(interaction: float, spread: float, seeds: int) -> tuple[float, float]:
    """How often it is narrower than the second, and how often it then excludes 0."""
    size, of_methods, of_trainings = bounds(interaction, spread, seeds, 0.05)
    narrower = of_methods < of_trainings
    return float(narrower.mean()), float((size > of_methods)[narrower].mean())


def bounds(
    interaction: float, spread: float, seeds: int, level: float, student: bool = False, part: float = 1.0
) -> tuple[Floats, Floats, Floats]:
    """Sizes of differences whose true value is 0, and half of their intervals about methods and about trainings."""
    rng = np.random.default_rng(0)
    size = np.abs(rng.normal(0, np.sqrt(1 + spread), DATASETS))
    # σ² is the sum of both methods' parts, and so is the interaction.
    parts = np.array([1, part**2]) / (1 + part**2) * spread + interaction / 2
    of_seeds = (parts[:, None] * chi_squared(rng, seeds - 1, (2, DATASETS))).sum(axis=0)
    seed_df = 2 * (seeds - 1)
    of_problems = chi_squared(rng, PROBLEMS - 1, DATASETS)
    of_both = interaction * chi_squared(rng, seed_df * (PROBLEMS - 1), DATASETS)
    variance, df = combined(of_problems, of_seeds, of_both, PROBLEMS - 1, seed_df)
    at = np.linspace(1e-4, 1, 500)
    of_methods = np.interp(1 / df, at, [critical(level, 1 / one, 0 if student else seed_df) for one in at])
    of_trainings = critical(level, PROBLEMS - 1, 0)
    return size, of_methods * np.sqrt(variance), of_trainings * np.sqrt(of_problems)


def chi_squared(rng: np.random.Generator, df: int, shape: int | tuple[int, ...]) -> Floats:
    """Over its degrees of freedom."""
    return rng.chisquare(df, shape) / df


def family(seeds: int) -> float:
    """The largest rate of families in which a difference is shown after Holm's correction."""
    return max(shown_in_family(interaction, spread, seeds) for interaction, spread in cells())


def shown_in_family(interaction: float, spread: float, seeds: int) -> float:
    """All methods are equal. Of a difference's variance, half is each method's own."""
    rng = np.random.default_rng(0)
    shape = (METHODS + 1, FAMILIES)
    means = rng.normal(0, np.sqrt((1 + spread) / 2), shape)
    of_seeds = (interaction + spread) / 2 * chi_squared(rng, seeds - 1, shape)
    of_both = interaction / 2 * chi_squared(rng, (seeds - 1) * (PROBLEMS - 1), shape)
    of_problems = chi_squared(rng, PROBLEMS - 1, (METHODS, FAMILIES))
    seed_df = 2 * (seeds - 1)
    variance, df = combined(of_problems, of_seeds[1:] + of_seeds[0], of_both[1:] + of_both[0], PROBLEMS - 1, seed_df)
    found = np.abs(means[1:] - means[0])
    shown = 0
    for at in np.ndindex(FAMILIES):
        one = (slice(None), *at)
        pairs = zip(found[one], variance[one], df[one], of_problems[one], strict=True)
        p = [
            max(tail(d / np.sqrt(v), of, seed_df), tail(d / np.sqrt(fixed), PROBLEMS - 1, 0))
            for d, v, of, fixed in pairs
        ]
        shown += bool((holm(p) < 0.05).any())
    return shown / FAMILIES


if __name__ == "__main__":
    main()
