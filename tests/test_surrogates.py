"""Which surrogate is unbiased off-policy: sequence and token level, enumerated on a policy of two tokens."""

import itertools

import pytest
import torch

from maxk.objectives import make
from surrogates import sequence_surrogate, token_surrogate

K, N = 2, 3
SEQUENCES = list(itertools.product((0, 1), repeat=2))
REWARDS = torch.tensor([0.2, 0.0, 0.5, 1.0], dtype=torch.float64)  # of 00, 01, 10, 11


def token_log_probabilities(logits):
    """[sequences, 2] under logits [3, 2]: the first token, then the second after a 0 and after a 1."""
    log_p = logits.log_softmax(dim=1)
    return torch.stack([torch.stack([log_p[0, first], log_p[1 + first, second]]) for first, second in SEQUENCES])


OLD = torch.tensor([[0.3, -0.1], [0.0, 0.4], [0.5, -0.2]], dtype=torch.float64)
NEW = OLD + torch.tensor([[-0.3, 0.3], [0.2, -0.2], [-0.2, 0.3]], dtype=torch.float64)


def expected_gradient(surrogate):
    """∇ at NEW of E over all groups from OLD of the summed surrogate with exact off-policy advantages."""
    logits = NEW.clone().requires_grad_()
    old, new = token_log_probabilities(OLD), token_log_probabilities(logits)
    groups = torch.cartesian_prod(*[torch.arange(len(SEQUENCES))] * N)
    chance = old.sum(dim=1).exp()[groups].prod(dim=1)
    token_log_ratios = (new - old)[groups]  # [groups, n, tokens]
    objective = make({"type": "bon_offpolicy_exact", "k": K, "clamp_log_ratio": None})
    advantages = objective(REWARDS[groups], token_log_ratios.sum(dim=2))
    values = surrogate(token_log_ratios.flatten(0, 1), advantages.flatten()).reshape(groups.shape)
    (gradient,) = torch.autograd.grad((chance[:, None] * values).sum(), logits)
    return gradient


def true_gradient():
    logits = NEW.clone().requires_grad_()
    tuples = torch.cartesian_prod(*[torch.arange(len(SEQUENCES))] * K)
    chances = token_log_probabilities(logits).sum(dim=1).exp()[tuples].prod(dim=1)
    (gradient,) = torch.autograd.grad((chances * REWARDS[tuples].amax(dim=1)).sum(), logits)
    return gradient


def test_ratios_reach_two():
    ratios = (token_log_probabilities(NEW) - token_log_probabilities(OLD)).sum(dim=1).exp()
    assert ratios.max() == pytest.approx(2, abs=0.25)
    assert ratios.min() < 0.75


def test_sequence_level_is_unbiased():
    got = expected_gradient(lambda log_ratios, a: sequence_surrogate(log_ratios.sum(dim=1), a, epsilon=None))
    torch.testing.assert_close(got, true_gradient(), rtol=1e-9, atol=1e-12)


def test_token_level_is_biased():
    got = expected_gradient(lambda log_ratios, a: token_surrogate(log_ratios, a, torch.ones(2), epsilon=None))
    bias = (got - true_gradient()).norm() / true_gradient().norm()
    assert 0.05 < bias < 0.5


@pytest.mark.parametrize("epsilon", [None, 0.2])
def test_both_agree_on_policy(epsilon):
    log_p = torch.tensor([[-1.0, -2.0, -0.5], [-0.1, -0.2, -0.3]])
    mask, advantages = torch.tensor([[1.0, 1, 1], [1, 1, 0]]), torch.tensor([0.7, -0.4])

    def gradient(surrogate):
        current = log_p.clone().requires_grad_()
        return torch.autograd.grad(surrogate(current - log_p).sum(), current)[0]

    by_token = gradient(lambda log_ratios: token_surrogate(log_ratios, advantages, mask, epsilon))
    whole = gradient(lambda log_ratios: sequence_surrogate((log_ratios * mask).sum(1), advantages, epsilon))
    torch.testing.assert_close(by_token, whole)


def test_clipping_by_hand():
    log_ratio = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1]).log()
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0])
    expected = torch.tensor([1.2, -1.5, 0.5, -0.8, 2.2])  # pessimistic: the smaller of both
    torch.testing.assert_close(sequence_surrogate(log_ratio, advantages, 0.2), expected)
    torch.testing.assert_close(sequence_surrogate(log_ratio, advantages, None), log_ratio.exp() * advantages)
    by_token = token_surrogate(log_ratio[:, None], advantages, torch.ones(5, 1), 0.2)
    torch.testing.assert_close(by_token, expected)


def test_a_huge_ratio_gives_no_nan():
    log_ratio = torch.tensor([1000.0, 1000.0], requires_grad=True)
    value = sequence_surrogate(log_ratio, torch.tensor([0.0, 1.0]), 0.2)
    (gradient,) = torch.autograd.grad(value.sum(), log_ratio)
    assert value.tolist() == pytest.approx([0, 1.2])
    assert gradient.isfinite().all()
