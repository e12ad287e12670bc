"""Estimators against math.comb and enumeration."""

import itertools
import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import enumeration
from maxk import statistics
from maxk.estimators import best_of_k_weights, max_at_k, pass_at_k, selected_at_k

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


def test_many_samples_keep_no_weights_in_memory():
    """Those of 50 ks at n = 200,000 would be 80 MB; values are the closed forms w_n = k/n and w_{n-1}."""
    tracemalloc.start()
    for k in range(2, 52):
        weights = best_of_k_weights(n := 200_000, k)
        np.testing.assert_allclose(weights[-2:], [k / n * (n - k) / (n - 1), k / n], rtol=1e-12)
        np.testing.assert_allclose(weights.sum(), 1, rtol=1e-9)
    del weights
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 10e6


def test_shapes_of_one_and_several_k():
    rewards = np.random.default_rng(0).random((5, 3, 16))
    assert max_at_k(rewards, 4).shape == (5, 3)
    assert max_at_k(rewards, [1, 4]).shape == (5, 3, 2)
    assert max_at_k(rewards[0, 0], 4).shape == ()
    np.testing.assert_allclose(max_at_k(rewards, [1, 4])[..., 1], max_at_k(rewards, 4), rtol=1e-14)


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=7), st.integers(-5, 5), st.integers(1, 9))
def test_any_real_rewards_such_as_those_of_a_reward_model(rewards, shift, scale):
    ks = list(range(1, len(rewards) + 1))
    expected = [enumeration.max_at_k([float(r) for r in rewards], k) for k in ks]
    np.testing.assert_allclose(max_at_k(rewards, ks), expected, rtol=1e-12, atol=1e-9)
    moved = max_at_k(scale * np.array(rewards) + shift, ks)
    np.testing.assert_allclose(moved, scale * np.array(expected) + shift, rtol=1e-12, atol=1e-9)


def test_torch_tensors_of_any_kind():
    torch = pytest.importorskip("torch")
    rewards = torch.tensor([[0.25, 1.0, 0.5], [0.0, 0.0, 1.0]])
    expected = max_at_k(rewards.tolist(), [1, 3])
    for given_rewards in (rewards, rewards.double(), rewards.bfloat16(), rewards.half(), rewards.requires_grad_()):
        np.testing.assert_array_equal(max_at_k(given_rewards, torch.tensor([1, 3])), expected)
    np.testing.assert_array_equal(max_at_k(rewards > 0.4, 1), [2 / 3, 1 / 3])
    assert max_at_k(rewards, torch.tensor(3)).tolist() == [1, 1]
    assert pass_at_k(torch.tensor([4, 4]), torch.tensor([0, 4]), 2).tolist() == [0, 1]
    with pytest.raises(ValueError, match="rewards must be real numbers, got complex64"):
        max_at_k(torch.tensor([0.5, 1j]), 1)


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
        ([], 1, r"n ≥ 1 samples on the last axis, got shape \(0,\)"),
        (1.0, 1, r"got shape \(\)"),
        (
            [[0.5, 1.0], [0.0, float("nan")]],
            1,
            r"reward nan \(NaN: could not be graded\) of sample 1 in row 1",
        ),
        (
            [[[0.5, 1.0]], [[float("inf"), 1.0]]],
            1,
            r"reward inf of sample 0 in row 1, 0; rewards must be finite",
        ),
        ([0.5, None], 1, "reward nan"),
        (np.zeros((3, 4)), [1, 5], r"k = 5 with n = 4 \(the last axis of rewards, shape \(3, 4\)\)"),
        (np.zeros((3, 0)), 1, r"the last axis, got shape \(3, 0\)"),
        ([[0.5, 1.0], [0.5]], 1, "rewards must be a rectangular array of numbers"),
        (["0.5", "1.0"], 1, "rewards must be real numbers, got <U3"),
        ([0.5, 1j], 1, "rewards must be real numbers, got complex"),
        ([10**400, 2], 1, "rewards must be real numbers .*too large"),
        ([0.5, object()], 1, "rewards must be real numbers"),
        ([0.5, 1.0], [[1], [2]], r"k must be one number or a sequence of them, got shape \(2, 1\)"),
        ([0.5, 1.0], [], "k must be"),
        ([0.5, 1.0], True, "k must be whole numbers, got True"),
    ],
)
def test_bad_input_names_what_was_got_and_where(rewards, k, message):
    with pytest.raises(ValueError, match=message):
        max_at_k(rewards, k)


