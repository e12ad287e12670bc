"""Mean token entropies of samples whose backend did not measure them, by a forward pass of `transformers`.

    entropies = Entropies(policy, config.sampling)
    means = entropies([(prompt_ids, completion_ids), ...])     # nats per token, as docs/sampling.md defines them

A batch is padded on the right: under causal attention no token sees the padding, so neither a mask nor positions are
needed. Its tokens and its logits are bounded; a completion with more logits is read in parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

from maxk import sampling
from maxk.artifacts import models
from maxk.artifacts.records import Policy
from maxk.config import Sampling
from maxk.errors import UserError

TOKENS = {"cuda": 2**15, "cpu": 2**12}  # of a batch, with padding; on a CPU its activations fit the cache
LOGITS = {"cuda": 2**30, "cpu": 2**26}  # of a batch, in the type of the weights
FLOATS = {"cuda": 2**26, "cpu": 2**20}  # logits that are converted to float32 at a time

Sequences = Sequence[tuple[Sequence[int], Sequence[int]]]  # token ids of prompt and completion


class Part(NamedTuple):
    """The positions that predict `length` tokens of sequence `owner`: the last `length` of `ids`."""

    owner: int
    ids: tuple[int, ...]
    length: int

    @property
    def before(self) -> int:
        return len(self.ids) - self.length


class Entropies:
    """Loads the policy onto the visible GPUs, otherwise onto the CPU."""

    def __init__(self, policy: Policy, config: Sampling) -> None:
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        if kind == "cpu":
            torch.set_num_threads(1)  # more threads do not speed up small models, and jobs run side by side
        spread = "auto" if torch.cuda.device_count() > 1 else kind
        dtype = sampling.dtype_of(config, on_gpu=kind == "cuda")
        self.temperature, self.name = config.temperature, policy.name
        self.model = models.causal_lm(policy.model, policy.revision, dtype, spread).eval()
        self.device: torch.device = self.model.device
        self.vocabulary: int = self.model.config.get_text_config().vocab_size
        self.tokens, self.floats = TOKENS[kind], FLOATS[kind]
        self.positions = max(1, LOGITS[kind] // self.vocabulary)
        self.facts = {"entropy": f"{kind} {dtype}"}

    def __call__(self, sequences: Sequences) -> list[float]:
        """Nats per token of every completion: the mean over its tokens, the last one included.

        Raises UserError if the model's probabilities are not numbers, or the backend has given no tokens.
        """
        if not all(completion for _, completion in sequences):
            raise UserError(f"{self.name}: completions without tokens have no entropy; set sampling.entropy to false")
        distinct = list(dict.fromkeys((tuple(prompt), tuple(completion)) for prompt, completion in sequences))
        sums = torch.zeros(len(distinct), dtype=torch.float64)
        for batch in batches(self._parts(distinct), self.tokens, self.positions):
            sums.index_add_(0, torch.tensor([part.owner for part in batch]), self._sums(batch).cpu())
        if not sums.isfinite().all():
            raise UserError(f"{self.name}: the model's entropies are not finite")
        means = {one: total / len(one[1]) for one, total in zip(distinct, sums.tolist(), strict=True)}
        return [means[tuple(prompt), tuple(completion)] for prompt, completion in sequences]

    def _parts(self, sequences: Sequences) -> list[Part]:
        """The parts of all sequences, sorted so that batches need little padding."""
        found = []
        for owner, (prompt, completion) in enumerate(sequences):
            ids = (*prompt, *completion)
            for start in range(len(prompt), len(ids), self.positions):
                stop = min(start + self.positions, len(ids))
                found.append(Part(owner, ids[: stop - 1], stop - start))
        return sorted(found, key=lambda part: (part.before, len(part.ids)))

    @torch.inference_mode()
    def _sums(self, batch: Sequence[Part]) -> torch.Tensor:
        """The sum of every part's entropies, float64."""
        width, first = max(len(part.ids) for part in batch), batch[0].before
        ids = torch.tensor([[*part.ids, *[0] * (width - len(part.ids))] for part in batch], device=self.device)
        logits = self.model(input_ids=ids, use_cache=False, logits_to_keep=width - first).logits
        logits = logits[:, first - width :]  # a model may ignore logits_to_keep
        position = torch.arange(first, width, device=self.device)
        before, end = (torch.tensor(x, device=self.device)[:, None] for x in zip(*map(_span, batch), strict=True))
        rows, columns = ((position >= before) & (position < end)).nonzero(as_tuple=True)
        sums = torch.zeros(len(batch), dtype=torch.float64, device=self.device)
        size = max(1, self.floats // self.vocabulary)
        for row, column in zip(torch.split(rows, size), torch.split(columns, size), strict=True):
            p = (logits[row, column].float() / self.temperature).softmax(-1)
            sums.index_add_(0, row, torch.special.entr(p).sum(-1).double())
        return sums


def _span(part: Part) -> tuple[int, int]:
    return part.before, len(part.ids)


def batches(parts: Iterable[Part], tokens: int, positions: int) -> Iterator[list[Part]]:
    """Groups of consecutive parts (sorted by `before`) with at most `tokens` padded ids and `positions` rows of logits.

    A larger part is a group of its own.
    """
    group: list[Part] = []
    width = 0
    for part in parts:
        width = max(width, len(part.ids))
        rows = len(group) + 1
        if group and (rows * width > tokens or rows * (width - group[0].before) > positions):
            yield group
            group, width = [], len(part.ids)
        group.append(part)
    if group:
        yield group
