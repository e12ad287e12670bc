"""Intervals and tests for means over problems and training seeds. Only numpy.

    a, b = max_at_k(rewards_a, 128), max_at_k(rewards_b, 128)   # rewards [seeds, problems, n] → [seeds, problems]
    found = difference(a, b)                                    # is method a better than method b?
    found.value, found.interval(0.95), found.p_value()
    sign_flip_p(a[0] - b[0])                                    # one seed: do these two trained policies differ?
    wilcoxon_signed_rank(a.mean(0), b.mean(0))                  # the paper's test
    holm([0.01, 0.04, 0.03])                                    # corrected for three comparisons

A claim about *methods* needs the spread between training seeds. Problems and seeds are crossed: the mean of values
y[s, p] of S seeds on N problems varies with the problems drawn, with the seeds drawn, and with their interaction,

    Var = σ²_problem/N + σ²_seed/S + σ²_interaction/(N·S).

V_problems, the variance of the seed-averaged values over problems divided by N, estimates the first and the last term;
V_seeds, the variance of the seeds' means divided by S, the last two. Intervals and tests are Student's t with the
variance V_problems + V_seeds − V_interaction and with degrees of freedom that allow for few seeds and for heavy tails
(`combined`). They are never narrower than those about the trainings at hand. Seeds of different methods count as
independent draws with the same spread. docs/statistics.md says how well all of this holds, by simulation
(`benchmarks/intervals.py`).

With one seed per method V_seeds is unknown and left out: the interval is about the trained policies, and says nothing
about the methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
# Calibrated by simulation (docs/statistics.md): the least variance, as a fraction of that between seeds, and how much
# the excess kurtosis of a sample lowers the degrees of freedom (½ in theory, for the kurtosis of the population). Tests
# below TAIL have the tail of the spread between seeds (`critical`).
LEAST_OF_SEEDS = 0.75
PER_KURTOSIS = 1.5
TAIL = 0.05
# Rewards lie in [0, 1], and so do means of max@k and pass@k.
MEAN_BOUNDS, DIFFERENCE_BOUNDS = (0.0, 1.0), (-1.0, 1.0)
NO_SPREAD = 1e-24  # variance of equal values, up to rounding
ROUNDING = 1e-12  # means that differ by less are equal
LARGEST_EXACT = 50  # differing pairs up to which Wilcoxon's p is exact (scipy's limit where there are no ties)


# ---- means and differences, problems and seeds crossed
@dataclass(frozen=True)
class Estimate:
    """A mean or a difference of means, its variance over problems and seeds, and the degrees of freedom of that.

    `problem_variance` and `problem_df` are those of the trainings at hand, seeds fixed. A statement about methods is
    never more certain than that about these trainings: its interval is at least as wide. NaN variance: there is only
    one problem. `seed_df` 0: one seed, so nothing is known about other seeds, and the two statements are one.
    """

    value: float
    variance: float
    df: float
    problem_variance: float
    problem_df: float
    seed_df: float

    def interval(self, level: float = 0.95, bounds: tuple[float, float] = (-math.inf, math.inf)) -> tuple[float, float]:
        """The two-sided confidence interval at `level`, cut to the values that are possible (`bounds`).

        The cut leaves the coverage as it is, since the true value lies within the bounds. Where all problems have the
        same value there is no spread to estimate: both ends are the value, or the bounds if so few problems would be
        equal by chance (`p_value`). Neither is a statement about other problems.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}")
        if not self._spread and self._chance_of_no_spread > 1 - level:
            return bounds
        halves = (critical(1 - level, df, seed_df) * math.sqrt(variance) for variance, df, seed_df in self._spread)
        half = max(halves, default=0.0)
        low, high = np.clip((self.value - half, self.value + half), *bounds)  # NaN stays
        return float(low), float(high)

    def p_value(self) -> float:
        """Two-sided p-value of "the value is 0": 1 − the level at which 0 is an end of the interval.

        Where all N problems have the same value, that of the exact sign-flip test: 2/2^N.
        """
        if self.value == 0 or math.isnan(self.variance):
            return 1.0
        tails = (tail(abs(self.value) / math.sqrt(variance), df, seed_df) for variance, df, seed_df in self._spread)
        return max(tails, default=self._chance_of_no_spread)

    @property
    def _spread(self) -> list[tuple[float, float, float]]:
        """(variance, df, df of seeds) of both statements, without those that have no spread; one seed makes them one.

        The df of seeds is 0 for the statement about the trainings at hand.
        """
        both = dict.fromkeys([(self.variance, self.df, self.seed_df), (self.problem_variance, self.problem_df, 0.0)])
        return [one for one in both if not one[0] <= NO_SPREAD]  # NaN stays

    @property
    def _chance_of_no_spread(self) -> float:
        """Of N values that are ±v with equal chances: that all have one sign; N of the smallest dataset."""
        return float(2.0**-self.problem_df)


