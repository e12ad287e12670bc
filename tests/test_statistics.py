"""Intervals and tests against hand-computed values and scipy."""

import importlib.util
import itertools
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from maxk.reporting import markdown
from maxk.statistics import (
    Crossing,
    combined,
    critical,
    crossing,
    difference,
    holm,
    mean,
    sign_flip_p,
    t_quantile,
    tail,
    wilcoxon_signed_rank,
)

# The simulation behind the coverage that is promised; benchmarks are scripts, not a package.
_SPEC = importlib.util.spec_from_file_location("intervals", Path(__file__).parents[1] / "benchmarks" / "intervals.py")
intervals = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(intervals)


# ---- means and differences
rng = np.random.default_rng(0)


def crossed(seeds, problems, problem_sd=0.3, seed_sd=0.1, rest_sd=0.05, seed=0):
    """Values [seeds, problems] of a crossed random-effects model."""
    draw = np.random.default_rng(seed)
    parts = draw.normal(0, problem_sd, problems), draw.normal(0, seed_sd, (seeds, 1))
    return sum(parts) + draw.normal(0, rest_sd, (seeds, problems))


def test_one_row_is_the_t_test():
    values = rng.normal(0.1, 1, 30)
    expected = stats.ttest_1samp(values, 0)
    for found in (mean(values), mean([values]), mean(values[None]), difference(values + 2, np.full(30, 2.0))):
        assert found.p_value() == pytest.approx(expected.pvalue, rel=1e-4)
        assert found.interval(0.9) == pytest.approx(expected.confidence_interval(0.9), rel=1e-4)
        assert found.seed_df == 0


def test_variance_is_that_of_the_two_way_analysis_of_variance():
    """N·S·V = MS_problems + MS_seeds − MS_rest, by its mean squares."""
    values = crossed(4, 25)
    seeds, problems = values.shape
    of_problems, of_seeds, grand = values.mean(axis=0), values.mean(axis=1), values.mean()
    ms_problems = seeds * ((of_problems - grand) ** 2).sum() / (problems - 1)
    ms_seeds = problems * ((of_seeds - grand) ** 2).sum() / (seeds - 1)
    total = ((values - grand) ** 2).sum()
    ms_rest = (total - ms_problems * (problems - 1) - ms_seeds * (seeds - 1)) / ((problems - 1) * (seeds - 1))
    found = mean(values)
    assert found.variance * seeds * problems == pytest.approx(ms_problems + ms_seeds - ms_rest)
    assert found.seed_df == seeds - 1
    half = stats.t.ppf(0.975, found.df) * math.sqrt(found.variance)
    assert found.interval(0.95) == pytest.approx((grand - half, grand + half), rel=1e-4)
    assert found.p_value() == pytest.approx(2 * stats.t.sf(abs(grand) / math.sqrt(found.variance), found.df), rel=1e-3)


def test_degrees_of_freedom_run_from_those_of_seeds_to_those_of_problems():
    assert combined(1.0, 0.0, 0.0, 19, 4) == (1, pytest.approx(19))  # nothing varies with the seed
    assert combined(0.0, 1.0, 0.0, 19, 4) == (1, pytest.approx(4))  # nothing else does
    assert combined(0.5, 0.5, 0.0, 10, 4)[1] == pytest.approx(1 / (0.25 * 1.5 / 4 + 0.25 / 10))
    assert combined(0.5, 0.5, 0.0, 10, 1)[1] == pytest.approx(1 / (math.sqrt(0.5) + 0.25 / 10))
    np.testing.assert_allclose(combined(1.0, [0.5, 2.0], [1.0, 1.0], 10, 4)[0], [0.5, 2.0])  # counted twice, so once
    assert combined(0.2, 1.0, 0.9, 10, 4)[0] == 0.75  # not below three quarters of the seeds' part


