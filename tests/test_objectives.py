"""Objectives against enumeration of all subsets, exact gradients of a softmax policy, and values by hand."""

import inspect
import math
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import enumeration
from enumeration import expected_gradient, max_at_k_gradient
from maxk.config.experiment import BASE_LABEL
from maxk.objectives import OBJECTIVES, MaxAtK, Objective, Schedule, degenerate_groups, make

settings.register_profile("maxk", deadline=None)  # the first call of an example may load kernels
settings.load_profile("maxk")

NAN = float("nan")
TYPES = sorted(OBJECTIVES)
OFF_POLICY = [name for name in TYPES if OBJECTIVES[name].off_policy]
WITH_K = [name for name in TYPES if issubclass(OBJECTIVES[name], MaxAtK)]
UNCLAMPED = {"clamp_log_ratio": None}


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def advantages(name, rewards, log_ratios=None, **parameters):
    """One group."""
    ratios = None if log_ratios is None else tensor([log_ratios])
    return make({"type": name, **parameters})(tensor([rewards]), ratios)[0].tolist()


@st.composite
def groups(draw):
    """(rewards, log-ratios, k) with ties, zeros and all-equal groups in plenty."""
    n = draw(st.integers(2, 7))
    levels = draw(st.integers(1, 4))
    rewards = draw(st.lists(st.integers(0, levels).map(lambda r: r / levels), min_size=n, max_size=n))
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
    got = advantages("bon_loo1_firstorder", rewards, log_ratios, k=k, clamp_log_ratio=None)
    assert got == approx(enumeration.leave_one_out_first_order(rewards, ratios, k))


@given(groups())
def test_loo2_enumerated(group):
    rewards, _, k = group
    got = advantages("bon_loo2", rewards, k=k)
    assert got == approx(enumeration.leave_two_out(rewards, k))
    assert sum(got) == pytest.approx(0, abs=1e-12)


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
    for name in ("bon_offpolicy_exact", "bon_loo1_firstorder"):
        assert advantages(name, rewards, k=k) == approx(on_policy)
        assert advantages(name, rewards, [0.0] * len(rewards), k=k) == approx(on_policy)


@given(groups())
def test_first_order_is_exact_up_to_pairs(group):
    rewards, log_ratios, k = group
    k = min(k, 2)
    first_order = advantages("bon_loo1_firstorder", rewards, log_ratios, k=k)
    assert first_order == approx(advantages("bon_offpolicy_exact", rewards, log_ratios, k=k))


def test_first_order_error_is_of_second_order():
    rewards, drift = [0.0, 0.25, 0.5, 0.75, 1.0], np.array([1.0, -0.5, 0.8, -0.9, 0.3])

    def error(step):
        both = [
            np.array(advantages(name, rewards, list(step * drift), k=4, clamp_log_ratio=None))
            for name in ("bon_loo1_firstorder", "bon_offpolicy_exact")
        ]
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
        flat = not any(advantages(name, rewards, log_ratios, k=4))
        assert flat == OBJECTIVES[name].zero_gradient_at_n, name


# ---- what all types share
def spec(name, k=2):
    return {"type": name, "k": k}


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=30)
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
def test_advantages_of_the_exact_family_are_never_negative(group):
    rewards, log_ratios, k = group
    assert min(advantages("bon_offpolicy_exact", rewards, log_ratios, k=k, clamp_log_ratio=None)) >= 0


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


def test_a_group_whose_ratios_are_all_zero():
    rewards, log_ratios = torch.tensor([[0.0, 0.5, 1.0]]), torch.full((1, 3), -math.inf)
    for name in OFF_POLICY:
        keys = UNCLAMPED if "clamp_log_ratio" in make(spec(name)).keys else {}
        assert make(spec(name) | keys)(rewards, log_ratios).isfinite().all()


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
    log_ratios = torch.tensor([[900.0, -900.0, 900.0, 0.0, 800.0, -math.inf, 5.0, 900.0]])
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


def gradients(name, k, logits, **parameters):
    """The objective's expected gradient, samples from OLD_LOGITS, and the true ∇max@k at `logits`."""
    objective = make({"type": name, "k": k, **parameters})
    old, new = OLD_LOGITS.softmax(0), logits.softmax(0)
    return expected_gradient(objective, REWARDS, old, new, N), max_at_k_gradient(REWARDS, logits, k)


