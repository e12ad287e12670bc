"""Diagnostics by hand."""

import math

import pytest
import torch

import enumeration
from maxk.objectives import make
from maxk.objectives.diagnostics import (
    diagnose,
    ess_fraction,
    exact_subset_maxima,
    first_order_error,
    frac_no_gradient,
    paper_weights_error,
)

NAN = float("nan")


def test_everything_of_a_small_batch():
    rewards = torch.tensor([[0.0, 0.5, 1.0], [1.0, 1.0, 1.0], [0.0, NAN, 1.0]])
    ratios = torch.tensor([[1.0, 0.5, 2.0], [1.0, 1.0, 1.0], [100.0, 1.0, 1.0]])
    objective = make({"type": "bon_offpolicy_exact", "k": 3})
    report = diagnose(objective, rewards, ratios.log(), ks=(1, 2, 5))
    assert report.pop("first_order_error") > 0
    assert report == pytest.approx(
        {
            "frac_unusable": 1 / 3,
            "train_max@1": (0.5 + 1) / 2,
            "train_max@2": (enumeration.max_at_k([0, 0.5, 1], 2) + 1) / 2,
            "ratio_min": 0.5,
            "ratio_q01": math.exp(math.log(0.5) * 0.95),  # linear between order statistics, in log ρ
            "ratio_q50": 1,
            "ratio_q99": math.exp(math.log(2) * 0.95),
            "ratio_max": 2,
            "ess_fraction": (3.5**2 / (3 * 5.25) + 1) / 2,
            "clip_fraction": 2 / 6,
        },
        rel=1e-5,
    )


def test_without_ratios_and_without_any_graded_group():
    objective = make({"type": "grpo"})
    assert diagnose(objective, torch.tensor([[0.0, 1.0]])) == {"frac_unusable": 0, "train_max@1": 0.5}
    assert diagnose(objective, torch.full((2, 3), NAN), torch.zeros(2, 3)) == {"frac_unusable": 1}


def test_groups_without_a_gradient_are_those_whose_advantages_are_all_zero():
    """Which rewards they have depends on the objective: full passes only, and the k of the moment."""
    rewards = torch.tensor([[0.0, 0.5], [0.0, 1.0], [1.0, 1.0], [NAN, 1.0]])
    assert frac_no_gradient(make("grpo")(rewards)) == 2 / 4
    assert frac_no_gradient(make("grpo_binary")(rewards)) == 3 / 4
    falling = make({"type": "bon_mean", "k": {"schedule": "linear", "start": 2, "end": 1}})
    at = [frac_no_gradient(falling(rewards, progress=progress)) for progress in (0.0, 1.0)]
    assert at == [1, 2 / 4]  # k = n gives all members the same weight


def test_objectives_without_k_or_clamp():
    report = diagnose(make({"type": "grpo"}), torch.rand(2, 4), 9 * torch.randn(2, 4))
    assert report["clip_fraction"] == 0
    assert "first_order_error" not in report


def test_groups_without_finite_ratios_are_counted_and_left_out():
    rewards, log_ratios = torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([[0.1, 0.0], [0.0, NAN]])
    objective = make({"type": "bon_offpolicy_exact", "k": 2})
    report = diagnose(objective, rewards, log_ratios)
    assert report.pop("frac_unusable") == 0.5
    alone = diagnose(objective, rewards[:1], log_ratios[:1])
    assert alone == {"frac_unusable": 0, **report}


def test_ess_fraction_between_one_and_one_over_n():
    assert ess_fraction(torch.zeros(2, 8)) == pytest.approx(1)
    assert ess_fraction(torch.tensor([[0.0, -800.0, -800.0, -800.0]])) == pytest.approx(1 / 4)


def test_first_order_error():
    rewards = torch.tensor([[0.0, 0.5, 1.0, 0.25]], dtype=torch.float64)
    log_ratios = torch.tensor([[0.3, -0.2, 0.1, 0.4]], dtype=torch.float64)
    ratios = log_ratios.exp()[0].tolist()
    exact = enumeration.leave_one_out(rewards[0].tolist(), ratios, 3)
    first_order = enumeration.leave_one_out(rewards[0].tolist(), ratios, 3, weight=enumeration.first_order)
    expected = sum(abs(a - b) for a, b in zip(first_order, exact, strict=True)) / sum(exact)
    assert first_order_error(rewards, log_ratios, 3) == pytest.approx(expected)
    assert first_order_error(rewards, log_ratios, 2) == pytest.approx(0, abs=1e-12)
    assert first_order_error(torch.ones(1, 4), torch.zeros(1, 4), 3) == 0


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"type": "bon_offpolicy_exact", "k": 2}, (-math.log(1.2), math.log(1.2))),
        ({"type": "bon_offpolicy_exact", "k": 2, "clamp_log_ratio": None}, (-math.inf, math.inf)),
        ({"type": "bon_offpolicy", "k": 2}, (math.log(0.8), math.log(1.2))),
        ({"type": "bon_offpolicy", "k": 2, "clamp_delta": 1.5}, (-math.inf, math.log(2.5))),
        ({"type": "bon_loo1", "k": 2}, (-math.inf, math.inf)),
    ],
)
def test_log_ratios_that_an_objective_does_not_clamp(config, expected):
    assert make(config).log_ratio_range == pytest.approx(expected)


@pytest.mark.parametrize(("n", "k"), [(4, 1), (5, 2), (6, 4), (5, 5)])
def test_the_papers_exact_weights_enumerated(n, k):
    torch.manual_seed(n)
    rewards = (4 * torch.rand(3, n, dtype=torch.float64)).round() / 4
    log_ratios = 0.3 * torch.randn(3, n, dtype=torch.float64)
    pairs = zip(rewards.tolist(), log_ratios.exp().tolist(), strict=True)
    expected = torch.tensor([enumeration.weighted_maxima(r, rho, k) for r, rho in pairs], dtype=torch.float64)
    torch.testing.assert_close(exact_subset_maxima(rewards, log_ratios, k), expected, rtol=1e-9, atol=1e-12)


def test_the_error_of_the_papers_weights():
    """Exact for k ≤ 2; else that of centred sums over subsets, in groups whose rewards differ."""
    rewards = torch.tensor([[0.0, 0.25, 0.5, 1.0], [0.5, 0.5, 0.5, 0.5]], dtype=torch.float64)
    log_ratios = torch.tensor([[0.1, -0.1, 0.15, 0.05], [0.1, 0.1, -0.1, 0.0]], dtype=torch.float64)
    ratios = log_ratios[0].exp()
    exact = torch.tensor(enumeration.weighted_maxima(rewards[0].tolist(), ratios.tolist(), 3))
    first = torch.tensor(enumeration.first_order_maxima(rewards[0].tolist(), (ratios - 1).tolist(), 3, own=False))
    exact, first = exact - exact.mean(), first - first.mean()
    expected = (first - exact).abs().sum() / exact.abs().sum()
    assert paper_weights_error(rewards, log_ratios, 3) == pytest.approx(expected.item(), rel=1e-5)
    assert expected > 1e-4
    assert paper_weights_error(rewards, log_ratios, 2) == pytest.approx(0, abs=1e-12)
    assert "paper_weights_error" in diagnose(make({"type": "bon_offpolicy", "k": 3}), rewards, log_ratios)
    assert "paper_weights_error" not in diagnose(make({"type": "bon_loo1", "k": 3}), rewards, log_ratios)
