"""The oracle of the estimator and objective tests: sums over all subsets, written as the definitions read.

Nothing here is shared with the code under test, and nothing is fast: n ≤ 8 or so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

Statistic = Callable[[Sequence[float]], float]  # of the rewards of a subset
Weight = Callable[[Sequence[float], Sequence[int]], float]  # of ratios and members of a subset


def subsets_with(i: int, n: int, k: int) -> Iterator[tuple[int, ...]]:
    """All I ⊆ {0 … n−1} of size k that hold i."""
    return (subset for subset in itertools.combinations(range(n), k) if i in subset)


def best(rewards: Sequence[float], members: Sequence[int]) -> float:
    """0 for no members."""
    return max((rewards[i] for i in members), default=0.0)


def max_at_k(rewards: Sequence[float], k: int) -> float:
    values = [best(rewards, subset) for subset in itertools.combinations(range(len(rewards)), k)]
    return math.fsum(values) / len(values)


def over_subsets(n: int, k: int, term: Callable[[int, tuple[int, ...]], float]) -> list[float]:
    """C(n,k)⁻¹ Σ_{I∋i} term(i, I∖i) for every i."""
    return [
        math.fsum(term(i, tuple(j for j in subset if j != i)) for subset in subsets_with(i, n, k)) / math.comb(n, k)
        for i in range(n)
    ]


def subset_maxima(rewards: Sequence[float], k: int) -> list[float]:
    """r̃."""
    return over_subsets(len(rewards), k, lambda i, rest: best(rewards, (i, *rest)))


def first_order_maxima(rewards: Sequence[float], delta: Sequence[float], k: int, own: bool) -> list[float]:
    """r̃ with the weight 1 + Σ δ over the subset, with or without the own δ."""

    def term(i: int, rest: tuple[int, ...]) -> float:
        weight = 1 + math.fsum(delta[j] for j in rest) + (delta[i] if own else 0)
        return weight * best(rewards, (i, *rest))

    return over_subsets(len(rewards), k, term)


def weighted_maxima(rewards: Sequence[float], ratios: Sequence[float], k: int) -> list[float]:
    """C(n,k)⁻¹ Σ_{I∋i} max_I r Π_{l∈I∖i} ρ_l: the paper's eq. 10 without the own ratio."""

    def term(i: int, rest: tuple[int, ...]) -> float:
        return best(rewards, (i, *rest)) * math.prod(ratios[j] for j in rest)

    return over_subsets(len(rewards), k, term)


def best_of(m: int) -> Statistic:
    """The sum of the m best over m; fewer than m are filled up with zeros."""
    return lambda values: math.fsum(sorted(values)[-m:]) / m


def product(ratios: Sequence[float], members: Sequence[int]) -> float:
    return math.prod(ratios[j] for j in members)


def first_order(ratios: Sequence[float], members: Sequence[int]) -> float:
    """1 + Σ δ in place of the product."""
    return 1 + math.fsum(ratios[j] - 1 for j in members)


def leave_one_out(
    rewards: Sequence[float], ratios: Sequence[float], k: int, weight: Weight = product, m: int = 1
) -> list[float]:
    """C(n,k)⁻¹ Σ_{I∋i} (f(I) − f(I∖i)) Π_{l∈I∖i} ρ_l, f the mean of the best m."""
    f = best_of(m)

    def term(i: int, rest: tuple[int, ...]) -> float:
        others = [rewards[j] for j in rest]
        return (f([rewards[i], *others]) - f(others)) * weight(ratios, rest)

    return over_subsets(len(rewards), k, term)


def leave_two_out(rewards: Sequence[float], ratios: Sequence[float], k: int, weight: Weight = product) -> list[float]:
    """(k/n)·mean over j ≠ i and over J without i and j, |J| = k−1, of (max(r_i, J) − max(r_j, J)) Π_{l∈J} ρ_l."""
    n = len(rewards)
    advantages = []
    for i in range(n):
        exchanges = [
            (best(rewards, (i, *others)) - best(rewards, (j, *others))) * weight(ratios, others)
            for j in range(n)
            if j != i
            for others in itertools.combinations([m for m in range(n) if m not in (i, j)], k - 1)
        ]
        advantages.append(k / n * math.fsum(exchanges) / len(exchanges) if exchanges else 0.0)
    return advantages