@pytest.mark.parametrize(("seed_df", "lowest", "highest"), [(1, 1.5, 6.7), (2, 4.3, 5.8), (4, 4.6, 5.3), (8, 4.8, 5.2)])
@pytest.mark.parametrize("interaction", [0.0, 0.35, 0.75])
def test_a_test_of_5_percent_rejects_about_that_at_every_spread_between_seeds(seed_df, lowest, highest, interaction):
    """Normal components and many problems: only the seeds' mean square is unknown. By quantiles of its distribution."""
    chances = (np.arange(2_000) + 0.5) / 2_000
    for spread in (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0):
        expected = interaction + spread
        of_seeds = expected * stats.chi2.ppf(chances, seed_df) / seed_df
        variance, df = combined(1.0, of_seeds, interaction, 1e6, seed_df)
        size = 100 * (2 * stats.norm.sf(stats.t.ppf(0.975, df) * np.sqrt(variance / (1 + spread)))).mean()
        assert lowest <= size <= highest


@pytest.mark.parametrize(("seed_df", "least", "most"), [(1, 0.5, 1.3), (2, 0.8, 1.15), (4, 0.8, 1.15), (8, 0.8, 1.15)])
@pytest.mark.parametrize("interaction", [0.0, 0.35, 0.75])
def test_tests_of_1_and_01_percent_reject_about_that(seed_df, least, most, interaction):
    """As above; by Student's t with the estimated degrees of freedom up to ten times as often."""
    chances = (np.arange(20_000) + 0.5) / 20_000
    sizes = {0.01: [], 0.001: []}
    for spread, alpha in itertools.product((0.0, 0.3, 1.0, 3.0, 10.0, 100.0, 1e4, 1e8), sizes):
        expected = interaction + spread
        of_seeds = expected * stats.chi2.ppf(chances, seed_df) / seed_df
        variance, df = combined(1.0, of_seeds, interaction, 1e6, seed_df)
        at = np.linspace(1e-6, 1, 200)
        bounds = np.interp(1 / df, at, [critical(alpha, 1 / one, seed_df) for one in at])
        size = (2 * stats.norm.sf(bounds * np.sqrt(variance / (1 + spread)))).mean()
        sizes[alpha].append(size)
    for alpha, found in sizes.items():
        assert least * alpha <= max(found) <= most * alpha


def test_p_values_below_5_percent_have_the_tail_of_the_seeds():
    """Twice the distance at which p is 0.05 has the p-value of twice that distance for t at the seeds' df."""
    at_5_percent = critical(0.05, 30, 2)
    assert tail(at_5_percent, 30, 2) == pytest.approx(0.05)
    assert tail(2 * at_5_percent, 30, 2) == pytest.approx(2 * stats.t.sf(2 * stats.t.isf(0.025, 2), 2), rel=1e-3)
    assert tail(2 * at_5_percent, 30, 0) == pytest.approx(2 * stats.t.sf(2 * stats.t.isf(0.025, 30), 30), rel=1e-3)
    for p in (0.3, 0.05, 0.01, 1e-4):
        assert tail(critical(p, 30, 2), 30, 2) == pytest.approx(p, rel=1e-3)


@pytest.mark.parametrize("alpha", [0.01, 0.001])
def test_the_tail_of_the_seeds_never_makes_a_test_less_strict(alpha):
    """Where heavy tails over problems leave fewer degrees of freedom than the seeds have, these stay."""
    for df, seed_df in itertools.product((1.5, 3, 8, 30), (1, 2, 8, 18)):
        assert critical(alpha, df, seed_df) >= 0.9999 * critical(alpha, df, 0)
    assert critical(alpha, 3, 8) == pytest.approx(stats.t.isf(alpha / 2, 3), rel=1e-3)


def test_heavy_tails_over_problems_lower_the_degrees_of_freedom_of_a_comparison_of_methods():
    """Excess kurtosis κ leaves (N − 1)/(1 + 1.5 κ); a few problems that gain much are such a tail."""
    values = np.zeros((2, 40))
    values[:, :4] = 1.0
    found = mean(values)  # seeds agree, so that all of the variance is that of problems
    kurtosis = stats.kurtosis(values[0])
    assert found.df == pytest.approx(39 / (1 + 1.5 * kurtosis))
    assert mean(values[0]).df == 39  # two trainings: the plain t-test


