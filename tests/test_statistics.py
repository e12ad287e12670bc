"""Intervals and tests against hand-computed values and scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from maxk.statistics import (
    bootstrap_means,
    bootstrap_p,
    bootstrap_seeds,
    holm,
    percentile_interval,
    wilcoxon_signed_rank,
)


# ---- bootstrap
def interval(values, level=0.95, resamples=10_000, seed=0):
    return percentile_interval(bootstrap_means(values, resamples, seed), level)


def seeds_interval(values, level=0.95, resamples=10_000, seed=0):
    """Of values [seeds, problems]."""
    over_problems = bootstrap_means(np.transpose(values), resamples, seed)
    return percentile_interval(bootstrap_seeds(over_problems, seed), level)


def test_bootstrap_interval_matches_the_normal_approximation_for_many_problems():
    values = np.random.default_rng(0).random(2_000)
    spread = stats.norm.ppf(0.95) * values.std() / math.sqrt(len(values))
    low, high = interval(values, level=0.9, resamples=4_000)
    assert low == pytest.approx(values.mean() - spread, abs=0.1 * spread)
    assert high == pytest.approx(values.mean() + spread, abs=0.1 * spread)


def test_bootstrap_of_two_problems_has_the_exact_distribution():
    # Means of two draws from {0, 1}: 0, ½, 1 with chances ¼, ½, ¼.
    assert interval([0.0, 1.0], level=0.4, resamples=2_000) == (0.5, 0.5)
    assert interval([0.0, 1.0], level=0.6, resamples=2_000) == (0.0, 1.0)


def test_columns_share_their_resamples_and_seeds_repeat():
    values = np.random.default_rng(0).random((30, 3))
    means = bootstrap_means(values, 1_200, seed=5)
    assert means.shape == (1_200, 3)
    np.testing.assert_allclose(means[:, 1], bootstrap_means(values[:, 1], 1_200, seed=5))
    np.testing.assert_array_equal(means, bootstrap_means(values, 1_200, seed=5))


def test_one_seed_is_the_bootstrap_over_problems():
    values = np.random.default_rng(0).random(40)
    assert seeds_interval(values[None], seed=3) == pytest.approx(interval(values, seed=3))


def test_seeds_and_problems_are_crossed_factors():
    """The variance of the mean is that of problems' means, of seeds' means and of the rest, each by its own count."""
    values = np.random.default_rng(1).random((4, 30)) + np.linspace(0, 1, 30) + np.array([[0.0], [0.3], [0.5], [0.9]])
    replicates = bootstrap_seeds(bootstrap_means(values.T, 20_000, seed=0), seed=1)
    problems, seeds = values.mean(axis=0), values.mean(axis=1)
    rest = values - problems - seeds[:, None] + values.mean()
    expected = problems.var() / 30 + seeds.var() / 4 + rest.var() / 120
    assert replicates.mean() == pytest.approx(values.mean(), abs=0.01)
    assert replicates.var() == pytest.approx(expected, rel=0.05)


def test_a_constant_has_an_interval_of_no_width():
    assert interval([0.25] * 7) == (0.25, 0.25)


@pytest.mark.parametrize("call", [interval, holm])
def test_statistics_refuse_what_is_not_finite_or_empty(call):
    for values in ([], [[float("nan"), 1.0]]):
        with pytest.raises(ValueError, match="finite"):
            call(values)


def test_paired_differences_show_a_shift_that_unpaired_intervals_hide():
    rng = np.random.default_rng(0)
    hard = rng.random(60)
    better = np.clip(hard + 0.02 + 0.01 * rng.standard_normal(60), 0, 1)
    first, second = (bootstrap_means(values, 10_000, seed=0) for values in (better, hard))
    low, high = percentile_interval(first - second, 0.95)
    assert 0 < low < (better - hard).mean() < high
    assert percentile_interval(second, 0.95)[1] > percentile_interval(first, 0.95)[0]
    assert bootstrap_p(first - second) == bootstrap_p(second - first) == pytest.approx(2 / 10_001)


def test_bootstrap_of_equal_policies_is_not_significant():
    assert bootstrap_p(np.zeros(100)) == 1
    assert bootstrap_p([1e-15, -1e-15, 1e-15]) == 1  # rounding is no difference


# ---- Wilcoxon, Holm
def test_wilcoxon_by_hand():
    # Differences 1, 2, 3, 4, −5: ranks 1..5, W− = 5. P(W ≤ 5) over the 2⁵ sign patterns is 10/32.
    a, b = np.array([1.0, 2, 3, 4, 0]), np.array([0.0, 0, 0, 0, 5])
    assert wilcoxon_signed_rank(a, b) == (2 * 10 / 32, 4, 1, (10 - 5) / 15)


@pytest.mark.parametrize(("n", "steps"), [(7, 4), (11, 10), (10, 0), (50, 0), (51, 0), (51, 5), (400, 8)])
def test_wilcoxon_equals_scipy_on_pairs_that_differ(n: int, steps: int):
    """With ties (steps > 0) and without; scipy is exact with ties where it goes through all 2ⁿ signs."""
    rng = np.random.default_rng(n)
    difference = rng.normal(0.3, 1, n)
    if steps:
        difference = np.sign(difference) * np.ceil(np.abs(difference) * steps) / steps
    every_sign = stats.PermutationMethod(n_resamples=2**n) if steps and n <= 50 else "auto"
    expected = stats.wilcoxon(difference, method=every_sign)
    zeros = np.zeros(30)  # are dropped, and do not make an approximation of an exact p
    result = wilcoxon_signed_rank(np.concatenate([difference, zeros]), np.zeros(n + 30))
    assert result.p_value == pytest.approx(expected.pvalue, rel=1e-9)


def test_wilcoxon_of_fewer_than_six_differing_pairs_is_never_significant():
    """scipy, given the zeros, approximates: p = 0.025 for five equal differences among 20 pairs."""
    for differing in range(1, 6):
        a = np.concatenate([np.full(differing, 0.125), np.zeros(15)])
        assert wilcoxon_signed_rank(a, np.zeros(len(a))).p_value == 2 / 2**differing
    assert wilcoxon_signed_rank(np.full(6, 0.125), np.zeros(6)).p_value == 2 / 2**6


def test_wilcoxon_without_differences_says_so():
    assert wilcoxon_signed_rank([0.1, 0.2], [0.1, 0.2]) == (1, 0, 0, 0)
    assert wilcoxon_signed_rank([0.1 + 0.2], [0.3]).differing == 0  # rounding is no difference


def test_wilcoxon_drops_zeros_and_ranks_ties_together():
    # |d| = 1, 1, 2 after dropping zeros: ranks 1.5, 1.5, 3; W− = 1.5. Rounding must not break the tie.
    result = wilcoxon_signed_rank([0.3, 0.1, 0.4, 0.7, 0.7], [0.2, 0.2, 0.2, 0.7, 0.7])
    assert result.differing == 3
    assert result.rank_biserial == pytest.approx((4.5 - 1.5) / 6)
    assert result.p_value == 2 * 3 / 8  # W− ≤ 1.5 with the signs +++, −++, +−+


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.6, 0.7]), [1, 1])
    np.testing.assert_allclose(holm([0.03]), [0.03])
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        holm([0.5, 1.5])
