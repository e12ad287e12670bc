"""Coverage of 95 % intervals and type-I error of 5 % tests for "method A is better than method B", by simulation.

    python benchmarks/intervals.py                     # ten minutes on one core
    python benchmarks/intervals.py --datasets 1000

Each data set is drawn from a logistic model of problems (θ), methods × problems, training seeds and seeds × problems:
a sample earns reward 1 with probability 1/(1 + e^−η), else part of it now and then; max@128 is estimated from 256
samples.

    equal    A and B are better on different problems, and equal in the mean
    same     A and B are one method: they differ by their training seeds only
    skewed   B gains much on 15 % of problems and loses a little on all others, so that the true means are equal
    better   B's logits are higher by 0.6

Where the true means are equal, 100 − coverage is the type-I error. `seed sd` is the spread of a method's true max@128
between seeds. Wilcoxon's test of the seed-averaged values is beside it: it answers another question, so its rejections
where means are equal are no errors of the test, but of whoever reads it as a test of the means. With one seed the
statement is about the two trained policies. docs/statistics.md has the table and says what limits it.

(A script named statistics.py would be found by `import statistics` of every script in this folder.)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import cache

import numpy as np

from maxk.estimators import best_of_k_weights
from maxk.statistics import PER_KURTOSIS, Floats, combined, critical, difference, sign_flip_p, wilcoxon_signed_rank

LEVELS = np.array([0, 1 / 3, 2 / 3, 1.0])
SAMPLES, K = 256, 128
MEAN, PROBLEM, METHOD, INTERACTION = -4.0, 5.0, 0.5, 0.7  # of logits: mean, and standard deviations
SEEDS = {0.0: 0.0, 0.006: 0.115, 0.016: 0.307}  # sd of a seed's true max@128: sd of its logits
GAIN, GAINING = 5.0, 0.15
PROBLEMS = (20, 40, 100, 400)
WILCOXON = 1_000  # data sets at most of Wilcoxon's test, which is done one by one
STEP, OUTCOMES = 0.05, 512  # logits are rounded to multiples of STEP, with so many estimates drawn beforehand for each
CASES = ("equal", "same", "skewed", "better")
# P(best of K is among the lowest m of SAMPLES), m = 0 … SAMPLES.
CUMULATED = np.concatenate([[0.0], np.cumsum(best_of_k_weights(SAMPLES, K))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=4000, help="simulated data sets per cell")
    args = parser.parse_args()
    error, start = 100 * np.sqrt(0.05 * 0.95 / args.datasets), time.process_time()
    print(f"Percent of {args.datasets} data sets; standard error of 5 and of 95: {error:.2f}\n")
    several_seeds(args.datasets)
    one_seed(args.datasets)
    small_levels(5 * args.datasets)
    print(f"\n{time.process_time() - start:.0f} CPU-seconds")


def several_seeds(datasets: int) -> None:
    """Type-I error and coverage of the test and the interval about methods, and rejections by Wilcoxon's test."""
    print("                          type-I error               coverage   Wilcoxon rejects")
    print("problems seeds seed sd    equal    same   skewed      better     equal   skewed")
    errors, covered, same = [], [], []
    for problems in PROBLEMS:
        for seeds in (2, 3, 5):
            for sd in SEEDS:
                cells = {case: crossed_cell(case, problems, seeds, sd, datasets) for case in CASES}
                wrong = {case: 100 - covers for case, (covers, _) in cells.items() if case != "better"}
                better = cells["better"][0]
                errors += [wrong["equal"], wrong["skewed"]]
                covered += [better]
                same += [wrong["same"]]
                numbers = "   ".join(f"{one:5.1f}" for one in wrong.values())
                wilcoxon = f"{cells['equal'][1]:6.1f}   {cells['skewed'][1]:6.1f}"
                print(f"{problems:8d} {seeds:5d} {sd:7.3f}   {numbers}       {better:5.1f}    {wilcoxon}", flush=True)
    print()
    _count("type-I errors (equal, skewed)", errors, 4, 6)
    _count("type-I errors (same)", same, 4, 6)
    _count("coverages (equal, skewed, better)", [*(100 - one for one in errors), *covered], 93, 97)
    print()


def _count(what: str, values: list[float], low: float, high: float) -> None:
    inside = sum(low <= one <= high for one in values)
    extremes = f"lowest {min(values):.1f}, highest {max(values):.1f}"
    print(f"{inside} of {len(values)} {what} within {low}–{high} %; {extremes}")


