"""Generation that computes equal prefixes once: a row of the batch is a distinct prefix, not a sample.

Samples of a problem share its prompt, and many share their first tokens. A row splits where its samples diverge and
ends with the last of them. `Prefixes` holds the rows; `maxk.sampling.transformers` samples with it, and `generate` is
a decoding loop for transformers' `generate`, with which the trainer samples.

    model.generate(**inputs, do_sample=True, custom_generate=prefixes.generate)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from maxk.errors import UserError

RESOLUTION_BITS = 30  # of the uniform numbers; a row number plus a uniform number must fit a float64 (`inverse`)
RESOLUTION = 2**RESOLUTION_BITS


@torch.inference_mode()
def generate(
    model: torch.nn.Module,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    **inputs: Any,
) -> torch.Tensor:
    """Prompts [samples, length] with their sampled completions, padded after the end: transformers' `_sample`.

    Draws uniform numbers from torch's global generator. Does not keep processes in step that share a model's weights.
    """
    samples, length = input_ids.shape
    prompts, row = torch.unique(torch.cat([inputs["attention_mask"], input_ids], dim=1), dim=0, return_inverse=True)
    prefixes = Prefixes(model, prompts[:, length:], prompts[:, :length])
    width = int(generation_config.max_length)
    tokens = torch.full((samples, width), int(generation_config._pad_token_tensor), device=input_ids.device)
    tokens[:, :length] = input_ids

    def distribution(running: torch.Tensor, row: torch.Tensor, end: int) -> torch.Tensor:
        examples = running.new_empty(len(prefixes.logits)).index_copy_(0, row, running)  # one sample of each row
        scores: torch.Tensor = logits_processor(tokens[examples, :end], prefixes.logits.float())
        return scores.softmax(-1)

    def ended(running: torch.Tensor, end: int) -> torch.Tensor:
        stopped: torch.Tensor = stopping_criteria(tokens[running, :end], None)
        return stopped

    uniforms = torch.rand(samples, width - length, dtype=torch.float64, device=input_ids.device)
    # 0, and what rounds to it beside a row number, would draw an impossible token.
    uniforms.clamp_(min=0.5 / RESOLUTION)
    return tokens[:, : draw(prefixes, row, tokens, uniforms, distribution, ended)]


def draw(
    prefixes: Prefixes,
    row: torch.Tensor,
    tokens: torch.Tensor,
    uniforms: torch.Tensor,
    distribution: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor],
    ended: Callable[[torch.Tensor, int], torch.Tensor],
) -> int:
    """Draws a token per step for every sample that has not ended; returns the length of the longest sample.

    row           [samples]: the row of `prefixes` that each sample starts from
    tokens        [samples, width]: as many of the last columns as `uniforms` has are written; what follows a sample's
                  end stays as it is
    uniforms      [samples, steps], between 0 and 1
    distribution  (running samples, their rows, length so far) → probabilities of the next token [rows, vocabulary]
    ended         (running samples, length so far) → which of them have ended
    """
    steps = uniforms.shape[1]
    end = tokens.shape[1] - steps
    running = torch.arange(len(tokens), device=tokens.device)
    for step in range(steps):
        drawn = inverse(distribution(running, row, end), row, uniforms[running, step])
        tokens[running, end] = drawn
        end += 1
        on = ~ended(running, end)
        running, row, drawn = running[on], row[on], drawn[on]
        if len(running) == 0 or step + 1 == steps:
            break
        row = prefixes.follow(row, drawn)
    return end


def padded(prompts: Sequence[list[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask [prompts, length], padded on the left."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(ids)) + ids for ids in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts], device=device)
    return ids, mask


class Prefixes:
    """The distinct prefixes of a batch's samples: one row each in the key-value cache, with next-token logits."""

    def __init__(self, model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> None:
        """Prompts, padded on the left, so that every prompt ends where its completions begin; both [rows, length]."""
        self.model, self.mask = model, mask
        self.cache = DynamicCache(config=model.config)
        # `past_key_values` became `cache` in transformers 5.24; vLLM's environment has an older one.
        parameters = inspect.signature(type(model).forward).parameters
        self.cache_name = "cache" if "cache" in parameters else "past_key_values"
        self.positions = (mask.cumsum(1) - 1).clamp(min=0)
        self.logits = self._forward(ids)

    def follow(self, row: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        """Sample i, of row `row[i]`, goes on with token `drawn[i]`; returns the samples' new rows."""
        vocabulary = self.logits.shape[1]
        new: torch.Tensor
        extended, new = torch.unique(row * vocabulary + drawn, return_inverse=True)
        self._extend(extended // vocabulary, extended % vocabulary)
        return new

    def _extend(self, parents: torch.Tensor, tokens: torch.Tensor) -> None:
        """Replaces the rows: the new row i is the old row `parents[i]` followed by `tokens[i]`."""
        if not torch.equal(parents, torch.arange(len(self.mask), device=parents.device)):
            self.cache.batch_select_indices(parents)
        self.mask = torch.cat([self.mask[parents], self.mask.new_ones(len(parents), 1)], dim=1)
        self.positions = self.positions[parents, -1:] + 1
        self.logits = self._forward(tokens[:, None])

    def _forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        output = self.model(
            input_ids=input_ids,
            attention_mask=self.mask,
            position_ids=self.positions,
            use_cache=True,
            logits_to_keep=1,
            **{self.cache_name: self.cache},
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits


def inverse(p: torch.Tensor, row: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The token at which the cumulative distribution of `p[row[i]]` passes `uniform[i]`, for every sample i.

    The rows' distributions are concatenated, row r covering r to r + 1, so one search serves all samples. Raises
    UserError for a row of NaN, which would mislead the search in other rows, too.
    """
    cumulative = p.cumsum(1, dtype=torch.float64)
    total = cumulative[:, -1:].clone()
    if not total.isfinite().all():
        raise UserError("the model's logits are not finite (in float16 they can overflow)")
    line = cumulative.div_(total).add_(torch.arange(len(p), device=p.device)[:, None])
    return torch.searchsorted(line.flatten(), row + uniform) - row * p.shape[1]