@pytest.mark.parametrize("k", range(1, N + 1))
def test_ratios_of_the_example_are_far_from_one(k):
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


@pytest.mark.parametrize("k", range(1, N + 1))
def test_exact_is_unbiased_off_policy(k):
    got, true = gradients("bon_offpolicy_exact", k, NEW_LOGITS, **UNCLAMPED)
    torch.testing.assert_close(got, true, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "k"), [("bon_loo1", 3), ("bon_loo2", 3), ("bon_loo1_firstorder", 3)])
def test_others_are_biased_off_policy(name, k):
    parameters = UNCLAMPED if name == "bon_loo1_firstorder" else {}
    got, true = gradients(name, k, NEW_LOGITS, **parameters)
    assert (got - true).norm() > 0.005 * true.norm()


@pytest.mark.parametrize("k", range(1, N))
def test_offpolicy_points_along_the_gradient_on_policy(k):
    got, true = gradients("bon_offpolicy", k, OLD_LOGITS)
    assert torch.cosine_similarity(got, true, dim=0) == pytest.approx(1)


def test_centring_the_exact_weights_shrinks_and_then_reverses_the_gradient():
    """Why the exact objective is not eq. 10 minus a mean: eq. 10 is unbiased, but its centred form is not."""

    def exact(rewards, log_ratios):
        pairs = zip(rewards.tolist(), log_ratios.exp().tolist(), strict=True)
        return tensor([enumeration.weighted_maxima(group, ratios, 2) for group, ratios in pairs])

    def centred(rewards, log_ratios):
        weights = exact(rewards, log_ratios)
        return weights - weights.mean(dim=1, keepdim=True)

    rewards, old = tensor([0.0, 1.0]), tensor([0.5, 0.5])
    kept = []
    for drift in (0.0, 0.1, 0.5):  # the policy moves to the better action
        logits = drift * tensor([-1.0, 1.0])
        true = max_at_k_gradient(rewards, logits, 2)
        got = expected_gradient(exact, rewards, old, logits.softmax(0), n=3)
        torch.testing.assert_close(got, true, rtol=1e-9, atol=1e-12)
        kept.append(expected_gradient(centred, rewards, old, logits.softmax(0), n=3)[1] / true[1])
    assert kept[0] == pytest.approx(1 / 3)  # (n−k)/n on-policy
    assert kept[0] > kept[1] > 0 > kept[2]


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
        ({"type": "bon_loo", "k": 2}, "unknown objective type 'bon_loo'; did you mean 'bon_loo"),
        ({"type": "zzz"}, "unknown objective type 'zzz'; known: bon_loo1, "),
        ({"k": 2}, "an objective needs a `type`; known: bon_loo1, "),
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
        ({"type": "bon_loo1", "k": {"schedule": "linear", "strat": 2}}, "no key 'strat'; did you mean 'start'"),
        (
            {"type": "bon_loo1", "k": {"schedule": "linear", "start": 2, "end": 1, "at": 0.3}},
            "a linear schedule of k has no `at`",
        ),
        ({"type": "bon_loo1", "k": {"schedule": "step", "start": 2, "end": 1, "at": 2}}, "`at` of a step"),
        ({"type": "bon_loo1", "k": {"schedule": ["linear"], "start": 2, "end": 1}}, "unknown schedule of k"),
        ({"type": "bon_loo1", "k": 2, "binary": 1}, "bon_loo1: binary must be true or false, got 1"),
    ],
)
def test_make_refuses(config, message):
    with pytest.raises(ValueError, match=message):
        make(config)


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
        ("not_there:mine", "objective type 'not_there:mine' cannot be imported"),
        ("of_mine:not_there", "objective type 'of_mine:not_there' cannot be imported"),
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


def test_a_result_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"returned \[1\] for rewards \[1, 2\]"):
        make(lambda rewards: rewards.mean(dim=1))(torch.tensor([[0.0, 1.0]]))


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
        (torch.rand(2, 2), None, "k = 3 with n = 2 completions"),
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