def test_problems_are_paired_and_seeds_are_not():
    """Policies that differ by a constant: no spread over problems, but all that between their seeds."""
    a, seeds = crossed(3, 20, rest_sd=0.0), np.array([[0.0], [0.1], [0.5]])
    found = difference(a + seeds + 0.2, a.mean(axis=0))
    assert found.value == pytest.approx((a + seeds + 0.2 - a.mean(axis=0)).mean())
    assert found.variance == pytest.approx((a + seeds).mean(axis=1).var(ddof=1) / 3)
    assert (found.seed_df, found.df) == (2, pytest.approx(2))
    both = difference(a + seeds, a)
    assert both.variance == pytest.approx(((a + seeds).mean(axis=1).var(ddof=1) + a.mean(axis=1).var(ddof=1)) / 3)
    assert both.seed_df == 4


def test_a_statement_about_methods_is_never_more_certain_than_that_about_these_trainings():
    """Two seeds that happen to agree: their mean square is far below the interaction."""
    draw = np.random.default_rng(0)
    a, b = (draw.normal(0.3, 1, (2, 50)) for _ in range(2))
    a, b = (one - one.mean(axis=1, keepdims=True) + shift for one, shift in ((a, 0.3), (b, 0.0)))
    found, trainings = difference(a, b), difference(a.mean(axis=0), b.mean(axis=0))
    assert found.variance < found.problem_variance == pytest.approx(trainings.variance)
    assert found.interval() == pytest.approx(trainings.interval())
    assert found.p_value() == pytest.approx(trainings.p_value())


def test_seeds_of_two_methods_are_pooled():
    """With equal spread, the variances 1/S of the two means are those of Welch's formula."""
    assert difference(crossed(3, 20), crossed(3, 20, seed=1)).seed_df == pytest.approx(4)
    expected = (1 / 2 + 1 / 5) ** 2 / ((1 / 2) ** 2 / 1 + (1 / 5) ** 2 / 4)
    assert difference(crossed(2, 20), crossed(5, 20, seed=1)).seed_df == pytest.approx(expected)


def test_datasets_have_equal_weight_and_share_their_seeds():
    """Seeds that are good on one dataset and bad on another cancel in the mean of both."""
    seeds = np.array([[0.2], [0.8]])
    first, second = np.tile(seeds, 6), np.tile(1 - seeds, 10)
    found = mean([first, second])
    assert found.value == pytest.approx(0.5)
    assert found.interval() == pytest.approx((0.5, 0.5))
    assert mean(first).variance == pytest.approx(0.3**2)
    one, other = rng.random(30), rng.random(50)
    found = mean([one, other])
    assert found.value == pytest.approx((one.mean() + other.mean()) / 2)
    expected = (one.var(ddof=1) / 30 + other.var(ddof=1) / 50) / 4
    assert found.variance == pytest.approx(expected)
    assert found.df == pytest.approx(stats.ttest_ind(one, other, equal_var=False).df)  # Welch's


def test_p_values_and_intervals_agree():
    found = difference(crossed(3, 40, seed=1) + 0.15, crossed(3, 40, seed=1))
    p = found.p_value()
    assert 0.001 < p < 1
    low, high = found.interval(1 - p)
    assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-3 * (high - low))


def test_rounding_is_no_difference():
    """Means that are equal but for rounding, on all problems alike, so that nothing varies."""
    a = np.full((2, 200), 0.1 + 0.2)
    assert 0 < (a - 0.3).mean() < 1e-15
    found = difference(a, np.full((2, 200), 0.3))
    assert (found.value, found.p_value(), found.interval()) == (0, 1, (0, 0))


def test_edges():
    assert difference(np.ones(5), np.ones(5)).p_value() == 1
    one_problem = mean([[0.2], [0.4]])
    assert np.isnan(one_problem.interval()).all()
    assert one_problem.p_value() == 1
    with pytest.raises(ValueError, match=r"same problems, got shapes \[\(1, 3\)\] and \[\(1, 4\)\]"):
        difference(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match="alike in seeds"):
        mean([np.ones((2, 3)), np.ones((3, 3))])
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        mean([0.1, 0.2]).interval(95)