def with_minus_without(rewards: Sequence[float], k: int, statistic: Statistic) -> list[float]:
    """(k/n)·(mean of the statistic over k-subsets with i − mean over those without i)."""
    n = len(rewards)
    subsets = list(itertools.combinations(range(n), k))

    def mean(chosen: list[tuple[int, ...]]) -> float:
        return math.fsum(statistic([rewards[j] for j in subset]) for subset in chosen) / len(chosen)

    return [k / n * (mean([s for s in subsets if i in s]) - mean([s for s in subsets if i not in s])) for i in range(n)]


def chances_of_being_best(rewards: Sequence[float], k: int) -> list[float]:
    """Of every member, the chance that it is the best of a random k-subset; ties share it evenly."""
    chances = [0.0] * len(rewards)
    subsets = list(itertools.combinations(range(len(rewards)), k))
    for subset in subsets:
        winners = [i for i in subset if rewards[i] == best(rewards, subset)]
        for i in winners:
            chances[i] += 1 / len(winners) / len(subsets)
    return chances


def analytic_pass_at_k(rewards: Sequence[float], k: int) -> list[float]:
    """(mean of the maximum over k-subsets with i − mean over all) / (standard deviation over all + 1e-6)."""
    subsets = list(itertools.combinations(range(len(rewards)), k))
    maxima = [best(rewards, subset) for subset in subsets]
    mean = math.fsum(maxima) / len(maxima)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in maxima) / len(maxima))
    advantages = []
    for i in range(len(rewards)):
        own = [value for subset, value in zip(subsets, maxima, strict=True) if i in subset]
        advantages.append((math.fsum(own) / len(own) - mean) / (spread + 1e-6))
    return advantages


def expected_gradient(
    advantages: Callable[[Tensor, Tensor], Tensor], rewards: Tensor, old: Tensor, new: Tensor, n: int
) -> Tensor:
    """E over all groups of n actions from `old` of Σ_i ρ_i A_i ∇log π(y_i), for softmax logits; exact.

    `rewards` and the probabilities `old`, `new` are [actions]; `advantages` takes [groups, n].
    """
    groups = torch.cartesian_prod(*[torch.arange(len(rewards))] * n)
    log_ratios = (new.log() - old.log())[groups]
    weights = old[groups].prod(dim=1)[:, None] * log_ratios.exp() * advantages(rewards[groups], log_ratios)
    scores = torch.eye(len(rewards), dtype=new.dtype) - new  # ∇_logits log π(a), one row an action
    return torch.einsum("gi,gia->a", weights, scores[groups])


def best_of_k_score(rewards: Tensor, logits: Tensor, k: int) -> Tensor:
    """E[∇log π(y*)], y* the best of k independent draws; equal rewards among them share the place evenly."""
    chances, scores = logits.softmax(0), torch.eye(len(rewards), dtype=logits.dtype) - logits.softmax(0)
    total = torch.zeros_like(logits)
    for drawn in itertools.product(range(len(rewards)), repeat=k):
        winners = [a for a in drawn if rewards[a] == max(rewards[b] for b in drawn)]
        total += chances[list(drawn)].prod() * scores[winners].mean(dim=0)
    return total


def max_at_k_gradient(rewards: Tensor, logits: Tensor, k: int, statistic: Statistic = max) -> Tensor:
    """∇ of E[max of k independent draws], or of another statistic of them, by autograd over all k-tuples."""
    logits = logits.detach().requires_grad_()
    tuples = torch.cartesian_prod(*[torch.arange(len(rewards))] * k).reshape(-1, k)
    values = torch.tensor([statistic(drawn) for drawn in rewards[tuples].tolist()], dtype=rewards.dtype)
    (gradient,) = torch.autograd.grad((logits.softmax(0)[tuples].prod(dim=1) * values).sum(), logits)
    return gradient