def crossed_cell(case: str, problems: int, seeds: int, sd: float, datasets: int) -> tuple[float, float]:
    """Percent of intervals that hold the true difference, and of Wilcoxon's tests that reject (equal, skewed)."""
    rng = np.random.default_rng([problems, seeds, int(1000 * sd), CASES.index(case)])
    true, covered, rejected, tested = true_difference(case, SEEDS[sd]), 0, 0, 0
    for values in draw(rng, case, problems, seeds, SEEDS[sd], datasets):
        found, half = intervals(values)
        covered += int((np.abs(found - true) <= half).sum())
        if case in ("equal", "skewed"):
            for a, b in values[: max(0, WILCOXON - tested)].mean(axis=2):
                tested, rejected = tested + 1, rejected + (wilcoxon_signed_rank(b, a).p_value < 0.05)
    return 100 * covered / datasets, 100 * rejected / max(1, tested)


def intervals(values: Floats, level: float = 0.05) -> tuple[Floats, Floats]:
    """`difference(b, a)` and half of its interval, of values [datasets, a and b, seeds, problems] at once.

    The level is that of the test: 0.05 for an interval of 95 %.
    """
    _, _, seeds, problems = values.shape
    per_problem = values[:, 1].mean(axis=1) - values[:, 0].mean(axis=1)
    variances, means = per_problem.var(axis=1), values.mean(axis=3)
    centred = per_problem - per_problem.mean(axis=1, keepdims=True)
    kurtosis = np.maximum(0, (centred**4).mean(axis=1) / np.maximum(variances**2, 1e-30) - 3)
    rest = values - values.mean(axis=2, keepdims=True) - means[..., None] + means.mean(axis=2)[..., None, None]
    interaction = (rest**2).sum(axis=(1, 2, 3)) / ((seeds - 1) * (problems - 1) * seeds * problems)
    of_seeds = means.var(axis=2, ddof=1).sum(axis=1) / seeds
    problem_df = (problems - 1) / (1 + PER_KURTOSIS * kurtosis)
    variance, df = combined(variances / (problems - 1), of_seeds, interaction, problem_df, 2 * (seeds - 1))
    half = np.interp(1 / df, *bounds(level, 2 * (seeds - 1))) * np.sqrt(variance)
    of_trainings = critical(level, problems - 1, 0) * np.sqrt(variances / (problems - 1))
    return per_problem.mean(axis=1), np.maximum(half, of_trainings)


@cache
def bounds(level: float, seed_df: int) -> tuple[Floats, Floats]:
    """Values of 1/df, and the bounds of the test there."""
    at = np.linspace(1e-4, 1, 1_000)
    return at, np.array([critical(level, 1 / one, seed_df) for one in at])


def small_levels(datasets: int) -> None:
    """Type-I errors below 5 % of skewed differences, without spread between seeds."""
    print("\nskewed             tests of    5 %     1 %   0.1 %")
    for problems, seeds in ((20, 3), (40, 3), (40, 5), (100, 5), (20, 10), (40, 10), (100, 10)):
        rng = np.random.default_rng([problems, seeds])
        drawn = list(draw(rng, "skewed", problems, seeds, 0.0, datasets))
        errors = []
        for level in (0.05, 0.01, 0.001):
            found = [intervals(values, level) for values in drawn]
            errors.append(100 * sum(int((np.abs(size) > half).sum()) for size, half in found) / datasets)
        print(f"{problems:5d} problems, {seeds:2d} seeds  " + "  ".join(f"{one:6.2f}" for one in errors), flush=True)


def one_seed(datasets: int) -> None:
    """The same for two trained policies, without a spread between seeds, and the sign-flip test."""
    print("one seed        coverage of the interval     sign flips reject    Wilcoxon rejects")
    print("problems        equal   better   skewed       equal   skewed       equal   skewed")
    for problems in PROBLEMS:
        cells = [one_seed_cell(case, problems, datasets) for case in ("equal", "better", "skewed")]
        (equal, flips, wilcoxon), (better, *_), (skewed, skewed_flips, skewed_wilcoxon) = cells
        coverage = f"{equal:6.1f}   {better:6.1f}   {skewed:6.1f}"
        rejected = f"{flips:6.1f}   {skewed_flips:6.1f}      {wilcoxon:6.1f}   {skewed_wilcoxon:6.1f}"
        print(f"{problems:8d}       {coverage}      {rejected}", flush=True)


