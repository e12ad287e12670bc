"""Misprints of the paper (arXiv 2510.23393): each printed form against enumeration, and what is right.

Formulas and listings are transcribed as printed, but for `binom` (scipy's) and `self`.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.special import binom, comb

import enumeration
from maxk.estimators import max_at_k
from maxk.objectives.off_policy import BonOffPolicy
from maxk.objectives.on_policy import BonLoo1, BonMean

REWARDS = [0.0, 0.25, 0.25, 0.5, 0.875, 1.0]  # ascending, as the listings assume
DELTA = [0.1, -0.15, 0.05, 0.2, -0.2, 0.15]
N = len(REWARDS)


# ---- Listing 1: max@k
def listing_1(scores, k):
    scores = np.array(scores)
    sorted_scores = np.sort(scores)
    n = len(scores)
    with np.errstate(all="ignore"):
        weights = comb(np.arange(n), k - 1) / comb(n, k)
    return (weights @ sorted_scores).sum()


def test_listing_1_is_right_where_binomials_fit_a_float():
    assert listing_1(REWARDS, 3) == pytest.approx(enumeration.max_at_k(REWARDS, 3))
    assert listing_1(REWARDS, 3) == pytest.approx(max_at_k(REWARDS, 3))


def test_listing_1_is_nan_for_k_above_n():
    assert math.isnan(listing_1([0.5, 1.0], 3))
    with pytest.raises(ValueError, match="k = 3 with n = 2"):
        max_at_k([0.5, 1.0], 3)


@pytest.mark.parametrize(("n", "wrong"), [(1030, 0.0), (1031, math.nan), (2000, math.nan)])
def test_listing_1_overflows_from_1030_samples_on(n, wrong):
    ones = np.ones(n)
    np.testing.assert_equal(listing_1(ones, n // 2), wrong)
    assert max_at_k(ones, n // 2) == 1


# ---- Listing 2: on-policy weights
def on_policy_scale(m, k):
    index = torch.arange(1, m + 1).numpy()
    scale = torch.tensor(binom(index - 2, k - 2) / binom(m, k)).nan_to_num(0)
    scale = torch.tril(scale.repeat(m, 1).T, diagonal=-1)
    return scale, torch.tensor(binom(index - 1, k - 1) / binom(m, k)).nan_to_num(0)


def listing_2(rewards, k):
    scale, diagonal = on_policy_scale(rewards.shape[1], k)
    return rewards @ (scale + torch.diag(diagonal))


@pytest.mark.parametrize("k", range(2, N + 1))
def test_listing_2_assumes_sorted_rewards(k):
    expected = enumeration.subset_maxima(REWARDS, k)
    torch.testing.assert_close(listing_2(torch.tensor([REWARDS], dtype=torch.float64), k)[0].tolist(), expected)
    if k < N:  # at k = n all weights are equal
        falling = torch.tensor([REWARDS[::-1]], dtype=torch.float64)
        assert (listing_2(falling, k)[0] - torch.tensor(expected[::-1])).abs().max() > 0.01
        rising = torch.tensor([REWARDS], dtype=torch.float64)
        torch.testing.assert_close(BonMean(k=k)(falling), BonMean(k=k)(rising).flip(1))


# ---- Listing 3: off-policy weights
def listing_3(rewards, deltas, k, add_diagonal, last_product, clamp_delta=0.2):
    n, m = rewards.shape
    index = torch.arange(1, m + 1).numpy()
    den = binom(m, k)
    deltas = deltas.clamp(min=-clamp_delta, max=clamp_delta)
    cum_deltas = torch.cumsum(deltas, dim=1) - deltas
    scale_1, diag_scale_1 = on_policy_scale(m, k)
    scale_base = add_diagonal(scale_1, diag_scale_1)

    off_diag_term1 = scale_1 * (deltas.view(n, m, 1) + deltas.view(n, 1, m))
    scale_2 = torch.tensor(binom(index - 3, k - 3) / den).nan_to_num(0)
    scale_2 = torch.tril(scale_2.repeat(m, 1).T, diagonal=-1)
    off_diag_term2 = scale_2 * (cum_deltas.view(n, m, 1) - deltas.view(n, 1, m))

    diag_scale_2 = torch.tensor(binom(index - 2, k - 2) / den).nan_to_num(0)
    diag_term = torch.diag_embed(diag_scale_1 * deltas + diag_scale_2 * cum_deltas)
    weights = off_diag_term1 + off_diag_term2 + diag_term + scale_base
    return last_product(rewards, weights), weights


def as_printed(rewards, deltas, k):
    return listing_3(rewards, deltas, k, lambda scale, diagonal: scale + diagonal, lambda r, w: r @ w)


def mended(rewards, deltas, k):
    return listing_3(
        rewards,
        deltas,
        k,
        lambda scale, diagonal: scale + torch.diag(diagonal),
        lambda r, w: torch.einsum("nj,nji->ni", r, w),
    )


def batch(rewards):
    return torch.tensor([rewards, [reward / 2 for reward in rewards]], dtype=torch.float64)


def deltas():
    return torch.tensor([DELTA, DELTA[::-1]], dtype=torch.float64)


def first_order(rewards, delta, k, own=True):
    groups = zip(rewards.tolist(), delta.tolist(), strict=True)
    return torch.tensor([enumeration.first_order_maxima(r, d, k, own=own) for r, d in groups], dtype=torch.float64)


@pytest.mark.parametrize("k", range(2, N + 1))
def test_listing_3_adds_the_diagonal_to_every_row(k):
    _, printed = as_printed(batch(REWARDS), deltas(), k)
    _, right = mended(batch(REWARDS), deltas(), k)
    above_the_diagonal = torch.triu(torch.ones(N, N), diagonal=1).bool()
    assert not right[:, above_the_diagonal].any()
    assert printed[:, above_the_diagonal].any()


@pytest.mark.parametrize("k", range(2, N + 1))
def test_listing_3_mixes_prompts_in_its_last_product(k):
    printed, _ = as_printed(batch(REWARDS), deltas(), k)
    assert printed.shape == (2, 2, N)  # prompts × prompts: each prompt's rewards meet all prompts' weights
    right, _ = mended(batch(REWARDS), deltas(), k)
    torch.testing.assert_close(right, first_order(batch(REWARDS), deltas(), k))


@pytest.mark.parametrize("k", range(2, N))
def test_listing_3_assumes_sorted_rewards(k):
    falling = batch(REWARDS[::-1])
    wrong, _ = mended(falling, deltas(), k)
    assert (wrong - first_order(falling, deltas(), k)).abs().max() > 0.01
    # Ours: the same weights without the own δ, centred and in units of one batch-wide number.
    ours = BonOffPolicy(k=k)(falling, deltas().log1p())
    right = first_order(falling, deltas(), k, own=False)
    centred = right - right.mean(dim=1, keepdim=True)
    torch.testing.assert_close(ours / ours.norm(), centred / centred.norm())


# ---- Appendix E: how often the other δ appear
def choose(n, k):
    return math.comb(n, k) if n >= k >= 0 else 0


def appendix_e(delta, k, rank):
    """Σ_j w'_ij r_j / C(n,k); `rank(i, j)` is the one in C(rank − 3, k − 3), how often each other δ appears."""

    def weight(i, j):
        if j == i:
            return choose(i - 1, k - 1) * (1 + delta[i - 1]) + choose(i - 2, k - 2) * sum(delta[: i - 1])
        others = sum(delta[m - 1] for m in range(1, j) if m != i)
        own = choose(j - 2, k - 2) * (1 + delta[i - 1] + delta[j - 1])
        return own + choose(rank(i, j) - 3, k - 3) * others

    ranks = range(1, N + 1)
    return [sum(weight(i, j) * REWARDS[j - 1] for j in ranks if j >= i) / math.comb(N, k) for i in ranks]


