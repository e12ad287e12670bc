"""Objectives against enumeration of all subsets, exact gradients of a softmax policy, and values by hand."""

import inspect
import math
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import enumeration
from enumeration import expected_gradient, max_at_k_gradient
from maxk.config.experiment import BASE_LABEL
from maxk.objectives import OBJECTIVES, MaxAtK, Objective, Schedule, degenerate_groups, make
from maxk.objectives.diagnostics import diagnose

NAN = float("nan")
TYPES = sorted(OBJECTIVES)
OFF_POLICY = [name for name in TYPES if OBJECTIVES[name].off_policy]
WITH_K = [name for name in TYPES if issubclass(OBJECTIVES[name], MaxAtK)]
EXACT = ("bon_offpolicy_exact", "bon_offpolicy_loo2")
UNCLAMPED = {"clamp_log_ratio": None}


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def advantages(name, rewards, log_ratios=None, **parameters):
    """One group."""
    ratios = None if log_ratios is None else tensor([log_ratios])
    return make({"type": name, **parameters})(tensor([rewards]), ratios)[0].tolist()


@st.composite
def groups(draw):
    """(rewards, log-ratios, k) with ties, zeros and all-equal groups in plenty, some with rewards outside [0, 1]."""
    n = draw(st.integers(2, 7))
    levels = draw(st.integers(1, 4))
    low, scale = draw(st.sampled_from([(0, 1), (0, 1), (-2, 3)]))
    rewards = draw(st.lists(st.integers(0, levels).map(lambda r: low + scale * r / levels), min_size=n, max_size=n))
    log_ratios = draw(st.lists(st.floats(-1.5, 1.5), min_size=n, max_size=n))
    return rewards, log_ratios, draw(st.integers(1, n))


def approx(values):
    return pytest.approx(list(values), rel=1e-10, abs=1e-13)


def z_scores(values):
    values = np.asarray(values)
    return (values - values.mean()) / (values.std(ddof=1) + 1e-4)


# ---- every max@k objective is the sum over subsets that it claims to be
@given(groups())
def test_loo1_enumerated(group):
    rewards, _, k = group
    assert advantages("bon_loo1", rewards, k=k) == approx(enumeration.leave_one_out(rewards, [1] * len(rewards), k))


@given(groups())
def test_exact_enumerated(group):
    rewards, log_ratios, k = group
    ratios = [math.exp(value) for value in log_ratios]
    got = advantages("bon_offpolicy_exact", rewards, log_ratios, k=k, clamp_log_ratio=None)
    assert got == approx(enumeration.leave_one_out(rewards, ratios, k))
    clamped = [min(max(ratio, 1 / 1.2), 1.2) for ratio in ratios]
    got = advantages("bon_offpolicy_exact", rewards, log_ratios, k=k)
    assert got == approx(enumeration.leave_one_out(rewards, clamped, k))


@given(groups())
def test_first_order_enumerated(group):
    rewards, log_ratios, k = group
    ratios = [math.exp(value) for value in log_ratios]
    got = advantages("bon_loo1_firstorder", rewards, log_ratios, k=k, **UNCLAMPED)
    assert got == approx(enumeration.leave_one_out(rewards, ratios, k, weight=enumeration.first_order))


@given(groups())
def test_loo2_enumerated(group):
    rewards, _, k = group
    got = advantages("bon_loo2", rewards, k=k)
    assert got == approx(enumeration.leave_two_out(rewards, [1] * len(rewards), k))
    assert sum(got) == pytest.approx(0, abs=1e-12)


@given(groups())
def test_loo2_off_policy_enumerated(group):
    rewards, log_ratios, k = group
    ratios = [math.exp(value) for value in log_ratios]
    got = advantages("bon_offpolicy_loo2", rewards, log_ratios, k=k, **UNCLAMPED)
    assert got == approx(enumeration.leave_two_out(rewards, ratios, k))
    clamped = [min(max(ratio, 1 / 1.2), 1.2) for ratio in ratios]
    assert advantages("bon_offpolicy_loo2", rewards, log_ratios, k=k) == approx(
        enumeration.leave_two_out(rewards, clamped, k)
    )
    got = advantages("bon_loo2_firstorder", rewards, log_ratios, k=k, **UNCLAMPED)
    assert got == approx(enumeration.leave_two_out(rewards, ratios, k, weight=enumeration.first_order))


@given(groups(), st.data())
def test_top_m_enumerated(group, data):
    rewards, log_ratios, k = group
    m = data.draw(st.integers(1, k))
    ratios = [math.exp(value) for value in log_ratios]
    on_policy = enumeration.leave_one_out(rewards, [1] * len(rewards), k, m=m)
    assert advantages("bon_topm", rewards, k=k, m=m) == approx(on_policy)
    got = advantages("bon_offpolicy_topm", rewards, log_ratios, k=k, m=m, **UNCLAMPED)
    assert got == approx(enumeration.leave_one_out(rewards, ratios, k, m=m))
    clamped = [min(max(ratio, 1 / 1.2), 1.2) for ratio in ratios]
    got = advantages("bon_offpolicy_topm", rewards, log_ratios, k=k, m=m)
    assert got == approx(enumeration.leave_one_out(rewards, clamped, k, m=m))


STATISTICS = [
    ("top", 1, max),
    ("top", 2, lambda values: sum(sorted(values)[-2:]) / 2),
    ("rank", 2, lambda values: sorted(values)[-2]),
    ("rank", 3, lambda values: sorted(values)[-3]),
    ("trimmed", 1, lambda values: statistics.fmean(sorted(values)[1:-1])),
]


@pytest.mark.parametrize(("statistic", "m", "formula"), STATISTICS)
@given(group=groups())
def test_order_statistics_enumerated(statistic, m, formula, group):
    rewards, _, k = group
    least = 2 * m + 1 if statistic == "trimmed" else m
    if least > k or k == len(rewards):
        return
    got = advantages("order_statistic", rewards, k=k, statistic=statistic, m=m)
    assert got == approx(enumeration.with_minus_without(rewards, k, formula))
    assert sum(got) == pytest.approx(0, abs=1e-12)