def mean(values: ArrayLike | Sequence[Floats]) -> Estimate:
    """The mean of one policy's values [seeds, problems], or [problems] of a single one.

    A list of such arrays stands for several datasets, which get equal weight; their seeds must be the same, in the same
    order. A list of numbers is one array.
    """
    return _estimate([_matrices(values)])


def difference(a: ArrayLike | Sequence[Floats], b: ArrayLike | Sequence[Floats]) -> Estimate:
    """Mean of a − mean of b on the same problems; arguments as those of `mean`. Numbers of seeds may differ.

    A policy without seeds of its own, such as the base model, is one row: it contributes no spread between seeds.
    """
    first, second = _matrices(a), _matrices(b)
    if [one.shape[1] for one in first] != [one.shape[1] for one in second]:
        shapes = [[one.shape for one in side] for side in (first, second)]
        raise ValueError(f"a and b must have the same problems, got shapes {shapes[0]} and {shapes[1]}")
    return _estimate([first, second])


def _matrices(values: ArrayLike | Sequence[Floats]) -> list[Floats]:
    """Arrays [seeds, problems], one per dataset."""
    found = [np.atleast_2d(one) for one in _datasets(values)]
    if any(one.ndim != 2 for one in found) or len({len(one) for one in found}) != 1:
        raise ValueError(f"values must be [seeds, problems], alike in seeds, got {[one.shape for one in found]}")
    return found


def _estimate(sides: Sequence[Sequence[Floats]]) -> Estimate:
    """Of one side's mean, or of the first side's minus the second's; each side holds one matrix per dataset."""
    datasets = len(sides[0])
    per_problem = [sides[0][i].mean(axis=0) - sum(side[i].mean(axis=0) for side in sides[1:]) for i in range(datasets)]
    value = float(np.mean([one.mean() for one in per_problem]))
    value = value if abs(value) > ROUNDING else 0.0
    of_problems = [one.var(ddof=1) / len(one) / datasets**2 if len(one) > 1 else math.nan for one in per_problem]
    fixed = float(sum(of_problems)), satterthwaite(of_problems, [len(one) - 1 for one in per_problem])
    seeded = [side for side in sides if len(side[0]) > 1]
    if not seeded:
        return Estimate(value, *fixed, *fixed, seed_df=0)
    dfs = [(len(one) - 1) / (1 + PER_KURTOSIS * _excess_kurtosis(one)) for one in per_problem]
    seed_df = satterthwaite([1 / len(side[0]) for side in seeded], [len(side[0]) - 1 for side in seeded])
    of_seeds = sum(np.mean([one.mean(axis=1) for one in side], axis=0).var(ddof=1) / len(side[0]) for side in seeded)
    of_both = sum(interaction(one) / one.size for side in seeded for one in side) / datasets**2
    variance, df = combined(sum(of_problems), of_seeds, of_both, satterthwaite(of_problems, dfs), seed_df)
    return Estimate(value, float(variance), float(df), *fixed, seed_df=seed_df)


