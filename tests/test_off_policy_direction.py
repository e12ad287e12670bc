"""Where objectives point on samples of an older policy: expected gradients by enumeration against the true ones.

Two actions with rewards 0 and 1, n = 8 and k = 4 as shipped. The older policy takes the better action with probability
p, the current one with ρ·p. `fraction` is the expected gradient over the true one, as both are along one line, and 1 at
ρ = 1. A second example has three actions.
"""

import math

import pytest
import torch

import enumeration
from enumeration import expected_gradient, max_at_k_gradient
from maxk.objectives import OBJECTIVES, make

N, K = 8, 4
CHANCES = (0.1, 0.3, 0.5, 0.65)
RATIOS = (1.05, 1.1, 1.2, 1.35, 1.5)
UNCLAMPED = {"clamp_log_ratio": None}
# Types → how their expected gradient at drift is known to go (see the tests of each).
UNBIASED = {"bon_offpolicy_exact", "bon_offpolicy_loo2", "bon_offpolicy_topm"}
FIRST_ORDER = {"bon_loo1_firstorder": "bon_offpolicy_exact", "bon_loo2_firstorder": "bon_offpolicy_loo2"}
CENTRED = {"bon_offpolicy"}
ON_POLICY = {name for name, kind in OBJECTIVES.items() if not kind.off_policy}


def objective(name, **keys):
    m = {"m": 2} if name in ("bon_topm", "bon_offpolicy_topm") else {}
    unclamped = UNCLAMPED if "clamp_log_ratio" in make({"type": name, "k": K, **m}).keys else {}
    return make({"type": name, "k": K, **m, **unclamped, **keys})


def groups(p, ratio):
    """Groups by their number of better actions: chances, rewards, log-ratios; and the better action's new chance."""
    better = torch.arange(N + 1)
    chances = torch.tensor([math.comb(N, c) * p**c * (1 - p) ** (N - c) for c in range(N + 1)], dtype=torch.float64)
    rewards = (torch.arange(N) < better[:, None]).double()
    other = (1 - ratio * p) / (1 - p)
    return chances, rewards, rewards * math.log(ratio) + (1 - rewards) * math.log(other), ratio * p


def group_gradients(advantages, p, ratio):
    """Of every group: its chance, and Σ_i ρ_i A_i ∇log π_i along the better action's logit."""
    chances, rewards, log_ratios, now = groups(p, ratio)
    return chances, (log_ratios.exp() * advantages(rewards, log_ratios) * (rewards - now)).sum(dim=1)


def gradient(advantages, p, ratio):
    chances, gradients = group_gradients(advantages, p, ratio)
    return (chances * gradients).sum().item()


def true_gradient(now, best=1):
    """d/d logit of E[mean of the best m of K], which is Σ_{j≤m} P(at least j of K are right)/m."""
    logits = torch.tensor([0.0, math.log(now / (1 - now))], dtype=torch.float64)
    rewards = torch.tensor([0.0, 1.0], dtype=torch.float64)
    return max_at_k_gradient(rewards, logits, K, enumeration.best_of(best))[1].item()


def fraction(advantages, p, ratio, best=1):
    """Of the true gradient, in units of what it is on-policy."""
    expected = gradient(advantages, p, ratio) / true_gradient(ratio * p, best)
    return expected / (gradient(advantages, p, 1.0) / true_gradient(p, best))


DRIFTS = [(p, ratio) for p in CHANCES for ratio in RATIOS if ratio * p < 1]


def test_every_objective_is_sorted_into_one_of_these():
    assert UNBIASED | FIRST_ORDER.keys() | CENTRED | ON_POLICY == set(OBJECTIVES)


@pytest.mark.parametrize("name", sorted(UNBIASED))
def test_exact_weights_are_unbiased_at_every_drift(name):
    best = 2 if name == "bon_offpolicy_topm" else 1
    for p, ratio in DRIFTS:
        assert gradient(objective(name), p, ratio) == pytest.approx(true_gradient(ratio * p, best), rel=1e-9)


@pytest.mark.parametrize("name", sorted(UNBIASED - {"bon_offpolicy_topm"}))
def test_the_default_clamp_binds_beyond_ratios_of_1_2(name):
    """Within it the weights stay exact; beyond, the gradient keeps its direction and is too long."""
    clamped = make({"type": name, "k": K})
    assert fraction(clamped, 0.3, 1.2) == pytest.approx(1, rel=1e-9)  # the ratios are 1.2 and 0.914
    assert fraction(clamped, 0.5, 1.1) == pytest.approx(1, rel=1e-9)  # 1.1 and 0.9
    assert fraction(clamped, 0.5, 1.35) > 1.5  # 1.35 and 0.65