def test_a_selector_takes_one_k():
    with pytest.raises(ValueError, match=r"k must be one whole number, got shape \(2,\)"):
        selected_at_k([0.0, 1.0], [0.0, 1.0], [1, 2])


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


@pytest.mark.parametrize("shape", [(20,), (7, 20), (4, 20), (3, 4, 20)])
@pytest.mark.parametrize("k", [5, [5], [1, 2, 5, 20], np.array([1, 2, 5, 20])])
def test_pass_at_k_equals_max_at_k_of_binary_rewards_in_shape_and_value(shape, k):
    """Also where there are as many problems as ks, which then could be taken for one another."""
    rewards = np.random.default_rng(1).random(shape) < 0.3
    passes, best = pass_at_k(20, rewards.sum(axis=-1), k), max_at_k(rewards, k)
    assert passes.shape == best.shape
    np.testing.assert_allclose(passes, best, atol=1e-14)


def test_n_and_c_of_pass_at_k_broadcast():
    found = pass_at_k([[4], [6]], [0, 1, 3], [1, 2])
    assert found.shape == (2, 3, 2)
    assert found[1, 2].tolist() == [pass_at_k(6, 3, 1), pass_at_k(6, 3, 2)] == pytest.approx([1 / 2, 4 / 5])


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
        (4, [True, False], 2, "c must be whole numbers"),
        ([4, 4, 4], [1, 2], 1, r"shapes must broadcast against one another, got n \(3,\), c \(2,\)"),
        (4, 1, [[1, 2]], r"k must be one number or a sequence of them, got shape \(1, 2\)"),
        (4, 1, [], r"k must be one number or a sequence of them, got shape \(0,\)"),
    ],
)
def test_pass_at_k_refuses(n, c, k, message):
    with pytest.raises(ValueError, match=message):
        pass_at_k(n, c, k)


# ---- selection by an imperfect verifier
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_selection_is_the_mean_over_all_subsets(k: int) -> None:
    """By enumeration: of every subset the mean hidden value of the samples that look best."""
    visible, hidden = [0.0, 1.0, 0.5, 1.0, 0.0], [0.2, 0.0, 0.9, 0.6, 0.4]

    def chosen(subset: tuple[int, ...]) -> float:
        best = [hidden[i] for i in subset if visible[i] == max(visible[j] for j in subset)]
        return sum(best) / len(best)

    expected = [chosen(subset) for subset in itertools.combinations(range(5), k)]
    assert selected_at_k(visible, hidden, k) == pytest.approx(sum(expected) / len(expected))


def test_a_perfect_verifier_selects_the_maximum_and_a_blind_one_the_mean() -> None:
    rewards = np.random.default_rng(0).random((3, 4, 16)).round(1)
    np.testing.assert_allclose(selected_at_k(rewards, rewards, 5), max_at_k(rewards, 5))
    np.testing.assert_allclose(selected_at_k(np.zeros((3, 4, 16)), rewards, 5), rewards.mean(axis=-1))
    with pytest.raises(ValueError, match=r"alike, got shapes \(3,\) and \(4,\)"):
        selected_at_k(np.zeros(3), np.zeros(4), 1)


def test_masked_entries_are_refused_not_taken():
    rewards = np.ma.array([[0.0, 9.0, 1.0]], mask=[[False, True, False]])
    for call in (lambda: max_at_k(rewards, 1), lambda: selected_at_k(rewards, rewards, 1)):
        with pytest.raises(ValueError, match=r"(rewards|visible) with masked"):
            call()
    with pytest.raises(ValueError, match="c with masked entries"):
        pass_at_k(4, np.ma.array([1, 3], mask=[False, True]), 2)
    with pytest.raises(ValueError, match="masked entries"):
        statistics.mean(rewards)
    assert max_at_k(rewards.compressed(), 1) == 0.5
    assert max_at_k(np.ma.array([0.0, 1.0]), 1) == 0.5  # nothing is masked