def combined(
    of_problems: ArrayLike, of_seeds: ArrayLike, interaction: ArrayLike, problem_df: ArrayLike, seed_df: float
) -> tuple[Floats, Floats]:
    """Variance of a mean over problems and seeds from its mean squares, and its degrees of freedom; all broadcast.

    The interaction is part of both mean squares, so it is subtracted once. With w the fraction of V_seeds in the
    variance V,

        1/df = w²·(1 + 4/df_seeds·(1 − w)) / df_seeds + (1 − w)² / df_problems.

    Satterthwaite (1946) has w² alone, for the true w. An estimated w is too small whenever V_seeds is, and with two
    seeds a test of 5 % then rejects up to 7.8 %; with the factor in brackets 4.4–5.6 % at every true w, and 4.7–5.1 %
    with three seeds. With a single degree of freedom (two seeds against the base model) √w takes the place of the
    numerator: 1.7–6.5 %.
    """
    problems, seeds, both = (np.asarray(one, dtype=np.float64) for one in (of_problems, of_seeds, interaction))
    variance = np.maximum(problems - both + seeds, LEAST_OF_SEEDS * seeds)
    w = np.minimum(1.0, np.divide(seeds, variance, out=np.zeros(variance.shape), where=variance > 0))
    few = np.sqrt(w) if seed_df < 2 else w**2 * (1 + 4 / seed_df * (1 - w))
    return variance, np.maximum(1.0, 1 / (few / seed_df + (1 - w) ** 2 / np.asarray(problem_df)))


def critical(alpha: float, df: float, seed_df: float) -> float:
    """How many standard deviations a two-sided test at `alpha` asks for; `df` and `seed_df` as in `Estimate`.

    Student's t at `df`; but below 5 % its tail is that of the seeds' df, where this is the smaller one:

        t(alpha; heavy) · t(0.05; df) / t(0.05; heavy), heavy = min(df, df_seeds).

    The estimated df is large where V_seeds happens to be small. With two seeds and the tail of t at `df`, a test of 1 %
    therefore rejects up to 2.2 %, and one of 0.1 % up to 0.94 %; with this tail 1.03 % and 0.10 %
    (`benchmarks/interval_tails.py`).
    """
    if not seed_df or alpha >= TAIL:
        return float(t_quantile(alpha, df))
    heavy = min(df, seed_df)
    return float(t_quantile(alpha, heavy) * t_quantile(TAIL, df) / t_quantile(TAIL, heavy))


def tail(t: float, df: float, seed_df: float) -> float:
    """The level at which `critical` is t: the two-sided p-value."""
    p = t_tail(t, df)
    if not seed_df or p >= TAIL:
        return p
    heavy = min(df, seed_df)
    return t_tail(t * float(t_quantile(TAIL, heavy) / t_quantile(TAIL, df)), heavy)


def interaction(values: Floats) -> float:
    """Mean square of what neither a problem nor a seed explains, of values [seeds, problems]."""
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    seeds, problems = values.shape
    return float((rest**2).sum() / ((seeds - 1) * max(1, problems - 1)))


def _excess_kurtosis(values: Floats) -> float:
    """Fourth moment in units of the squared variance, minus the normal distribution's 3; 0 if tails are lighter."""
    squares = (values - values.mean()) ** 2
    return max(0.0, float((squares**2).mean() / squares.mean() ** 2 - 3)) if squares.any() else 0.0


def satterthwaite(variances: Sequence[float], dfs: Sequence[float]) -> float:
    """Degrees of freedom of a sum of independent variance estimates (Satterthwaite 1946)."""
    squares = sum(v**2 / df for v, df in zip(variances, dfs, strict=True) if df and v > 0)
    return float(sum(variances) ** 2 / squares) if squares else float(max(1, min(dfs)))


def t_quantile(alpha: ArrayLike, df: float) -> Floats:
    """Two-sided quantile of Student's t: P(|T| > t) = alpha, for df ≥ 1."""
    angles, tails = _t_tails(round(df, 3))
    return np.asarray(math.sqrt(df) * np.tan(np.interp(-np.asarray(alpha), -tails, angles)))


def t_tail(t: float, df: float) -> float:
    """P(|T| > t) of Student's t, for df ≥ 1."""
    angles, tails = _t_tails(round(df, 3))
    return float(np.interp(math.atan(t / math.sqrt(df)), angles, tails))