@pytest.mark.parametrize("name", sorted(FIRST_ORDER))
def test_first_order_weights_are_off_by_the_square_of_the_drift(name):
    for p in CHANCES:
        errors = [1 - fraction(objective(name), p, ratio) for ratio in (1.01, 1.02)]
        assert errors[1] / errors[0] == pytest.approx(4, rel=0.1)
    assert fraction(objective(name), 0.3, 1.2) > 0.95
    # Known limit: far from π_old they reverse too, unless clamped.
    assert fraction(objective(name), 0.5, 1.5) < 0
    assert fraction(make({"type": name, "k": K}), 0.5, 1.5) > 0


@pytest.mark.parametrize("name", sorted(ON_POLICY))
def test_on_policy_advantages_keep_their_direction_and_are_too_long(name):
    """They weigh the better action by the chance that k−1 others fail under π_old, where that under π_θ is smaller."""
    for p, ratio in DRIFTS:
        too_long = ((1 - p) / (1 - ratio * p)) ** (K - 1)
        assert fraction(objective(name), p, ratio) == pytest.approx(too_long, rel=1e-9)


# ---- the paper's centred form
def centred_first_order(rewards, log_ratios):
    """The paper's weights by enumeration, without the own δ, minus the group mean: no scale."""
    pairs = zip(rewards.tolist(), log_ratios.exp().tolist(), strict=True)
    weights = [enumeration.first_order_maxima(r, [x - 1 for x in ratio], K, own=False) for r, ratio in pairs]
    weights = torch.tensor(weights, dtype=torch.float64)
    return weights - weights.mean(dim=1, keepdim=True)


@pytest.mark.parametrize(("p", "ratio"), [(0.1, 1.05), (0.3, 1.1), (0.5, 1.05), (0.5, 1.1), (0.65, 1.1)])
def test_the_papers_objective_is_its_centred_first_order_weights(p, ratio):
    assert fraction(objective("bon_offpolicy"), p, ratio) == pytest.approx(fraction(centred_first_order, p, ratio))


@pytest.mark.parametrize(("p", "kept"), [(0.3, 0.59), (0.5, -0.50)])
def test_known_limit_centring_shrinks_and_reverses_the_papers_objective(p, kept):
    """At ratios of 1.1, within PPO's clip: in units of the gradient at ρ = 1, where the true one is .92 and .72."""
    got = gradient(objective("bon_offpolicy"), p, 1.1) / gradient(objective("bon_offpolicy"), p, 1.0)
    assert got == pytest.approx(kept, abs=0.005)
    uncorrected = gradient(objective("bon_mean"), p, 1.1) / gradient(objective("bon_mean"), p, 1.0)
    assert uncorrected > 0.98


@pytest.mark.parametrize(("p", "turning_point"), [(0.3, 1.26), (0.5, 1.07), (0.7, 1.02)])
def test_known_limit_where_the_papers_objective_turns_round(p, turning_point):
    assert fraction(objective("bon_offpolicy"), p, turning_point - 0.01) > 0
    assert fraction(objective("bon_offpolicy"), p, turning_point + 0.01) < 0


def test_the_printed_weights_keep_their_direction():
    for p, ratio in DRIFTS:
        assert fraction(objective("bon_offpolicy", variant="literal"), p, ratio) > 1


