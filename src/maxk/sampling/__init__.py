"""Sampling completions from a policy: one module a backend, all behind `Backend`.

A request is one chunk of one problem's completions with a seed of its own, derived from (experiment seed, policy,
problem, chunk). Shards and batches therefore do not change which samples a problem gets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from maxk.config import Sampling
from maxk.records import Policy, Problem


class Completion(NamedTuple):
    """One sampled completion; see `records.SAMPLE` for units."""

    text: str
    n_tokens: int
    finish_reason: str
    entropy: float | None


@dataclass(frozen=True)
class Request:
    """`count` completions of `prompt`, drawn under `seed`; they are samples `first`, `first + 1`, … of the problem."""

    problem_id: str
    prompt: str
    first: int
    count: int
    seed: int


class Backend(Protocol):
    def sample(self, requests: Sequence[Request]) -> Iterator[tuple[Request, list[Completion]]]:
        """Yields every request with its completions, in any order."""


def seed_of(*parts: object) -> int:
    """A 63-bit seed from any coordinates, the same on every machine and in every process."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def requests(problems: Sequence[Problem], prompts: Sequence[str], policy: str, config: Sampling) -> list[Request]:
    """The requests that give every problem its `config.n` completions."""
    return [
        Request(
            problem.problem_id,
            prompt,
            first,
            count=min(config.chunk, config.n - first),
            seed=seed_of(config.seed, policy, problem.problem_id, first),
        )
        for problem, prompt in zip(problems, prompts, strict=True)
        for first in range(0, config.n, config.chunk)
    ]


def _transformers(policy: Policy, config: Sampling) -> Backend:
    from maxk.sampling.transformers import TransformersBackend

    return TransformersBackend(policy, config)


BACKENDS: Mapping[str, Callable[[Policy, Sampling], Backend]] = {"transformers": _transformers}