@lru_cache(maxsize=128)
def _t_tails(df: float) -> tuple[Floats, Floats]:
    """P(|T| > √df · tan θ) at angles θ: with this substitution the density is proportional to cos^(df − 1) θ."""
    if df < 50:
        angles = math.pi / 2 * (1 - np.linspace(1, 0, 4_001) ** 2)  # denser where tails are small
    else:
        angles = np.linspace(0, math.atan(40 / math.sqrt(df)), 4_001)  # nothing lies beyond t = 40
    density = np.cos(angles) ** (df - 1)
    areas = np.cumsum(((density[1:] + density[:-1]) * np.diff(angles))[::-1])[::-1]
    return angles, np.append(areas, 0.0) / areas[0]


def sign_flip_p(differences: ArrayLike | Sequence[Floats], flips: int = 10_000, seed: int = 0) -> float:
    """Two-sided p-value of "the mean paired difference is 0", by flips of the signs of differences [problems].

    The permutation test of the mean itself: the fraction of flips whose mean is at least as far from 0. Flips are
    random, with the given signs counted as one of them; all are taken if they are no more than `flips`. A list of
    arrays stands for several datasets with equal weight.
    """
    arrays = _datasets(differences)
    observed = abs(sum(one.mean() for one in arrays))
    if 2 ** sum(map(len, arrays)) <= flips:
        return float((np.abs(_all_flipped(arrays)) >= observed - ROUNDING).mean())
    parts = [[signs @ one / len(one) for signs in _signs(len(one), flips, seed + i)] for i, one in enumerate(arrays)]
    flipped = sum(map(np.concatenate, parts))
    return float(1 + (np.abs(flipped) >= observed - ROUNDING).sum()) / (flips + 1)


def _all_flipped(arrays: Sequence[Floats]) -> Floats:
    """The sum of means for every choice of signs."""
    flipped = np.zeros(1)
    for part in (value / len(one) for one in arrays for value in one):
        flipped = np.concatenate([flipped + part, flipped - part])
    return flipped


@cache
def _signs(problems: int, flips: int, seed: int) -> list[NDArray[np.int8]]:
    """Random signs [flips, problems] in parts of 100 flips; kept, because every comparison on a dataset takes the same.

    A sign is a byte: 200 MB for 20,000 problems. Only the part in use is converted to numbers of 8 bytes.
    """
    rng = np.random.default_rng(seed)
    return [rng.choice(np.array([-1, 1], np.int8), (min(100, flips - done), problems)) for done in range(0, flips, 100)]


# ---- the k from which one policy is better than another
class Crossing(NamedTuple):
    """The k from which the mean of a is above that of b, for all larger k as well; None: at no k that was given.

    `low` is the smallest k at which b is not shown to be better, `high` the smallest from which on a is. Whatever the
    true crossing is, the interval of the difference there holds 0 with the probability `level`, so [low, high] holds
    the crossing with this probability if the true curves cross once.
    """

    k: int | None
    low: int | None
    high: int | None


def crossing(a: ArrayLike, b: ArrayLike, ks: Sequence[int], level: float = 0.95) -> Crossing:
    """Where the curve of a crosses that of b from below; values [seeds, problems, ks] or [problems, ks], ks ascending.

    Problems are paired and seeds crossed as in `difference`. With one seed it is the crossing of these two policies.
    """
    first, second = _finite(a), _finite(b)
    if not first.shape[-1] == second.shape[-1] == len(ks) or list(ks) != sorted(set(ks)):
        got = f"{first.shape} and {second.shape} with ks {list(ks)}"
        raise ValueError(f"a and b must be [..., problems, ks], ks ascending, got shapes {got}")

    @cache  # not all k are needed, and each takes a while
    def at(i: int) -> tuple[float, float, float]:
        found = difference(first[..., i], second[..., i])
        return found.value, *found.interval(level)

    return Crossing(
        k=_from_there_on(lambda i: at(i)[0] > 0, ks),
        low=next((k for i, k in enumerate(ks) if not at(i)[2] < 0), None),
        high=_from_there_on(lambda i: at(i)[1] > 0, ks),
    )


def _from_there_on(holds: Callable[[int], bool], ks: Sequence[int]) -> int | None:
    """The smallest k from whose index on something holds; None if it does not at the largest."""
    failing = next((i for i in reversed(range(len(ks))) if not holds(i)), -1)
    return ks[failing + 1] if failing + 1 < len(ks) else None