@given(groups())
def test_analytic_pass_at_k_enumerated(group):
    rewards, _, k = group
    expected = [0.0] * len(rewards)
    if len(set(rewards)) > 1 and k < len(rewards):
        expected = enumeration.analytic_pass_at_k(rewards, k)
    assert advantages("passk_analytic", rewards, k=k) == pytest.approx(expected, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("correct", range(1, 8))
def test_analytic_pass_at_k_of_binary_rewards_is_as_published(correct):
    """Chen et al., arXiv 2508.10751: of a correct answer (1 − R)/σ, of a wrong one less by the chance that it fails."""
    n, k = 8, 4
    rewards = [0.0] * (n - correct) + [1.0] * correct
    passed = 1 - math.comb(n - correct, k) / math.comb(n, k)
    sigma = math.sqrt(passed * (1 - passed)) + 1e-6
    wrong = (1 - passed - math.comb(n - correct - 1, k - 1) / math.comb(n - 1, k - 1)) / sigma
    got = advantages("passk_analytic", rewards, k=k)
    assert got == pytest.approx([wrong] * (n - correct) + [(1 - passed) / sigma] * correct, abs=1e-9)


@given(groups())
def test_distillation_enumerated(group):
    rewards, _, k = group
    expected = [len(rewards) * chance - 1 for chance in enumeration.chances_of_being_best(rewards, k)]
    assert advantages("bon_distill", rewards, k=k) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_distillation_follows_the_best_of_k(k):
    """Unbiased for E[∇log π(best of k)], two equal rewards included; of distinct rewards the best gets k − 1."""
    rewards = torch.tensor([0.0, 1.0, 0.5, 1.0], dtype=torch.float64)
    logits = torch.tensor([0.4, -0.3, 0.2, 0.0], dtype=torch.float64)
    objective = make({"type": "bon_distill", "k": k})
    got = enumeration.expected_gradient(lambda r, _: objective(r), rewards, logits.softmax(0), logits.softmax(0), n=4)
    torch.testing.assert_close(got / 4, enumeration.best_of_k_score(rewards, logits, k), rtol=1e-9, atol=1e-12)
    assert objective(torch.tensor([[0.1, 0.4, 0.2, 0.9]])).max().item() == pytest.approx(k - 1)


def test_distillation_depends_on_the_order_of_rewards_alone():
    rewards = torch.tensor([[0.1, 0.4, 0.2, 0.9], [1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    objective = make({"type": "bon_distill", "k": 2})
    torch.testing.assert_close(objective(rewards), objective(rewards**3 - 5))


@given(groups())
def test_bon_mean_enumerated(group):
    rewards, _, k = group
    expected = z_scores(enumeration.subset_maxima(rewards, k))
    assert advantages("bon_mean", rewards, k=k) == pytest.approx(list(expected), abs=1e-9)


@given(groups(), groups())
def test_offpolicy_enumerated(first, second):
    """Two groups in a batch: the scale is shared, and taken from the on-policy weights."""
    n = min(len(first[0]), len(second[0]))
    k = min(first[2], n)
    rewards, log_ratios = [first[0][:n], second[0][:n]], [first[1][:n], second[1][:n]]
    delta = np.clip(np.expm1(log_ratios), -0.2, 0.2)
    on_policy = np.array([enumeration.subset_maxima(r, k) for r in rewards])
    weighted = np.array(
        [enumeration.first_order_maxima(r, d, k, own=False) for r, d in zip(rewards, delta, strict=True)]
    )
    signal = np.ptp(rewards, axis=1) > 0  # groups without a signal do not count in the scale
    squares = [(r - r.mean()) ** 2 for r in on_policy[signal]]
    rms = math.sqrt(np.mean(squares)) if squares else 0.0
    centred = weighted - weighted.mean(axis=1, keepdims=True)
    expected = centred / rms * signal[:, None] if rms > 1e-12 else 0 * weighted
    got = make({"type": "bon_offpolicy", "k": k})(tensor(rewards), tensor(log_ratios))
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e5, 1e6])
def test_offpolicy_takes_no_rounding_for_spread_at_any_scale(scale):
    log_ratios = tensor([[0.1, -0.1, 0.05, 0.0, 0.02]])
    objective = make({"type": "bon_offpolicy", "k": 4})
    tied = tensor([[0.9, 0.9, 0.9, 0.9, 0.2]])  # every subset of 4 holds a best one
    assert not objective(tied * scale, log_ratios).any()
    rewards = tensor([[0.1, 0.7, 1.0, 0.2, 0.3]])
    torch.testing.assert_close(objective(rewards * scale, log_ratios), objective(rewards, log_ratios))


@given(groups())
def test_offpolicy_literal_enumerated(group):
    rewards, log_ratios, k = group
    delta = np.clip(np.expm1(log_ratios), -0.2, 0.2)
    expected = z_scores(enumeration.first_order_maxima(rewards, delta, k, own=True))
    if len(set(rewards)) == 1:
        expected = 0 * expected
    got = advantages("bon_offpolicy", rewards, log_ratios, k=k, variant="literal")
    assert got == pytest.approx(list(expected), abs=1e-9)


# ---- the objectives without subsets, by hand
def test_grpo_by_hand():
    # mean ½, standard deviation with Bessel's correction √(1/3).
    unit = 0.5 / (math.sqrt(1 / 3) + 1e-4)
    assert advantages("grpo", [0, 1, 1, 0]) == approx([-unit, unit, unit, -unit])


def test_grpo_binary_counts_full_passes_only():
    partial, binary = [0.9, 1.0, 0.5, 1.0], [0, 1, 0, 1]
    assert advantages("grpo_binary", partial) == approx(advantages("grpo", binary))
    assert advantages("grpo_binary", [0.9, 0.5, 0.0, 0.0]) == [0, 0, 0, 0]


@pytest.mark.parametrize("name", ["bon_mean", "bon_loo1", "bon_loo2"])
def test_binary_counts_full_passes_only(name):
    rewards = [0.0, 1.0, 0.75, 1.0, 0.5]
    passes = [float(r == 1) for r in rewards]
    assert advantages(name, rewards, k=2, binary=True) == advantages(name, passes, k=2)
    assert advantages(name, rewards, k=2, binary=True) != advantages(name, rewards, k=2)
    assert advantages(name, [0.5, NAN, 1.0], k=2, binary=True) == [0.0, 0.0, 0.0]  # ungraded is not a failure


def test_maxrl_by_hand():
    # mean ¼: (1 − ¼)/¼ = 3 and (0 − ¼)/¼ = −1.
    assert advantages("maxrl", [0, 1, 0, 0]) == approx([-1, 3, -1, -1])
    assert advantages("maxrl", [-1, 0, -1, 0]) == [0, 0, 0, 0]  # a mean below 0 says nothing of the chance of success


def test_rs_grpo_by_hand():
    # β = log 2 and rewards 0, 1: e^{βr} is 1 or 2, their mean 1.5.
    beta = math.log(2)
    assert advantages("rs_grpo", [0, 1], beta=beta) == approx([(1 / 1.5 - 1) / beta, (2 / 1.5 - 1) / beta])
    # β → 0: the distance to the mean; large β: the best takes all, others lose 1/β each.
    assert advantages("rs_grpo", [0, 0.5, 1], beta=1e-4) == pytest.approx([-0.5, 0, 0.5], abs=1e-4)
    assert advantages("rs_grpo", [0, 0.5, 1], beta=1000) == approx([-0.001, -0.001, 0.002])


def test_top_m_by_hand():
    # n = k = 3, m = 2, r = (0, ½, 1): without i the best two of the others; A = (0, ¼, ½) + what fills up from below.
    assert advantages("bon_topm", [0, 0.5, 1], k=3, m=2) == approx([0, 0.25, 0.5])


def test_bon_max_by_hand():
    assert advantages("bon_max_mean", [0.2, 1, 0.4, 1]) == approx([0, 0.35, 0, 0.35])
    # A tie at the top: the second best is the largest value strictly below it.
    assert advantages("bon_max_second", [0.2, 1, 0.4, 1]) == approx([0, 0.6, 0, 0.6])
    assert advantages("bon_max_second", [0.2, 0, 0.5, 0.4]) == approx([0, 0, 0.1, 0])


def test_loo1_by_hand():
    # n = 3, k = 2, r = (0, ½, 1): of the pairs, 2 gains over 1 by ½, 3 gains over 1 by 1 and over 2 by ½.
    assert advantages("bon_loo1", [0, 0.5, 1], k=2) == approx([0, 0.5 / 3, 1.5 / 3])


# ---- relations
@given(groups())
def test_on_policy_limits(group):
    rewards, _, k = group
    on_policy = advantages("bon_loo1", rewards, k=k)
    pairs = [("bon_offpolicy_exact", on_policy), ("bon_loo1_firstorder", on_policy)]
    on_policy = advantages("bon_loo2", rewards, k=k)
    pairs += [("bon_offpolicy_loo2", on_policy), ("bon_loo2_firstorder", on_policy)]
    for name, expected in pairs:
        assert advantages(name, rewards, k=k) == approx(expected)
        assert advantages(name, rewards, [0.0] * len(rewards), k=k) == approx(expected)
    m = (k + 1) // 2
    assert advantages("bon_offpolicy_topm", rewards, k=k, m=m) == approx(advantages("bon_topm", rewards, k=k, m=m))


@given(groups())
def test_special_cases_are_the_objectives_that_they_extend(group):
    rewards, log_ratios, k = group
    assert advantages("bon_topm", rewards, k=k, m=1) == approx(advantages("bon_loo1", rewards, k=k))
    exact = advantages("bon_offpolicy_exact", rewards, log_ratios, k=k)
    assert advantages("bon_offpolicy_topm", rewards, log_ratios, k=k, m=1) == approx(exact)
    assert advantages("order_statistic", rewards, k=k) == approx(advantages("bon_loo2", rewards, k=k))


@given(groups(), st.floats(-5, 5))
def test_leave_two_out_sees_differences_of_rewards_only(group, shift):
    rewards, log_ratios, k = group
    moved = [reward + shift for reward in rewards]
    for name in ("bon_loo2", "bon_offpolicy_loo2", "bon_loo2_firstorder", "order_statistic"):
        expected = advantages(name, rewards, log_ratios, k=k)
        assert advantages(name, moved, log_ratios, k=k) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(groups())
def test_first_order_is_exact_up_to_pairs(group):
    rewards, log_ratios, k = group
    k = min(k, 2)
    for name, exact in (("bon_loo1_firstorder", "bon_offpolicy_exact"), ("bon_loo2_firstorder", "bon_offpolicy_loo2")):
        assert advantages(name, rewards, log_ratios, k=k) == approx(advantages(exact, rewards, log_ratios, k=k))


@pytest.mark.parametrize(
    "names", [("bon_loo1_firstorder", "bon_offpolicy_exact"), ("bon_loo2_firstorder", "bon_offpolicy_loo2")]
)
def test_first_order_error_is_of_second_order(names):
    rewards, drift = [0.0, 0.25, 0.5, 0.75, 1.0], np.array([1.0, -0.5, 0.8, -0.9, 0.3])

    def error(step):
        both = [np.array(advantages(name, rewards, list(step * drift), k=4, clamp_log_ratio=None)) for name in names]
        return np.abs(both[0] - both[1]).max()

    assert error(0.01) / error(0.005) == pytest.approx(4, rel=0.05)


@given(groups())
def test_k_1_is_reinforce(group):
    rewards, log_ratios, _ = group
    n = len(rewards)
    assert advantages("bon_loo1", rewards, k=1) == approx([r / n for r in rewards])
    assert advantages("bon_offpolicy_exact", rewards, log_ratios, k=1) == approx([r / n for r in rewards])
    rloo = [(r - (sum(rewards) - r) / (n - 1)) / n for r in rewards]
    assert advantages("bon_loo2", rewards, k=1) == approx(rloo)


def test_k_n_is_flat_exactly_for_the_types_that_say_so():
    rewards, log_ratios = [0.0, 0.25, 0.5, 1.0], [0.1, -0.1, 0.05, 0.0]
    for name in WITH_K:
        flat = not make(spec(name, k=4))(tensor([rewards]), tensor([log_ratios])).any()
        assert flat == OBJECTIVES[name].zero_gradient_at_n, name


# ---- what all types share
def spec(name, k=2):
    """With the largest m below k for types that need one."""
    return {"type": name, "k": k} | ({"m": max(1, k - 1)} if name in ("bon_topm", "bon_offpolicy_topm") else {})


@pytest.mark.parametrize("name", TYPES)
@given(groups(), st.randoms())
def test_order_of_members_does_not_matter(name, group, random):
    rewards, log_ratios, k = group
    order = random.sample(range(len(rewards)), len(rewards))
    objective = make(spec(name, k))
    straight = objective(tensor([rewards]), tensor([log_ratios]))[0, order]
    shuffled = objective(tensor([rewards])[:, order], tensor([log_ratios])[:, order])[0]
    torch.testing.assert_close(straight, shuffled, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_degenerate_groups_get_zeros_and_leave_the_others_alone(name, dtype):
    log_ratios = torch.linspace(-0.4, 0.4, 24, dtype=dtype).reshape(6, 4)
    rewards = torch.tensor(
        [
            [0.1, 0.1, 0.1, 0.1],
            [0.0, 0.25, 1.0, 1.0],
            [0.5, NAN, 1.0, 0.0],
            [NAN, NAN, NAN, NAN],
            [1.0, 1.0, 1.0, 1.0],
            [0.0, 0.0, 0.0, 0.0],
        ],
        dtype=dtype,
    )
    got = make(spec(name))(rewards, log_ratios)
    assert got.dtype == dtype
    assert got.isfinite().all()
    assert degenerate_groups(rewards).tolist() == [True, False, True, True, True, True]
    assert not got[degenerate_groups(rewards)].any()
    assert got[1].any()
    graded = ~rewards.isnan().any(dim=1)
    torch.testing.assert_close(got[graded], make(spec(name))(rewards[graded], log_ratios[graded]))


@pytest.mark.parametrize("name", TYPES)
def test_groups_of_one_and_empty_batches(name):
    objective = make(spec(name, k=1))
    assert objective(tensor([[1.0], [0.5]])).tolist() == [[0], [0]]
    assert degenerate_groups(tensor([[1.0], [0.5]])).all()
    assert objective(torch.zeros(0, 4)).shape == (0, 4)
    assert not objective(torch.full((2, 4), NAN)).any()


@pytest.mark.parametrize("name", [name for name in TYPES if name != "bon_offpolicy"])
def test_groups_do_not_see_one_another(name):
    rewards, log_ratios = torch.rand(5, 6, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
    objective = make(spec(name, k=3))
    together = objective(rewards, log_ratios)
    apart = torch.cat([objective(rewards[i : i + 1], log_ratios[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(together, apart)


def test_no_gradient_flows_into_advantages():
    log_ratios = torch.zeros(2, 4, requires_grad=True)
    assert not make(spec("bon_offpolicy_exact"))(torch.rand(2, 4), log_ratios).requires_grad


@given(groups())
def test_advantages_of_the_exact_leave_one_out_family_are_never_negative(group):
    rewards, log_ratios, k = group
    rewards = [reward - min(rewards) for reward in rewards]
    assert min(advantages("bon_offpolicy_exact", rewards, log_ratios, k=k, **UNCLAMPED)) >= 0
    assert min(advantages("bon_offpolicy_topm", rewards, log_ratios, k=k, m=(k + 1) // 2, **UNCLAMPED)) >= 0


# ---- numerics: an oracle in extended precision, one prefix at a time
def prefix_oracle(rewards, log_ratios, k):
    order = np.argsort(rewards)
    ratios = np.exp(log_ratios[order].astype(np.longdouble))
    steps = np.diff(rewards[order].astype(np.longdouble), prepend=np.longdouble(0))
    symmetric = np.zeros(k, dtype=np.longdouble)  # e_0 … e_{k−1} of the members seen so far
    symmetric[0] = 1
    total, result = np.longdouble(0), np.empty(len(rewards), dtype=np.longdouble)
    choose = np.longdouble(str(math.comb(len(rewards), k)))
    for place, (step, ratio) in enumerate(zip(steps, ratios, strict=True)):
        total += step * symmetric[-1] / choose
        result[order[place]] = total
        symmetric[1:] += ratio * symmetric[:-1]
    return result


@pytest.mark.parametrize("drift", [0.0, 0.2, 5.0])
@pytest.mark.parametrize(
    ("n", "k"), [(8, 8), (64, 8), (1024, 1), (1024, 8), (1024, 32), (1024, 100), (1024, 512), (1024, 1024)]
)
def test_large_groups_and_drifts(n, k, drift):
    rng = np.random.default_rng(n + k)
    rewards, log_ratios = rng.random(n), rng.uniform(-drift, drift, n)
    # Both precisions get the same numbers: what is tested is the arithmetic, not the rounding of inputs.
    rewards, log_ratios = (values.astype(np.float32).astype(float) for values in (rewards, log_ratios))
    expected = prefix_oracle(rewards, log_ratios, k)
    objective = make({"type": "bon_offpolicy_exact", "k": k, **UNCLAMPED})
    double = objective(tensor(rewards[None]), tensor(log_ratios[None]))[0].numpy()
    # Close to the largest float, results saturate; below, they are exact.
    np.testing.assert_allclose(np.minimum(double, 1e300), np.minimum(expected, 1e300), rtol=1e-9, atol=1e-300)
    single = objective(tensor(rewards[None]).float(), tensor(log_ratios[None]).float())[0].double().numpy()
    np.testing.assert_allclose(np.minimum(single, 1e38), np.minimum(expected, 1e38), rtol=1e-4, atol=1e-37)


def slow_sums(rewards, log_ratios, k, m, places=None):
    """(leave-two-out, top-m) advantages in extended precision, with a recursion of its own for every i.

    It gives e_a of the members below t without i, and e_j of those at or above t without i, one member at a time.
    places: ranks by reward of the members wanted, all by default; the others get 0.
    """
    n, order = len(rewards), np.argsort(rewards, kind="stable")
    ratios = np.exp(log_ratios[order].astype(np.longdouble))
    steps = np.diff(rewards[order].astype(np.longdouble), prepend=np.longdouble(0))
    choose, results = np.longdouble(str(math.comb(n, k))), np.zeros((2, n), dtype=np.longdouble)

    def prefixes(indices, degree, without):
        sums = np.zeros((n + 1, degree + 1), dtype=np.longdouble)
        sums[0, 0] = 1
        for place, index in enumerate(indices):
            sums[place + 1] = sums[place]
            if index != without:
                sums[place + 1, 1:] += ratios[index] * sums[place, :-1]
        return sums

    for i in range(n) if places is None else places:
        below, above = prefixes(range(n), k - 1, i), prefixes(range(n - 1, -1, -1), m - 1, i)
        for t in range(n):
            if t <= i:
                results[0, order[i]] += steps[t] * (t + 1 - k) * below[t, -1]
                ways = sum(below[t, k - 1 - j] * above[n - t, j] for j in range(m))
                results[1, order[i]] += steps[t] * ways / m
            else:
                results[0, order[i]] -= steps[t] * (n - t) * below[t, -1]
    return results / choose / np.array([[n - k], [1]])


@pytest.mark.parametrize("drift", [0.0, 0.2, 3.0])
@pytest.mark.parametrize(("n", "k", "m"), [(8, 7, 3), (64, 8, 4), (96, 40, 2)])
def test_two_sided_sums_of_large_groups(n, k, m, drift):
    rng = np.random.default_rng(n + k)
    rewards, log_ratios = rng.random(n), rng.uniform(-drift, drift, n)
    loo2, top_m = slow_sums(rewards, log_ratios, k, m)
    for name, keys, expected in (("bon_offpolicy_loo2", {}, loo2), ("bon_offpolicy_topm", {"m": m}, top_m)):
        got = advantages(name, rewards.tolist(), log_ratios.tolist(), k=k, **keys, **UNCLAMPED)
        np.testing.assert_allclose(got, expected.astype(float), rtol=1e-9, atol=1e-12 * float(np.abs(expected).max()))


LARGE = [(1024, 8), (1024, 512), (1024, 1023), (2048, 1536), (4096, 2048)]
ON_POLICY = {
    "bon_offpolicy_exact": "bon_loo1",
    "bon_loo1_firstorder": "bon_loo1",
    "bon_offpolicy_loo2": "bon_loo2",
    "bon_loo2_firstorder": "bon_loo2",
    "bon_offpolicy_topm": "bon_topm",
}


@pytest.mark.parametrize("name", OFF_POLICY)
@pytest.mark.parametrize(("n", "k"), LARGE)
def test_large_groups_of_every_objective(name, n, k):
    """A factor of the two-sided sums once overflowed for large k: advantages were NaN."""
    rng = np.random.default_rng(n + k)
    rewards, log_ratios = tensor(rng.random(n)[None]), tensor(rng.normal(0, 0.5, n)[None])
    keys = {"k": k, "m": 3} if name == "bon_offpolicy_topm" else {"k": k}
    objective = make({"type": name, **keys})
    assert objective(rewards, log_ratios).isfinite().all()
    if name in ON_POLICY:
        expected = make({"type": ON_POLICY[name], **keys})(rewards)
        got = objective(rewards, torch.zeros_like(rewards))
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("drift", [0.1, 0.5])
@pytest.mark.parametrize(("n", "k"), LARGE[:4])
def test_two_sided_sums_of_very_large_groups(n, k, drift):
    rng = np.random.default_rng(n + k)
    rewards, log_ratios = rng.random(n), rng.normal(0, drift, n)
    bound = min(math.log(1.2), 600 / k)
    places = [n // 2, n - 1]
    at = np.argsort(rewards, kind="stable")[places]
    sums = slow_sums(rewards, log_ratios.clip(-bound, bound), k, 3, places)
    for (name, keys), expected in zip((("loo2", {}), ("topm", {"m": 3})), sums[:, at], strict=True):
        got = np.array(advantages(f"bon_offpolicy_{name}", rewards.tolist(), log_ratios.tolist(), k=k, **keys))
        atol = 1e-12 * np.abs(got).max()
        np.testing.assert_allclose(got[at], expected.astype(float), rtol=1e-9, atol=atol)


@pytest.mark.parametrize("name", OFF_POLICY)
@pytest.mark.parametrize(("n", "k"), [(3, 2), (64, 8), (1200, 900)])
def test_extreme_drift_saturates_and_is_never_nan(name, n, k):
    generator = torch.Generator().manual_seed(0)
    rewards = torch.rand(4, n, generator=generator)
    log_ratios = torch.stack([torch.full((n,), -900.0), torch.full((n,), 900.0), *200 * torch.randn(2, n)])
    config = spec(name, k) | ({"m": 2} if name == "bon_offpolicy_topm" else {})
    for keys in ({}, UNCLAMPED if "clamp_log_ratio" in make(config).keys else {}):
        assert make(config | keys)(rewards, log_ratios).isfinite().all()


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_a_group_with_a_value_that_is_no_number_gets_zeros_and_leaves_the_others_alone(name, bad):
    rewards, log_ratios = torch.rand(4, 5), 0.1 * torch.randn(4, 5)
    alone = make(spec(name))(rewards[2:], log_ratios[2:])
    rewards[0, 3], log_ratios[1, 2] = bad, bad
    got = make(spec(name))(rewards, log_ratios)
    assert got.isfinite().all()
    assert not got[0].any()
    assert degenerate_groups(rewards).tolist() == [True, False, False, False]
    assert degenerate_groups(rewards, log_ratios).tolist() == [True, True, False, False]
    if OBJECTIVES[name].off_policy:
        assert not got[1].any()
        torch.testing.assert_close(got[2:], alone)
    else:
        torch.testing.assert_close(got, make(spec(name))(rewards))


def test_groups_without_a_signal_do_not_scale_the_others():
    """Six groups in eight without one once doubled the advantages of the other two."""
    rewards, log_ratios = torch.rand(2, 6, dtype=torch.float64), 0.1 * torch.randn(2, 6, dtype=torch.float64)
    objective = make(spec("bon_offpolicy"))
    padded = objective(torch.cat([rewards, torch.ones(6, 6)]), torch.cat([log_ratios, torch.zeros(6, 6)]))
    torch.testing.assert_close(padded[:2], objective(rewards, log_ratios))


def test_drift_beyond_any_float_saturates_and_is_never_nan():
    log_ratios = torch.tensor([[900.0, -900.0, 900.0, 0.0, 800.0, -5e4, 5.0, 900.0]])
    rewards = torch.tensor([[0.0, 1.0, 0.0, 0.5, 0.5, 0.25, 1.0, 1.0]])
    for k, copies in [*((k, 1) for k in range(1, 9)), (40, 8)]:
        objective = make({"type": "bon_offpolicy_exact", "k": k, **UNCLAMPED})
        got = objective(rewards.repeat(1, copies), log_ratios.repeat(1, copies))
        assert got.isfinite().all()
        assert (got >= 0).all()


# ---- unbiasedness: expectations over all groups of a softmax policy
REWARDS = tensor([0.0, 0.5, 0.5, 1.0])
OLD_LOGITS = tensor([0.4, 0.1, -0.3, -0.2])
NEW_LOGITS = OLD_LOGITS + tensor([-0.5, 0.35, -0.1, 0.6])
N = 4


def gradients(name, k, logits, formula=max, **keys):
    """The expected gradient on samples from OLD_LOGITS, and the true ∇ of E[formula of k draws], at `logits`."""
    objective = make({"type": name, "k": k, **keys})
    old, new = OLD_LOGITS.softmax(0), logits.softmax(0)
    return expected_gradient(objective, REWARDS, old, new, N), max_at_k_gradient(REWARDS, logits, k, formula)


def test_ratios_of_the_example_are_far_from_one():
    ratios = NEW_LOGITS.softmax(0) / OLD_LOGITS.softmax(0)
    assert ratios.min() < 0.6
    assert ratios.max() > 1.6


@pytest.mark.parametrize("k", range(1, N + 1))
def test_loo1_is_unbiased_on_policy(k):
    got, true = gradients("bon_loo1", k, OLD_LOGITS)
    torch.testing.assert_close(got, true, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("k", range(1, N))
def test_loo2_is_unbiased_on_policy(k):
    got, true = gradients("bon_loo2", k, OLD_LOGITS)
    torch.testing.assert_close(got, true, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("k", "m"), [(k, m) for k in range(1, N + 1) for m in range(1, k + 1)])
def test_top_m_is_unbiased_on_policy_and_off(k, m):
    for name, logits, keys in (("bon_topm", OLD_LOGITS, {}), ("bon_offpolicy_topm", NEW_LOGITS, UNCLAMPED)):
        got, true = gradients(name, k, logits, enumeration.best_of(m), m=m, **keys)
        torch.testing.assert_close(got, true, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("statistic", "m", "formula"), STATISTICS)
def test_order_statistics_are_unbiased_on_policy(statistic, m, formula):
    got, true = gradients("order_statistic", 3, OLD_LOGITS, formula, statistic=statistic, m=m)
    torch.testing.assert_close(got, true, rtol=1e-9, atol=1e-12)


def test_maxrl_is_unbiased_for_the_first_terms_of_the_log_likelihood():
    """arXiv 2602.02710: Σ_k ∇pass@k / k, of which the mean over n members of a group sees those up to n − 1."""
    passes = tensor([0.0, 0.0, 1.0, 0.0])
    policy = OLD_LOGITS.softmax(0)
    got = expected_gradient(make("maxrl"), passes, policy, policy, N) / N
    true = sum(max_at_k_gradient(passes, OLD_LOGITS, k) / k for k in range(1, N))
    torch.testing.assert_close(got, true, rtol=1e-9, atol=1e-12)


def test_rs_grpo_approaches_its_objective_with_the_size_of_the_group():
    """∇ log(E e^{βr}) / β; a group's own mean in its place costs bias, which falls as 1/n."""
    beta = 2.0
    logits = OLD_LOGITS.clone().requires_grad_()
    (true,) = torch.autograd.grad((logits.softmax(0) * (beta * REWARDS).exp()).sum().log() / beta, logits)
    policy = OLD_LOGITS.softmax(0)
    bias = [
        (expected_gradient(make({"type": "rs_grpo", "beta": beta}), REWARDS, policy, policy, n) / n - true).norm()
        for n in (3, 6)
    ]
    assert bias[1] < 0.25 * true.norm()
    assert bias[0] / bias[1] == pytest.approx(2, abs=0.35)


@pytest.mark.parametrize(("name", "k"), [("bon_offpolicy_exact", N), *((n, k) for n in EXACT for k in range(1, N))])
def test_exact_is_unbiased_off_policy(name, k):
    got, true = gradients(name, k, NEW_LOGITS, **UNCLAMPED)
    torch.testing.assert_close(got, true, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["bon_loo1", "bon_loo2", "bon_loo1_firstorder", "bon_loo2_firstorder"])
def test_others_are_biased_off_policy(name):
    got, true = gradients(name, 3, NEW_LOGITS, **(UNCLAMPED if "firstorder" in name else {}))
    assert (got - true).norm() > 0.005 * true.norm()


@pytest.mark.parametrize("k", range(1, N))
def test_offpolicy_points_along_the_gradient_on_policy(k):
    for name in ("bon_offpolicy", "bon_mean", "passk_analytic"):
        got, true = gradients(name, k, OLD_LOGITS)
        along = torch.cosine_similarity(got, true, dim=0)
        assert along == pytest.approx(1) if name == "bon_offpolicy" else along > 0.9, name


# ---- construction
def test_declarations_need_neither_torch_nor_pydantic():
    code = "import sys, maxk.objectives; sys.exit(bool({'torch', 'pydantic', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_objective_explains_itself_and_has_a_label_of_its_own():
    labels = [kind.label for kind in OBJECTIVES.values()]
    assert len({BASE_LABEL, *labels}) == len(labels) + 1
    for name, kind in OBJECTIVES.items():
        assert kind.__doc__, name
        arguments = set(inspect.signature(kind.advantages).parameters) - {"self", "rewards"}
        assert arguments == {*["k"] * issubclass(kind, MaxAtK), *["log_ratios"] * kind.off_policy}, name


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"type": "bon_loo", "k": 2}, r"unknown objective type 'bon_loo' \(did you mean 'bon_loo"),
        ({"type": "zzz"}, "unknown objective type 'zzz'; known: bon_distill, bon_loo1, "),
        ({"k": 2}, "an objective needs a `type`; known: bon_distill, bon_loo1, "),
        ({"type": ["grpo"]}, "unknown objective type"),
        ({"type": "bon_mean"}, "bon_mean needs k"),
        ({"type": "bon_mean", "k": 0}, "k must be an integer above 0"),
        ({"type": "bon_mean", "k": 2.0}, "k must be an integer"),
        ({"type": "bon_mean", "k": True}, "k must be an integer"),
        ({"type": "grpo", "clamp_delta": 0.1}, "grpo has no key 'clamp_delta'; known: none"),
        ({"type": "bon_offpolicy", "k": 2, "clamp_detla": 0.1}, "did you mean 'clamp_delta'"),
        ({"type": "bon_offpolicy", "k": 2, "clamp_delta": 0}, "clamp_delta must be a number above 0, got 0"),
        ({"type": "bon_offpolicy", "k": 2, "variant": "x"}, "variant must be surrogate or literal, got 'x'"),
        (
            {"type": "bon_offpolicy_exact", "k": 2, "clamp_log_ratio": "1"},
            "clamp_log_ratio must be a number above 0 or null, got '1'",
        ),
        ({"type": "bon_loo1", "k": {"schedule": "liner", "start": 2, "end": 1}}, "did you mean 'linear'"),
        ({"type": "bon_loo1", "k": {"schedule": "linear", "start": 2}}, "a schedule of k needs 'end'"),
        (
            {"type": "bon_loo1", "k": {"schedule": "linear", "start": 2, "end": 0}},
            "must be integers above 0, got 2 and 0",
        ),
        ({"type": "bon_loo1", "k": {"schedule": "linear", "strat": 2}}, r"no key 'strat' \(did you mean 'start'\?\)"),
        (
            {"type": "bon_loo1", "k": {"schedule": "linear", "start": 2, "end": 1, "at": 0.3}},
            "a linear schedule of k has no `at`",
        ),
        ({"type": "bon_loo1", "k": {"schedule": "step", "start": 2, "end": 1, "at": 2}}, "`at` of a step"),
        ({"type": "bon_loo1", "k": {"schedule": ["linear"], "start": 2, "end": 1}}, "unknown schedule of k"),
        ({"type": "bon_loo1", "k": 2, "binary": 1}, "bon_loo1: binary must be true or false, got 1"),
        ({"type": "bon_topm", "k": 2}, "bon_topm needs m"),
        ({"type": "bon_topm", "k": 2, "m": 3}, "m = 3 is more than k = 2"),
        ({"type": "bon_topm", "m": 3, "k": {"schedule": "linear", "start": 4, "end": 2}}, "m = 3 is more than k = 2"),
        ({"type": "order_statistic", "k": 2, "m": 3}, "m ≤ k is needed, got m = 3, k = 2"),
        ({"type": "order_statistic", "k": 4, "statistic": "trimmed", "m": 2}, "2m < k is needed, got m = 2, k = 4"),
        ({"type": "rs_grpo", "beta": 0}, "beta must be a number above 0, got 0"),
    ],
)
def test_make_refuses(config, message):
    with pytest.raises(ValueError, match=message):
        make(config)


@pytest.mark.parametrize("value", [None, 4, ["grpo"], [("type", "grpo")]])
def test_what_is_no_objective_is_told_what_one_is(value):
    with pytest.raises(TypeError, match=rf"^an objective is a type .*, got {re.escape(repr(value))}$"):
        make(value)


def test_k_of_a_type_without_k_is_ignored():
    assert make({"type": "grpo", "k": 2}) == make({"type": "grpo"}) == make("grpo")


# ---- objectives of one's own
def halves(rewards):
    """Half of the rewards."""
    return rewards / 2


@dataclass(frozen=True, kw_only=True)
class Shifted(Objective):
    """r − shift."""

    shift: float = 0.5

    def advantages(self, rewards):
        return rewards - self.shift


def test_functions_and_import_paths_are_objectives(monkeypatch):
    monkeypatch.setitem(sys.modules, "of_mine", sys.modules[__name__])
    rewards = torch.tensor([[0.0, 1.0], [0.5, NAN]])
    for objective in (make(halves), make("of_mine:halves"), make({"type": "of_mine:halves"})):
        assert objective(rewards).tolist() == [[0, 0.5], [0, 0]]
        assert objective.label == "halves"
    shifted = make({"type": "of_mine:Shifted", "shift": 1})
    assert shifted == Shifted(shift=1) == make(shifted)
    assert shifted(rewards).tolist() == [[-1, 0], [0, 0]]
    assert make(Shifted) == Shifted()
    assert not {"halves", "Shifted", shifted.type} & set(OBJECTIVES)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("not_there:mine", "'not_there:mine' cannot be imported .*; install it, or name its folder in PYTHONPATH$"),
        ("of_mine:not_there", r"objective type 'of_mine:not_there' cannot be imported \(module .*\)$"),
        ("of_mine:NAN", "a subclass of Objective or a function of rewards, got nan"),
        ("of_mine:Schedule", "a subclass of Objective or a function of rewards"),
        ({"type": "of_mine:halves", "k": 2, "m": 1}, "halves has no key 'm'; known: none"),
        ({"type": "of_mine:Shifted", "shift": 0}, "shift must be a number above 0, got 0"),
    ],
)
def test_make_refuses_what_is_no_objective(objective, message, monkeypatch):
    monkeypatch.setitem(sys.modules, "of_mine", sys.modules[__name__])
    with pytest.raises(ValueError, match=message):
        make(objective)


@pytest.mark.parametrize("values", [np.zeros((2, 4)), [[0.0, 1.0], [1.0, 0.0]], None])
def test_what_is_no_tensor_is_told_with_what_makes_one(values):
    """`rewards` may not be None; `log_ratios` may."""
    for call in (make("grpo"), make({"type": "bon_offpolicy", "k": 2}), degenerate_groups):
        with pytest.raises(
            TypeError, match=rf"^rewards must be a torch tensor \[groups, n\], got {type(values).__name__}; "
        ):
            call(values)
        if values is not None:
            with pytest.raises(TypeError, match=r"torch\.as_tensor\(log_ratios\) makes one$"):
                call(torch.zeros(2, 4), values)
            with pytest.raises(TypeError, match="rewards must be a torch tensor"):
                diagnose(make("grpo"), values)


def test_a_result_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"returned \[1\] for rewards \[1, 2\]"):
        make(lambda rewards: rewards.mean(dim=1))(torch.tensor([[0.0, 1.0]]))


def test_a_result_that_is_no_number_is_refused_with_the_first_such_group():
    def no_epsilon(rewards):
        return (rewards - rewards.mean(dim=1, keepdim=True)) / rewards.std(dim=1, keepdim=True)

    objective = make(no_epsilon)
    ungraded = [NAN, 1.0]  # a group that the formula does not see
    assert objective(torch.tensor([[0.0, 1.0], ungraded])).isfinite().all()
    rewards = torch.tensor([ungraded, [0.0, 1.0], [0.5, 0.5], [1.0, 1.0]], requires_grad=True)
    with pytest.raises(ValueError, match=r"no_epsilon returned nan for rewards \[0.5, 0.5\]$"):
        objective(rewards)
    with pytest.raises(ValueError, match=r"returned -inf for rewards \[0.0, 1.0\]$"):
        make(lambda rewards: rewards.log())(rewards)


def test_a_type_can_be_declared_only_once():
    with pytest.raises(ValueError, match=r"objective type 'grpo' is taken by maxk\.objectives\.group:Grpo"):
        type("Other", (Objective,), {"type": "grpo"})


@pytest.mark.parametrize(
    ("rewards", "log_ratios", "message"),
    [
        (torch.rand(4), None, "got torch.float32 \\[4\\]"),
        (torch.rand(2, 0), None, "got torch.float32 \\[2, 0\\]"),
        (torch.ones(2, 4, dtype=torch.int64), None, "floating-point"),
        (torch.rand(2, 4), torch.rand(2, 3), "\\[2, 3\\] and \\[2, 4\\]"),
        (torch.rand(2, 2), None, "k = 3 with n = 2"),
    ],
)
def test_objective_refuses(rewards, log_ratios, message):
    with pytest.raises(ValueError, match=message):
        make({"type": "bon_offpolicy_exact", "k": 3})(rewards, log_ratios)


# ---- schedules of k
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Schedule("linear", 4, 4), [4, 4, 4, 4, 4]),
        (Schedule("linear", 8, 1), [8, 6, 5, 3, 1]),
        (Schedule("linear", 1, 5), [1, 2, 3, 4, 5]),
        (Schedule("cosine", 8, 1), [8, 7, 5, 2, 1]),
        (Schedule("step", 8, 1), [8, 8, 1, 1, 1]),
        (Schedule("step", 8, 1, 0.75), [8, 8, 8, 1, 1]),
    ],
)
def test_schedules(kind, expected):
    got = [kind(progress) for progress in (0, 0.25, 0.5, 0.75, 1)]
    assert got == expected
    assert set(got) <= set(kind.values)
    assert (kind(-1), kind(2)) == (got[0], got[-1])


def test_schedule_drives_the_objective():
    rewards = torch.rand(3, 8)
    scheduled = make({"type": "bon_loo1", "k": {"schedule": "linear", "start": 8, "end": 1}})
    for progress, k in ((0.0, 8), (0.5, 5), (1.0, 1)):
        torch.testing.assert_close(scheduled(rewards, progress=progress), make(spec("bon_loo1", k))(rewards))


def test_ks_are_all_that_training_can_meet():
    assert make({"type": "grpo"}).ks == ()
    assert make({"type": "bon_loo1", "k": 4}).ks == (4,)
    assert make({"type": "bon_loo1", "k": {"schedule": "cosine", "start": 4, "end": 1}}).ks == (1, 2, 3, 4)
    assert make({"type": "bon_loo1", "k": {"schedule": "step", "start": 4, "end": 1}}).ks == (1, 4)
