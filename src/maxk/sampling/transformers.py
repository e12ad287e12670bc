"""Sampling with `transformers.generate`.

`generate` draws from one global random state, so the samples of a problem would depend on what shares its batch. Here
every request has a generator of its own: the exponential races below (argmax of p_v / E_v with E_v ~ Exp(1) picks v
with probability p_v) make sampling an argmax, so `generate` runs greedily over perturbed logits and requests of many
problems share one batch. The same hook sums each completion's token entropy, so no logits are kept.

Requests are sorted by prompt length and packed into batches of `batch_sequences`; a batch stops when all its sequences
have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)

from maxk.config import Sampling
from maxk.records import Policy
from maxk.sampling import Completion, Request


class TransformersBackend:
    """Loads the policy once; on a GPU in bfloat16 if there is one, else on the CPU in float32 with one thread."""

    def __init__(self, policy: Policy, config: Sampling) -> None:
        self.config = config
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if self.device.type == "cpu":
            torch.set_num_threads(1)  # for small models threads cost more than they give; jobs run side by side
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.tokenizer = AutoTokenizer.from_pretrained(policy.model, revision=policy.revision, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(policy.model, revision=policy.revision, dtype=dtype)
        self.model = model.to(self.device).eval()

    def sample(self, requests: Sequence[Request]) -> Iterator[tuple[Request, list[Completion]]]:
        """Yields every request with its completions, longest prompts first."""
        lengths = {id(r): len(self.tokenizer(r.prompt)["input_ids"]) for r in requests}
        ordered = sorted(requests, key=lambda r: lengths[id(r)], reverse=True)
        for batch in _packed(ordered, self.config.batch_sequences):
            completions = iter(self._generate(batch))
            for request in batch:
                yield request, [next(completions) for _ in range(request.count)]

    @torch.inference_mode()
    def _generate(self, batch: Sequence[Request]) -> list[Completion]:
        prompts = self.tokenizer([r.prompt for r in batch], return_tensors="pt", padding=True).to(self.device)
        repeats = torch.tensor([r.count for r in batch], device=self.device)
        prompts = {name: tensor.repeat_interleave(repeats, dim=0) for name, tensor in prompts.items()}
        width = prompts["input_ids"].shape[1]
        race = _ExponentialRace(batch, width, self._stop_tokens(), self.device)
        output = self.model.generate(
            input_ids=prompts["input_ids"],
            attention_mask=prompts["attention_mask"],
            max_new_tokens=self.config.max_tokens,
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            pad_token_id=self.tokenizer.pad_token_id,
            logits_processor=LogitsProcessorList([*self._warpers(race), race]),
        )
        return self._completions(output[:, width:], race)

    def _warpers(self, race: _ExponentialRace) -> list[LogitsProcessor]:
        """Temperature, then the entropy of what is left to chance, then the nucleus."""
        warpers: list[LogitsProcessor] = []
        if self.config.temperature != 1.0:
            warpers.append(TemperatureLogitsWarper(self.config.temperature))
        if self.config.entropy:
            warpers.append(race.entropy_meter)
        if self.config.top_p < 1.0:
            warpers.append(TopPLogitsWarper(self.config.top_p))
        return warpers

    def _stop_tokens(self) -> torch.Tensor:
        stop = self.model.generation_config.eos_token_id
        return torch.tensor(stop if isinstance(stop, list) else [stop], device=self.device)

    def _completions(self, tokens: torch.Tensor, race: _ExponentialRace) -> list[Completion]:
        ended = torch.isin(tokens, race.stop_tokens)
        lengths = torch.where(ended.any(1), ended.int().argmax(1) + 1, tokens.shape[1]).tolist()
        entropies: list[Any] = [None] * len(lengths)
        if self.config.entropy:
            entropies = (race.entropy_meter.total / torch.tensor(lengths, device=self.device)).tolist()
        rows = [row[:length] for row, length in zip(tokens.tolist(), lengths, strict=True)]
        texts = self.tokenizer.batch_decode(rows, skip_special_tokens=True)
        reasons = ["stop" if stopped else "length" for stopped in ended.any(1).tolist()]
        return [Completion(*row) for row in zip(texts, lengths, reasons, entropies, strict=True)]


class _EntropyMeter(LogitsProcessor):
    """Adds up the entropy (nats) of each sequence's next-token distribution until the sequence ends."""

    def __init__(self, rows: int, width: int, stop_tokens: torch.Tensor, device: torch.device) -> None:
        self.width, self.stop_tokens = width, stop_tokens
        self.total = torch.zeros(rows, device=device)
        self.running = torch.ones(rows, dtype=torch.bool, device=device)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] > self.width:
            self.running &= ~torch.isin(input_ids[:, -1], self.stop_tokens)
        log_p = scores.float().log_softmax(-1)
        self.total += torch.where(self.running, -(log_p.exp() * log_p).sum(-1), 0.0)
        return scores


class _ExponentialRace(LogitsProcessor):
    """Perturbs logits so that their argmax is a sample, each request from its own generator."""

    def __init__(self, batch: Sequence[Request], width: int, stop_tokens: torch.Tensor, device: torch.device) -> None:
        self.stop_tokens = stop_tokens
        self.counts = [r.count for r in batch]
        self.generators = [torch.Generator(device).manual_seed(r.seed) for r in batch]
        self.entropy_meter = _EntropyMeter(sum(self.counts), width, stop_tokens, device)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        noise = torch.empty_like(scores, dtype=torch.float32)
        for rows, generator in zip(torch.split(noise, self.counts), self.generators, strict=True):
            rows.exponential_(generator=generator)
        return scores.float() - noise.log()


def _packed(requests: Sequence[Request], limit: int) -> Iterator[list[Request]]:
    """Requests in order, in batches of at most `limit` sequences (a larger request is a batch of its own)."""
    batch: list[Request] = []
    for request in requests:
        if batch and sum(r.count for r in batch) + request.count > limit:
            yield batch
            batch = []
        batch.append(request)
    if batch:
        yield batch