# ---- Wilcoxon's signed-rank test
class SignedRank(NamedTuple):
    """Wilcoxon's signed-rank test: two-sided p-value, pairs in which either side is greater, effect size.

    The effect is the matched-pairs rank-biserial correlation (Kerby 2014), (W+ − W−)/(W+ + W−), in [−1, 1].
    """

    p_value: float
    greater: int
    less: int
    rank_biserial: float

    @property
    def differing(self) -> int:
        """Pairs that the test uses: zero differences are dropped."""
        return self.greater + self.less


def wilcoxon_signed_rank(a: ArrayLike, b: ArrayLike) -> SignedRank:
    """Two-sided Wilcoxon signed-rank test of paired values [problems]: the paper's test, as `scipy.stats.wilcoxon`.

    Zero differences are dropped and ties share the mean rank; differences are rounded to 12 decimals, so rounding noise
    neither counts as a difference nor breaks ties. Without any difference p = 1. The p-value is exact up to 50
    differing pairs, ties included, and scipy's tie-corrected normal approximation above. (Given zeros, scipy
    approximates from 14 pairs on, however few of them differ: five equal differences among 20 pairs have p = 0.025
    there, exactly 0.0625.)
    With fewer than 6 differing pairs p is never below 0.05.
    """
    first, second = _finite(a), _finite(b)
    if first.ndim != 1 or first.shape != second.shape:
        got = f"{first.shape} and {second.shape}"
        raise ValueError(f"a and b must be [problems] of equal length, got shapes {got}")
    difference = np.round(first - second, 12)
    difference = difference[difference != 0]
    if len(difference) == 0:
        return SignedRank(1.0, 0, 0, 0.0)
    above = difference > 0
    doubled = _doubled_ranks(np.abs(difference))
    plus, minus = int(doubled[above].sum()), int(doubled[~above].sum())
    p_value = (_exact_p if len(difference) <= LARGEST_EXACT else _normal_p)(doubled, plus)
    greater = int(above.sum())
    return SignedRank(p_value, greater, len(difference) - greater, (plus - minus) / (plus + minus))


def _doubled_ranks(values: Floats) -> NDArray[np.int64]:
    """Twice the rank of each value, ties sharing their mean: whole numbers."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((2 * last - counts + 1)[which], dtype=np.int64)


def _exact_p(doubled: NDArray[np.int64], plus: int) -> float:
    """Two-sided p of a sum `plus` of positive ranks: all 2ⁿ sign patterns, counted by their sum."""
    ways = np.zeros(int(doubled.sum()) + 1)
    ways[0] = 1
    for rank in doubled:
        ways[rank:] += ways[:-rank].copy()
    tail = min(ways[: plus + 1].sum(), ways[plus:].sum())
    return min(1.0, 2 * float(tail) / 2.0 ** len(doubled))


def _normal_p(doubled: NDArray[np.int64], plus: int) -> float:
    """The same by the normal approximation: W+ − W− has mean 0 and variance Σ r², ties included."""
    difference = 2 * plus - int(doubled.sum())
    return math.erfc(abs(difference) / math.sqrt(2 * float((doubled**2).sum())))


# ---- several comparisons
def holm(p_values: ArrayLike) -> Floats:
    """Holm's step-down adjusted p-values (1979), in the order given: controls the family-wise error.

    The i-th smallest of m is multiplied by m − i + 1, then made monotone and capped at 1.
    """
    p = _finite(p_values)
    if p.ndim != 1 or ((p < 0) | (p > 1)).any():
        raise ValueError(f"p-values must be a list of numbers in [0, 1], got {p_values!r}")
    order = np.argsort(p)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted


def _datasets(values: Any) -> list[Floats]:
    """One array per dataset: the arrays of a list of arrays, or else the values as one array."""
    several = isinstance(values, list | tuple) and any(isinstance(one, np.ndarray) for one in values)
    return [_finite(one) for one in (values if several else [values])]


def _finite(values: ArrayLike) -> Floats:
    if np.ma.is_masked(values):
        raise ValueError("values have masked entries, which numpy would take silently; select those that count")
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"values must be finite and at least one, got {array.size} of shape {array.shape}")
    return array