@pytest.mark.parametrize("of", [mean, lambda values: difference(values + 0.1, np.full(values.shape, 0.1))])
@pytest.mark.parametrize("shape", [(7,), (3, 7)])
def test_equal_values_on_all_problems_are_no_certainty(of, shape):
    """Of the 2⁷ sign patterns two have a mean as far from 0. Rounding is no spread."""
    found = of(np.full(shape, 0.3))
    assert found.interval() == pytest.approx((0.3, 0.3), abs=1e-9)
    assert found.p_value() == 2 / 2**7
    assert markdown.with_ends(found.value, *found.interval()) == "0.300 [no spread]"
    assert of(np.zeros(shape)).p_value() == 1
    few = of(np.full(5, 0.3))  # five of one sign have p = 2/2⁵, above 5 %
    assert few.p_value() == 1 / 16
    assert few.interval(bounds=(-1, 1)) == (-1, 1)
    assert few.interval(0.9) == pytest.approx((0.3, 0.3), abs=1e-9)
    two = of(np.append(np.full(6, 0.3), 0.31))  # the smallest spread is one
    assert two.p_value() < 1e-6
    assert "no spread" not in markdown.with_ends(two.value, *two.interval())


@pytest.mark.parametrize("df", [1, 2, 2.5, 7, 99, 999])
def test_t_quantiles_are_scipys(df):
    alphas = [1e-5, 0.01, 0.05, 0.5, 0.99]
    np.testing.assert_allclose(t_quantile(alphas, df), stats.t.isf(np.array(alphas) / 2, df), rtol=2e-4)


@pytest.mark.parametrize("call", [mean, holm, sign_flip_p])
def test_statistics_refuse_what_is_not_finite_or_empty(call):
    for values in ([], [[float("nan"), 1.0]]):
        with pytest.raises(ValueError, match="finite"):
            call(values)


@pytest.mark.parametrize(("case", "sd"), [("equal", 0.0), ("equal", 0.016), ("better", 0.006), ("skewed", 0.0)])
def test_intervals_cover_what_they_claim(case, sd):
    """`benchmarks/intervals.py` on one size; 93–97 % but for the Monte Carlo error of 400 data sets (1.1 %)."""
    covered, _ = intervals.crossed_cell(case, problems=100, seeds=3, sd=sd, datasets=400)
    assert 93 - 2 <= covered <= 97 + 2


def test_the_simulated_intervals_are_those_of_the_tables():
    """The benchmark computes them for many data sets at once."""
    [values] = intervals.draw(np.random.default_rng(0), "skewed", 20, 3, 0.307, datasets=30)
    for one, found, half in zip(values, *intervals.intervals(values), strict=True):
        low, high = difference(one[1], one[0]).interval()
        assert (found - half, found + half) == pytest.approx((low, high), abs=1e-3 * half)


# ---- sign flips
def test_sign_flips_are_the_permutation_test_of_the_mean():
    """Against all 2^8 sign patterns."""
    values = np.array([0.5, -0.25, 0.75, 0.5, 0.0, 1.0, 0.25, -0.5])
    signs = np.array(list(itertools.product([-1, 1], repeat=8)))
    exact = (np.abs(signs @ values) >= abs(values.sum()) - 1e-12).mean()
    assert sign_flip_p(values, flips=255) == pytest.approx(exact, abs=0.1)  # random
    assert sign_flip_p(values) == exact  # all of them
    assert sign_flip_p([values[:3], values[3:]]) >= 2 / 2**8
    assert sign_flip_p([0.5, 0.7]) == 0.5  # the least that two problems allow
    assert sign_flip_p(-values) == sign_flip_p(values)
    assert sign_flip_p(np.zeros(5)) == 1
    assert sign_flip_p(np.full(40, 0.1), flips=999) == 1 / 1000


def test_sign_flips_of_datasets_weigh_them_equally():
    many, few = rng.normal(0, 0.1, 400), np.array([0.5, 0.6, 0.7, 0.4, 0.5, 0.6])
    assert sign_flip_p([many, few]) < 0.05 < sign_flip_p(np.concatenate([many, few]))


def test_sign_flips_of_many_problems_need_a_byte_per_sign():
    """With the p-value of the same signs as numbers of 8 bytes."""
    flips, values = 1050, np.random.default_rng(5).normal(0.02, 1, 3001)
    tracemalloc.start()
    p = sign_flip_p(values, flips, seed=7)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    signs = np.random.default_rng(7).choice([-1.0, 1.0], (flips, len(values)))
    assert p == (1 + (np.abs(signs @ values) >= abs(values.sum()) - 1e-9).sum()) / (flips + 1)
    assert 0.01 < p < 0.9
    assert peak < 2.5 * flips * len(values)