def test_centring_the_exact_weights_shrinks_and_then_reverses_the_gradient():
    """Why the exact objective is not eq. 10 minus a mean: eq. 10 is unbiased, but its centred form is not."""

    def exact(rewards, log_ratios):
        pairs = zip(rewards.tolist(), log_ratios.exp().tolist(), strict=True)
        return torch.tensor(
            [enumeration.weighted_maxima(group, ratios, 2) for group, ratios in pairs], dtype=torch.float64
        )

    def centred(rewards, log_ratios):
        weights = exact(rewards, log_ratios)
        return weights - weights.mean(dim=1, keepdim=True)

    rewards, old = torch.tensor([[0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)
    kept = []
    for drift in (0.0, 0.1, 0.5):  # the policy moves to the better action
        logits = drift * torch.tensor([-1.0, 1.0], dtype=torch.float64)
        true = max_at_k_gradient(rewards, logits, 2)
        got = expected_gradient(exact, rewards, old, logits.softmax(0), n=3)
        torch.testing.assert_close(got, true, rtol=1e-9, atol=1e-12)
        kept.append(expected_gradient(centred, rewards, old, logits.softmax(0), n=3)[1] / true[1])
    assert kept[0] == pytest.approx(1 / 3)  # (n−k)/n on-policy
    assert kept[0] > kept[1] > 0 > kept[2]


# ---- which baseline without i
def signal_to_noise(advantages, p, ratio):
    """Mean over standard deviation of one group's gradient."""
    chances, gradients = group_gradients(advantages, p, ratio)
    mean = (chances * gradients).sum()
    return (mean / ((chances * gradients.square()).sum() - mean**2).sqrt()).item()


def subtracting_the_others_value(rewards, log_ratios):
    """S_i − (k/n)·mean over k-subsets without i of max Π ρ: unbiased too, with one ratio more in the baseline."""
    ratios = log_ratios.exp().tolist()
    rows = []
    for group, rho in zip(rewards.tolist(), ratios, strict=True):
        weights = enumeration.weighted_maxima(group, rho, K)
        for i in range(N):
            others = [j for j in range(N) if j != i]
            kept = [group[j] for j in others], [rho[j] for j in others]
            everything = enumeration.weighted_maxima(*kept, K)  # Σ_j ρ_j S_j is k times the mean over subsets
            weights[i] -= sum(r * s for r, s in zip(kept[1], everything, strict=True)) / N
        rows.append(weights)
    return torch.tensor(rows, dtype=torch.float64)


def test_leave_two_out_shares_the_ratios_of_the_company():
    """The other unbiased baseline has noise of its own, in groups of equal rewards too, and loses the signal in it."""
    for p in (0.2, 0.5, 0.8):
        for ratio in (1.1, 1.2):
            assert gradient(subtracting_the_others_value, p, ratio) == pytest.approx(true_gradient(ratio * p))
            on_policy = signal_to_noise(objective("bon_offpolicy_loo2"), p, 1.0)
            assert signal_to_noise(objective("bon_offpolicy_loo2"), p, ratio) == pytest.approx(on_policy)
    assert signal_to_noise(objective("bon_offpolicy_loo2"), 0.8, 1.2) == pytest.approx(0.184, abs=0.001)
    assert signal_to_noise(subtracting_the_others_value, 0.8, 1.2) < 0.001
    _, rewards, log_ratios, _ = groups(0.5, 1.2)
    equal = [0, N]
    assert not objective("bon_offpolicy_loo2")(rewards, log_ratios)[equal].any()
    assert subtracting_the_others_value(rewards, log_ratios)[equal].abs().max() > 0.1


# ---- three actions: direction in more than one dimension
THREE = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
OLD = torch.tensor([0.5, 0.2, -0.8], dtype=torch.float64)
TURN = torch.tensor([-0.5, 0.1, 1.0], dtype=torch.float64)


@pytest.mark.parametrize("drift", [0.1, 0.2, 0.4])
@pytest.mark.parametrize("name", sorted(UNBIASED | FIRST_ORDER.keys() | {"bon_loo1", "bon_loo2", "bon_mean"}))
def test_direction_among_three_actions(name, drift):
    """n = 4, k = 3, ratios up to 1.5; the angle to the true gradient, not only its sign."""
    new = (OLD + drift * TURN).softmax(0)
    keys = {
        "k": 3,
        **({"m": 2} if name == "bon_offpolicy_topm" else {}),
        **(UNCLAMPED if name not in ON_POLICY else {}),
    }
    got = expected_gradient(make({"type": name, **keys}), THREE, OLD.softmax(0), new, n=4)
    true = max_at_k_gradient(THREE, OLD + drift * TURN, 3, enumeration.best_of(keys.get("m", 1)))
    assert float(torch.cosine_similarity(got, true, dim=0)) > (0.97 if name == "bon_mean" else 0.99)
    length = float(got.norm() / true.norm())
    if name in UNBIASED:
        torch.testing.assert_close(got, true, rtol=1e-9, atol=1e-12)
    elif name in ("bon_loo1", "bon_loo2"):
        assert length > 1 + drift / 4
    elif name in FIRST_ORDER:
        assert length == pytest.approx(1, abs=drift**2)


def test_ratios_of_the_three_actions():
    largest = [((OLD + drift * TURN).softmax(0) / OLD.softmax(0)).max().item() for drift in (0.1, 0.4)]
    assert largest == pytest.approx([1.1, 1.5], abs=0.05)