@pytest.mark.parametrize("k", range(3, N + 1))
def test_appendix_e_counts_sets_below_i_in_its_text_and_below_j_in_its_formula(k):
    """The text before the last formula has C(i−3, k−3) for j > i; the formula's C(j−3, k−3) is right."""
    expected = enumeration.first_order_maxima(REWARDS, DELTA, k, own=True)
    assert appendix_e(DELTA, k, lambda i, j: j) == pytest.approx(expected)
    assert appendix_e(DELTA, k, lambda i, j: i) != pytest.approx(expected, rel=0.01)


# ---- Appendix A: the leave-one-out baseline
def subset_sums(k):
    """b_i^(k) as defined: C(n−1,k)⁻¹ Σ_j Σ over the k-subsets of [n]∖i that hold j of their maximum."""
    others = [[j for j in range(N) if j != i] for i in range(N)]
    return [
        sum(k * enumeration.best(REWARDS, subset) for subset in itertools.combinations(rest, k)) / math.comb(N - 1, k)
        for rest in others
    ]


def recursion(k, normaliser, first, step):
    """b_1 = Σ_{i≥2} first(i)·r_i / normaliser, b_{i+1} = b_i + (r_i − r_{i+1})·step(i) / normaliser."""
    b = [sum(first(i) * REWARDS[i - 1] for i in range(2, N + 1)) / normaliser]
    for i in range(1, N):
        b.append(b[-1] + (REWARDS[i - 1] - REWARDS[i]) * step(i) / normaliser)
    return b


@pytest.mark.parametrize("k", range(2, N))
def test_appendix_a_recursion(k):
    """Without i the samples above move down a rank: C(n−1, k) sets, and weights by the rank that is left."""

    def printed(i):  # w_ii + (i−2)·w_{i,i+1}
        return choose(i - 1, k - 1) + (i - 2) * choose(i - 1, k - 2)

    def right(rank):  # k·C(rank−1, k−1): the k-subsets whose best has this rank, counted once for each member
        return choose(rank - 1, k - 1) + (rank - 1) * choose(rank - 2, k - 2)

    defined = subset_sums(k)
    assert recursion(k, math.comb(N - 1, k), lambda i: right(i - 1), right) == pytest.approx(defined)
    assert recursion(k, math.comb(N, k), printed, printed) != pytest.approx(defined, rel=0.02)
    # The normaliser alone does not mend it, nor do the weights alone.
    assert recursion(k, math.comb(N - 1, k), printed, printed) != pytest.approx(defined, rel=0.02)
    assert recursion(k, math.comb(N, k), lambda i: right(i - 1), right) != pytest.approx(defined, rel=0.02)


@pytest.mark.parametrize("k", range(2, N + 1))
def test_appendix_a_second_term_is_right_given_its_definition(k):
    """k/(n(k−1))·b_i^(k−1) is Σ_{I∋i} max_{I∖i}: only its recursion is misprinted; k = 1 divides by 0."""
    second = [k / (N * (k - 1)) * b for b in subset_sums(k - 1)]
    first = enumeration.subset_maxima(REWARDS, k)
    ours = BonLoo1(k=k)(torch.tensor([REWARDS], dtype=torch.float64))[0].tolist()
    assert ours == pytest.approx([a - b for a, b in zip(first, second, strict=True)])
