"""Sampling completions from a policy: one module per backend, all behind `Backend`.

A sample is identified by its problem and its number. Its random numbers derive from (experiment seed, policy, problem,
number), so neither n nor chunks, shards and batches change which samples a problem gets.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from maxk.artifacts import models
from maxk.artifacts.records import Policy, Task
from maxk.config import Sampling
from maxk.errors import UserError
from maxk.sampling import stopping


class Completion(NamedTuple):
    """One sampled completion: its text, its token ids (the text does not determine them), and why it ended.

    `entropy`, the mean over its tokens in nats, is None if the backend does not measure it.
    """

    text: str
    tokens: Sequence[int]
    finish_reason: str
    entropy: float | None = None


@dataclass(frozen=True)
class Request:
    """`count` completions of `prompt`: samples `first`, `first + 1`, … of the problem, whose seed is `seed`.

    Sample i's random numbers are a function of (`seed`, i), whichever request it is drawn by.
    """

    problem_id: str
    prompt: str
    first: int
    count: int
    seed: int


Drawn = list[tuple[Request, list[Completion]]]


class Backend(Protocol):
    """A loaded model that answers requests."""

    measures: bool
    """Whether completions have their entropies."""

    @property
    def facts(self) -> Mapping[str, str | float]:
        """Recorded in the provenance of the samples, next to the backend's name."""

    def sample(self, requests: Sequence[Request]) -> Iterator[Drawn]:
        """Yields every request with its `count` completions, in any order; those that end together, together."""

    def close(self) -> None:
        """Frees the memory of the model's devices."""


def seed_of(*parts: object) -> int:
    """A 63-bit seed from any values, the same on every machine and in every process."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def requests(
    tasks: Sequence[Task],
    prompts: Sequence[str],
    policy: str,
    config: Sampling,
    drawn: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> list[Request]:
    """The requests that give every task its `config.n` completions, besides those already `drawn` (by problem id).

    The end of a chunk is drawn from its first missing sample on.
    """
    wanted: list[Request] = []
    for task, prompt in zip(tasks, prompts, strict=True):
        seed, known = seed_of(config.seed, policy, task.problem_id), drawn.get(task.problem_id, ())
        for start in range(0, config.n, config.chunk):
            end = min(start + config.chunk, config.n)
            first = next((number for number in range(start, end) if number not in known), end)
            if first < end:
                wanted.append(Request(task.problem_id, prompt, first, end - first, seed))
    return wanted


# ---- shared by all backends
def dtype_of(config: Sampling, on_gpu: bool) -> str:
    """The type of weights and activations, with `auto` resolved."""
    if config.dtype != "auto":
        return config.dtype
    return "bfloat16" if on_gpu else "float32"


def stop_tokens(policy: Policy, tokenizer: Any, config: Sampling) -> list[int]:
    """Ids of the tokens that end a completion: the policy's end-of-sequence tokens and `config.stop_tokens`."""
    try:
        own = models.generation_config(policy.model, policy.revision).eos_token_id
    except OSError:  # the folder has no generation_config.json
        own = None
    ids = {tokenizer.eos_token_id, *(own if isinstance(own, list) else [own])} - {None}
    for token in config.stop_tokens:
        if token not in tokenizer.get_vocab():
            raise UserError(f"sampling.stop_tokens: {token!r} is not one token of {policy.model}")
        ids.add(tokenizer.convert_tokens_to_ids(token))
    if not ids:
        raise UserError(f"{policy.model} has no end-of-sequence token; set one in sampling.stop_tokens")
    return sorted(ids)


def prompt_ids(prompt: str, tokenizer: Any) -> list[int]:
    """Token ids of a prompt.

    One that starts with the beginning-of-sequence token, as chat templates write it, gets no second one.
    """
    written = tokenizer.bos_token is not None and prompt.startswith(tokenizer.bos_token)
    ids: list[int] = tokenizer(prompt, add_special_tokens=not written)["input_ids"]
    return ids


def require_room(problem_id: str, length: int, key: str, max_tokens: int, limit: int | None) -> None:
    """Raises UserError if a prompt of `length` tokens leaves less than `max_tokens` of the model's `limit`."""
    if limit is not None and length + max_tokens > limit:
        raise UserError(
            f"{problem_id}: a prompt of {length} tokens and {key}={max_tokens} exceed the {limit} tokens that the "
            "model takes"
        )


def context_limit(policy: Policy, config: Sampling) -> int | None:
    """Most tokens of a prompt and its completion together; None if the model states none.

    vLLM multiplies what a model states by the factor of its rotary embeddings.
    """
    if config.backend == "vllm" and config.vllm.max_model_len is not None:
        return config.vllm.max_model_len
    found = models.config(policy.model, policy.revision)
    limit = models.context_length(found)
    if config.backend != "vllm" or limit is None:
        return limit
    rope = getattr(found.get_text_config(), "rope_scaling", None) or {}
    return int(limit * max(1.0, rope.get("factor") or 1.0))


def require_supported(policy: Policy, config: Sampling) -> None:
    """Raises UserError if the backend cannot sample from a model of this architecture."""
    found = models.config(policy.model, policy.revision)
    kind = models.causal_lm_class(found)
    if kind is None:
        raise UserError(
            f"base.model {policy.model!r} is a {found.model_type}, which transformers cannot use to generate text"
        )
    if config.backend == "transformers" and models.has_recurrent_state(found):
        raise UserError(
            f"base.model {policy.model!r} is a {kind.__name__}, whose recurrent state sampling.backend=transformers "
            "cannot split where samples diverge; choose backend=vllm"
        )


def encode(requests: Sequence[Request], tokenizer: Any, config: Sampling, limit: int | None) -> dict[str, list[int]]:
    """Token ids of every prompt; UserError if one leaves less than `max_tokens` of the model's `limit`."""
    ids: dict[str, list[int]] = {}
    for request in requests:
        prompt = request.prompt
        if prompt not in ids:
            ids[prompt] = prompt_ids(prompt, tokenizer)
        require_room(request.problem_id, len(ids[prompt]), "sampling.max_tokens", config.max_tokens, limit)
    return ids


def completions(
    rows: Iterable[Sequence[int]], stop_tokens: Sequence[int], stop: Sequence[str], tokenizer: Any
) -> Iterator[Completion]:
    """Completions from token rows. Decodes equal rows once.

    The stop token counts as a token but is not in the text; a stop string is.
    """
    texts: dict[tuple[int, ...], str] = {}
    for row in rows:
        ended = row[-1] in stop_tokens
        kept = tuple(row[:-1] if ended else row)
        if kept not in texts:
            texts[kept] = tokenizer.decode(kept, skip_special_tokens=True)
        reason = "stop" if ended else "stop_string" if stopping.holds(texts[kept], stop) else "length"
        yield Completion(texts[kept], row, reason)


# ---- the backends
def _transformers(policy: Policy, config: Sampling) -> Backend:
    from maxk.sampling.transformers import TransformersBackend

    return TransformersBackend(policy, config)


def require_installed(key: str, backend: str) -> None:
    """Raises UserError if the library of the backend that `key` names is missing; no other backend replaces it."""
    if backend == "vllm" and importlib.util.find_spec("vllm") is None:
        raise UserError(f"{key}=vllm: vLLM is not installed (docs/sampling.md says how); or choose transformers")


def _vllm(policy: Policy, config: Sampling) -> Backend:
    from maxk.sampling.vllm import VllmBackend

    return VllmBackend(policy, config)


BACKENDS: Mapping[str, Callable[[Policy, Sampling], Backend]] = {"transformers": _transformers, "vllm": _vllm}
