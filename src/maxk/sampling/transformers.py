"""Sampling with transformers, by our own loop over the model's forward pass (docs/sampling.md).

`generate` lacks two properties: equal prefixes are computed once (`maxk.sampling.prefixes`), and a sample depends on
its seed and number alone, whatever else is in its batch. The entropy of every token is measured on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
import torch
from transformers import StopStringCriteria, TopPLogitsWarper

from maxk import sampling
from maxk.artifacts import models
from maxk.artifacts.packing import packed
from maxk.artifacts.records import Policy
from maxk.config import Sampling
from maxk.sampling import Completion, Drawn, Request
from maxk.sampling.prefixes import RESOLUTION, RESOLUTION_BITS, Prefixes, draw, padded

Prompts = Mapping[str, list[int]]  # token ids of every prompt


class TransformersBackend:
    """Loads the policy once: onto a GPU if there is one, otherwise onto one CPU thread."""

    def __init__(self, policy: Policy, config: Sampling) -> None:
        self.config, self.measures = config, config.entropy
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if self.device.type == "cpu":
            torch.set_num_threads(1)  # more threads do not speed up small models, and jobs run side by side
        dtype = sampling.dtype_of(config, on_gpu=self.device.type == "cuda")
        self.tokenizer = models.tokenizer(policy.model, policy.revision)
        model = models.causal_lm(policy.model, policy.revision, dtype)
        self.model = model.to(self.device).eval()
        self.stop_tokens = sampling.stop_tokens(policy, self.tokenizer, config)
        self.stop_strings = StopStringCriteria(self.tokenizer, list(config.stop)) if config.stop else None
        self.facts: Mapping[str, str | float] = {"device": self.device.type, "dtype": dtype}

    def sample(self, requests: Sequence[Request]) -> Iterator[Drawn]:
        """Yields batches of requests with their completions."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        prompts = sampling.encode(requests, self.tokenizer, self.config, limit)
        for batch in self.batches(requests, prompts):
            completions = iter(self._completions(batch, prompts))
            yield [(request, [next(completions) for _ in range(request.count)]) for request in batch]

    def close(self) -> None:
        """Frees the weights' memory, on a GPU too."""
        del self.model
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def batches(self, requests: Sequence[Request], prompts: Prompts) -> Iterator[list[Request]]:
        """Chunk after chunk, by decreasing prompt length; up to `batch_tokens`, or one larger request, per batch.

        A job that goes on after whole batches forms the batches that were left, and one with a larger n first those of
        the smaller: so even rounding is the same.
        """

        def tokens(request: Request) -> int:
            return request.count * (len(prompts[request.prompt]) + self.config.max_tokens)

        def chunk(request: Request) -> int:
            return request.first // self.config.chunk

        longest_first = sorted(requests, key=lambda request: len(prompts[request.prompt]), reverse=True)
        for _, together in groupby(sorted(longest_first, key=chunk), key=chunk):
            yield from packed(together, tokens, self.config.batch_tokens)

    def _completions(self, batch: Sequence[Request], prompts: Prompts) -> Iterator[Completion]:
        sums = torch.zeros(sum(request.count for request in batch), dtype=torch.float64, device=self.device)
        tokens = self.generate(batch, prompts, sums if self.measures else None)
        rows = [[token for token in row if token >= 0] for row in tokens.tolist()]
        made = sampling.completions(rows, self.stop_tokens, self.config.stop, self.tokenizer)
        for completion, total in zip(made, sums.tolist(), strict=True):
            yield completion._replace(entropy=total / len(completion.tokens)) if self.measures else completion

    @torch.inference_mode()
    def generate(
        self, batch: Sequence[Request], prompts: Prompts, entropies: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Tokens [samples, max_tokens], −1 after the end. Adds the nats of every sample's tokens to `entropies`."""
        row_of = {prompt: row for row, prompt in enumerate(dict.fromkeys(r.prompt for r in batch))}
        uniforms = torch.cat([_uniforms(r, self.config.max_tokens) for r in batch]).to(self.device)
        stop = torch.tensor(self.stop_tokens, device=self.device)
        tokens = torch.full(uniforms.shape, -1, device=self.device)

        row = torch.tensor([row_of[r.prompt] for r in batch for _ in range(r.count)], device=self.device)
        prefixes = Prefixes(self.model, *padded([prompts[prompt] for prompt in row_of], self.device))

        def ended(running: torch.Tensor, end: int) -> torch.Tensor:
            last = torch.isin(tokens[running, end - 1], stop)
            if self.stop_strings is None:
                return last
            since = max(0, end - self.stop_strings.maximum_token_len)  # a stop string has no more tokens
            return torch.logical_or(last, self.stop_strings(tokens[running, since:end], None))

        def distribution(running: torch.Tensor, row: torch.Tensor, _: int) -> torch.Tensor:
            logits = prefixes.logits.float() / self.config.temperature
            p = logits.softmax(-1)
            if entropies is not None:  # of the distribution before top-p
                entropies[running] += torch.special.entr(p).sum(-1).double()[row]
            return p if self.config.top_p == 1.0 else TopPLogitsWarper(self.config.top_p)(None, logits).softmax(-1)

        draw(prefixes, row, tokens, uniforms, distribution, ended)
        return tokens


def _uniforms(request: Request, length: int) -> torch.Tensor:
    """Numbers strictly between 0 and 1, float64 [count, length], the same on every device.

    Philox is a function of (key, counter) that gives four numbers, so sample i has counters of its own.
    """
    counters = -(-length // 4)
    generator = np.random.Philox(key=request.seed, counter=request.first * counters)
    bits = generator.random_raw((request.count, 4 * counters))[:, :length] >> (64 - RESOLUTION_BITS)
    return torch.from_numpy((bits.astype(np.float64) + 0.5) / RESOLUTION)