def one_seed_cell(case: str, problems: int, datasets: int) -> tuple[float, float, float]:
    rng, true = np.random.default_rng([problems, 1, CASES.index(case)]), true_difference(case, 0.0)
    covered = flips = wilcoxon = 0
    for a, b in (one[:, 0] for values in draw(rng, case, problems, 1, 0.0, datasets) for one in values):
        low, high = difference(b, a).interval(0.95)
        covered += low <= true <= high
        if case != "better":
            flips += sign_flip_p(b - a, flips=2_000) < 0.05
            wilcoxon += wilcoxon_signed_rank(b, a).p_value < 0.05
    return 100 * covered / datasets, 100 * flips / datasets, 100 * wilcoxon / datasets


# ---------------------------------------------------------------------------------------------------------- the model
def draw(
    rng: np.random.Generator, case: str, problems: int, seeds: int, seed_sd: float, datasets: int
) -> Iterator[Floats]:
    """Estimates of max@K, chunks of [datasets, a and b, seeds, problems]."""
    chunk = max(1, 200_000 // (seeds * problems))
    for start in range(0, datasets, chunk):
        count = min(chunk, datasets - start)

        def normal(sd: float, *shape: int, count: int = count) -> Floats:
            return sd * rng.standard_normal((count, *shape), dtype=np.float32)

        logits = MEAN + normal(PROBLEM, 1, 1, problems) + normal(METHOD, 1 if case == "same" else 2, 1, problems)
        logits = logits + normal(seed_sd, 2, seeds, 1) + normal(INTERACTION, 2, seeds, problems)
        if case == "better":
            logits[:, 1] += 0.6
        elif case == "skewed":
            gains = rng.random((count, 1, problems)) < GAINING
            logits[:, 1] += np.where(gains, GAIN, -loss(seed_sd))
        yield estimates(rng, logits)


def estimates(rng: np.random.Generator, logits: Floats) -> Floats:
    """max@K of SAMPLES samples for each logit: one of the outcomes drawn beforehand for the rounded logit."""
    lowest, table = outcomes()
    at = np.clip(np.rint(logits / STEP).astype(np.int32) - lowest, 0, len(table) - 1)
    return table[at, rng.integers(0, OUTCOMES, logits.shape, dtype=np.int32)]


@cache
def outcomes() -> tuple[int, Floats]:
    """The lowest multiple of STEP, and OUTCOMES estimates for each multiple from there on."""
    steps = np.arange(-700, 500)
    logits = np.repeat(STEP * steps[:, None], OUTCOMES, axis=1)
    counts = np.cumsum(np.random.default_rng(0).multinomial(SAMPLES, chances(logits)), axis=-1)
    return int(steps[0]), np.diff(CUMULATED[counts], axis=-1, prepend=0.0) @ LEVELS


def chances(logits: Floats) -> Floats:
    """Probabilities [..., 4] of the rewards LEVELS."""
    full = 1 / (1 + np.exp(-logits))
    part = 0.35 / (1 + np.exp(-(logits + 5))) * (1 - full)
    return np.stack([1 - full - part, 0.7 * part, 0.3 * part, full], axis=-1)


def true_mean(mean: float, seed_sd: float) -> float:
    """True max@K over problems and seeds, for a normal distribution of logits; by quadrature."""
    at = np.linspace(-8, 8, 4_001)
    weights = np.exp(-(at**2) / 2)
    spread = np.sqrt(PROBLEM**2 + METHOD**2 + seed_sd**2 + INTERACTION**2)
    below = np.clip(np.cumsum(chances(mean + spread * at), axis=-1), 0, 1) ** K
    return float(weights @ (np.diff(below, axis=-1, prepend=0.0) @ LEVELS) / weights.sum())


def true_difference(case: str, seed_sd: float) -> float:
    return true_mean(MEAN + 0.6, seed_sd) - true_mean(MEAN, seed_sd) if case == "better" else 0.0


def loss(seed_sd: float) -> float:
    """How much B loses on most problems of the skewed case, so that both true means are equal; by bisection."""
    low, high = 0.0, 3.0
    for _ in range(40):
        middle = (low + high) / 2
        gained = GAINING * true_mean(MEAN + GAIN, seed_sd) + (1 - GAINING) * true_mean(MEAN - middle, seed_sd)
        low, high = (middle, high) if gained > true_mean(MEAN, seed_sd) else (low, middle)
    return low


if __name__ == "__main__":
    main()