def test_equal_means_with_skewed_differences_mislead_wilcoxon_but_not_the_tests_of_the_mean():
    skewed = np.concatenate([np.full(60, 0.7), np.full(340, -0.7 * 60 / 340)])
    assert sign_flip_p(skewed) > 0.9
    assert mean(skewed).p_value() > 0.9
    assert wilcoxon_signed_rank(skewed, np.zeros(400)).p_value < 0.001


# ---- where curves cross
def curves(means, noise, problems=50):
    """Values [problems, ks] with the given means exactly, and a spread of `noise` over problems."""
    spread = np.tile([-noise, noise], problems // 2)
    return np.asarray(means) + spread[:, None]


def test_a_crossing_has_the_interval_in_which_neither_is_shown_to_be_better():
    ks = [1, 2, 4, 8, 16, 32]
    a = curves([-0.4, -0.2, -0.02, 0.01, 0.3, 0.3], 0.2)
    assert crossing(a, np.zeros_like(a), ks) == (8, 4, 16)  # standard error .2/√49: differences within ±.057 may be 0
    assert crossing(a[None], np.zeros((1, *a.shape)), ks) == (8, 4, 16)
    assert crossing(np.zeros_like(a), a, ks) == (None, 1, None)  # the other curve is overtaken and never overtakes


def test_a_crossing_lasts_to_the_largest_k():
    ks = [1, 2, 4]
    assert crossing(curves([0.3, -0.3, 0.3], 0.1), np.zeros((50, 3)), ks) == Crossing(4, 1, 4)
    assert crossing(curves([0.3, 0.3, 0.3], 0.1), np.zeros((50, 3)), ks) == Crossing(1, 1, 1)
    assert crossing(curves([-0.3, -0.3, -0.3], 0.1), np.zeros((50, 3)), ks) == Crossing(None, None, None)
    assert crossing(curves([-0.3, -0.3, 0.01], 0.1), np.zeros((50, 3)), ks) == Crossing(4, 4, None)


def test_a_crossing_is_not_one_of_rounding():
    """Equal means, summed in another order: 0.1 + 0.2 + 0.3 is above 0.3 + 0.2 + 0.1."""
    a, b = np.array([0.1, 0.2, 0.3]), np.array([0.3, 0.2, 0.1])
    assert a.mean() > b.mean()
    both = np.stack([a, a], axis=1), np.stack([b, b], axis=1)
    assert crossing(*both, [1, 2]).k is None
    assert crossing(*both[::-1], [1, 2]).k is None
    equal = np.full((60, 1), 0.3), np.full((60, 1), 0.1 + 0.2)  # 5e-17 apart on every problem: no spread either
    for pair in (equal, equal[::-1]):
        assert crossing(*pair, [1]) == (None, 1, None)


def test_a_crossing_of_methods_knows_the_spread_between_seeds():
    """A difference of .03 on every problem decides between two trainings, and not between methods."""
    a = np.stack([curves([-0.1, 0.03], 0.001), curves([-0.1, 0.03], 0.001)])
    seeds = np.array([-0.03, 0.03])[:, None, None]
    assert crossing(a, np.zeros_like(a), [1, 2]) == (2, 2, 2)
    assert crossing(a + seeds, seeds + np.zeros_like(a), [1, 2]) == (2, 1, None)


def test_crossings_refuse_other_shapes():
    with pytest.raises(ValueError, match="ks ascending"):
        crossing(np.zeros((5, 2)), np.zeros((5, 2)), [4, 1])
    with pytest.raises(ValueError, match=r"shapes \(5, 2\) and \(5, 3\)"):
        crossing(np.zeros((5, 2)), np.zeros((5, 3)), [1, 2])


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


def test_an_interval_is_cut_to_what_is_possible() -> None:
    """Two problems, differences 0.1 and 0.9: mean 0.5, standard error 0.4, t of one degree of freedom 12.7."""
    found = difference([0.1, 0.9], [0.0, 0.0])
    assert found.interval() == pytest.approx((0.5 - 12.706 * 0.4, 0.5 + 12.706 * 0.4), abs=1e-2)
    assert found.interval(bounds=(-1, 1)) == (-1, 1)
    assert np.isnan(difference([0.1], [0.0]).interval(bounds=(-1, 1))).all()
