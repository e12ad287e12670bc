"""Estimators against math.comb and enumeration; statistics against hand-computed values and scipy."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import enumeration
from maxk.estimators import (
    best_of_k_weights,
    bootstrap_means,
    bootstrap_p,
    bootstrap_seeds,
    holm,
    max_at_k,
    pass_at_k,
    percentile_interval,
    wilcoxon_signed_rank,
)

fractions = st.integers(0, 8).map(lambda passed: passed / 8)  # rewards as they come: share of tests passed, with ties


# ---- max@k
@given(st.lists(fractions, min_size=1, max_size=8))
def test_max_at_k_is_the_mean_over_all_subsets(rewards):
    ks = range(1, len(rewards) + 1)
    expected = [enumeration.max_at_k(rewards, k) for k in ks]
    np.testing.assert_allclose(max_at_k(rewards, list(ks)), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 256, 1030, 10_000])
def test_weights_agree_with_exact_binomials(n):
    for k in {1, min(2, n), min(128, n), n // 2 or 1, n}:
        weights = best_of_k_weights(n, k)
        for i in {k, min(k + 1, n), (k + n) // 2, n}:
            exact = Fraction(math.comb(i - 1, k - 1), math.comb(n, k))
            assert weights[i - 1] == pytest.approx(float(exact), rel=1e-12, abs=1e-300)
        assert not weights[: k - 1].any()
        assert weights.sum() == pytest.approx(1, abs=1e-12)


def test_shapes_of_one_and_several_k():
    rewards = np.random.default_rng(0).random((5, 3, 16))
    assert max_at_k(rewards, 4).shape == (5, 3)
    assert max_at_k(rewards, [1, 4]).shape == (5, 3, 2)
    assert max_at_k(rewards[0, 0], 4).shape == ()
    np.testing.assert_allclose(max_at_k(rewards, [1, 4])[..., 1], max_at_k(rewards, 4), rtol=1e-14)


@given(st.lists(fractions, min_size=2, max_size=40), st.randoms())
def test_max_at_k_ignores_order_and_grows_with_k_from_mean_to_max(rewards, random):
    shuffled = random.sample(rewards, len(rewards))
    curve = max_at_k(rewards, range(1, len(rewards) + 1))
    np.testing.assert_array_equal(curve, max_at_k(shuffled, range(1, len(rewards) + 1)))
    assert curve[0] == pytest.approx(np.mean(rewards))
    assert curve[-1] == max(rewards)
    assert (np.diff(curve) >= -1e-12).all()


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("n", [1, 256, 10_000])
def test_constant_rewards_stay_exactly_constant(value, n):
    assert (max_at_k(np.full((2, n), value), [1, (n + 1) // 2, n]) == value).all()


@pytest.mark.parametrize(
    ("rewards", "k", "message"),
    [
        ([0.5, 1.0], 3, r"k = 3 with n = 2"),
        ([0.5, 1.0], 0, r"k = 0 with n = 2"),
        ([0.5, 1.0], 1.5, r"k must be whole numbers, got .*1\.5"),
        ([], 1, r"n ≥ 1 samples, got shape \(0,\)"),
        (1.0, 1, r"got shape \(\)"),
        (
            [[0.5, 1.0], [0.0, float("nan")]],
            1,
            r"reward nan \(NaN: could not be graded\) of sample 1 in row 1",
        ),
        (
            [[[0.5, 1.0]], [[1.25, 1.0]]],
            1,
            r"reward 1\.25 of sample 0 in row 1, 0; rewards must lie in \[0, 1\]",
        ),
        ([-0.1, 1.0], 1, r"reward -0\.1 of sample 0; rewards"),
    ],
)
def test_bad_input_names_what_was_got_and_where(rewards, k, message):
    with pytest.raises(ValueError, match=message):
        max_at_k(rewards, k)


# ---- pass@k
def test_pass_at_k_equals_the_formula_for_every_small_case():
    for n in range(1, 13):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
            assert pass_at_k(n, c, k) == pytest.approx(float(exact), rel=1e-14)


@pytest.mark.parametrize(("n", "c", "k"), [(256, 1, 1), (256, 3, 128), (10_000, 1, 1), (10_000, 17, 5_000)])
def test_pass_at_k_keeps_full_precision_for_many_samples(n, c, k):
    exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
    assert pass_at_k(n, c, k) == pytest.approx(float(exact), rel=1e-12)


def test_pass_at_k_broadcasts_and_equals_max_at_k_of_binary_rewards():
    rewards = np.random.default_rng(1).random((7, 20)) < 0.3
    ks = np.array([1, 2, 5, 20])
    passes = pass_at_k(20, rewards.sum(axis=1)[:, None], ks)
    assert passes.shape == (7, 4)
    np.testing.assert_allclose(passes, max_at_k(rewards, ks), atol=1e-14)


def test_pass_at_k_is_exactly_zero_without_and_one_with_enough_right_samples():
    assert pass_at_k(256, 0, [1, 256]).tolist() == [0, 0]
    assert pass_at_k(256, [129, 256], 128).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("n", "c", "k", "message"),
    [
        (2, 1, 3, "k = 3 with n = 2"),
        (0, 0, 1, "k = 1 with n = 0"),
        (4, [1, 5], 2, r"c = 5, n = 4 in row 1"),
        (4, -1, 2, "c = -1"),
        (4, 0.5, 2, "c must be whole numbers"),
    ],
)
def test_pass_at_k_refuses(n, c, k, message):
    with pytest.raises(ValueError, match=message):
        pass_at_k(n, c, k)


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
    assert wilcoxon_signed_rank(a, b) == (5, 2 * 10 / 32, 4, 1, (10 - 5) / 15)


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
    assert (result.statistic, result.p_value) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)


def test_wilcoxon_of_fewer_than_six_differing_pairs_is_never_significant():
    """scipy, given the zeros, approximates: p = 0.025 for five equal differences among 20 pairs."""
    for differing in range(1, 6):
        a = np.concatenate([np.full(differing, 0.125), np.zeros(15)])
        assert wilcoxon_signed_rank(a, np.zeros(len(a))).p_value == 2 / 2**differing
    assert wilcoxon_signed_rank(np.full(6, 0.125), np.zeros(6)).p_value == 2 / 2**6


def test_wilcoxon_without_differences_says_so():
    assert wilcoxon_signed_rank([0.1, 0.2], [0.1, 0.2]) == (0, 1, 0, 0, 0)
    assert wilcoxon_signed_rank([0.1 + 0.2], [0.3]).differing == 0  # rounding is no difference


def test_wilcoxon_drops_zeros_and_ranks_ties_together():
    # |d| = 1, 1, 2 after dropping zeros: ranks 1.5, 1.5, 3; W− = 1.5. Rounding must not break the tie.
    result = wilcoxon_signed_rank([0.3, 0.1, 0.4, 0.7, 0.7], [0.2, 0.2, 0.2, 0.7, 0.7])
    assert (result.statistic, result.differing) == (1.5, 3)
    assert result.rank_biserial == pytest.approx((4.5 - 1.5) / 6)
    assert result.p_value == 2 * 3 / 8  # W− ≤ 1.5 with the signs +++, −++, +−+


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.6, 0.7]), [1, 1])
    np.testing.assert_allclose(holm([0.03]), [0.03])
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        holm([0.5, 1.5])
