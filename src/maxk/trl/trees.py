"""Log-probabilities of completions, with every prefix that they share computed once, gradients included.

A batch repeats each prompt once per completion, and completions of one prompt often begin alike. Here a row is one
prompt with the tree of its completions: a node is a distinct (prefix, next token), and it attends to its ancestors
alone. Up to rounding, log-probabilities and gradients are those of one row per completion.

    tree = trees.build(input_ids, attention_mask, kept)
    output = model(**tree.inputs, fused_lm_head=True)  # TRL's head; or logits, without `shift_labels`
    tree.spread(output.log_probs)                      # [completions, kept]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

IGNORED = -100  # label of a node without one
_PADDING = -1  # sorts before every token
NODES = 4096  # of a prompt's completions at most: masks, and the time of attention, grow with their square
VOCABULARY = 4096  # at most, for all logits of a micro-batch to be in memory at once
_ARCHITECTURES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True)
class Tree:
    """A batch as trees.

    inputs   of the model, [prompts, nodes] each; the attention mask is [prompts, 1, nodes, nodes]
    node     of every completion token, as a flat index, −1 after a completion's end: [completions, kept]
    """

    inputs: dict[str, Tensor]
    node: Tensor

    def spread(self, values: Tensor) -> Tensor:
        """Values of nodes [prompts, nodes] → values of tokens [completions, kept]; 0 after a completion's end."""
        return torch.where(self.node < 0, 0.0, values.flatten()[self.node.clamp(min=0)])


def supports(config: Any) -> bool:
    """Whether tokens interact only in full attention, which takes any mask and any positions."""
    full = all(layer == "full_attention" for layer in getattr(config, "layer_types", None) or [])
    return bool(config.model_type in _ARCHITECTURES and full and config._attn_implementation == "sdpa")


def build(input_ids: Tensor, attention_mask: Tensor, kept: int) -> Tree:
    """The trees of a batch whose last `kept` columns are completions; prompts are padded on the left.

    Sequences are sorted, so that those with a common beginning are neighbours: a column holds a new node where a
    sequence already differs from the one before. In this order a node's descendants directly follow it.
    """
    start = input_ids.shape[1] - kept
    ids = torch.where(attention_mask.bool(), input_ids, _PADDING).cpu().numpy()
    sequences, sequence_of = np.unique(ids, axis=0, return_inverse=True)
    new, exists, first = _nodes(sequences, start)
    sequence, column = np.nonzero(new)
    tree = np.cumsum(first)[sequence] - 1
    sizes = np.bincount(tree, minlength=first.sum())
    width = max(1, sizes.max())  # prompts of one token without completions have no node
    place = np.arange(len(tree)) - (np.cumsum(sizes) - sizes)[tree] + tree * width  # in [prompts, nodes], flat

    path = np.full(new.shape, -1)  # a node's place in every sequence that passes through it
    path[new] = place
    path = np.where(exists, np.maximum.accumulate(path, axis=0), -1)
    ends = np.arange(1, len(sizes) * width + 1)  # the place after a node's last descendant
    np.maximum.at(ends, path[exists], np.broadcast_to(path.max(1, keepdims=True) + 1, path.shape)[exists])

    def laid_out(values: Any, padding: int) -> Tensor:
        filled = np.full(len(ends), padding)
        filled[place] = values
        return torch.from_numpy(filled.reshape(len(sizes), -1)).to(input_ids.device)

    source = column - (column >= start)  # a completion's node reads the token before the one that it predicts
    begins = (sequences == _PADDING)[:, :start].sum(1)
    inputs = {
        "input_ids": laid_out(sequences[sequence, source], 0),
        "shift_labels": laid_out(np.where(column < start, IGNORED, sequences[sequence, column]), IGNORED),
        "position_ids": laid_out(source - begins[sequence], 0),
        "attention_mask": _seen(torch.from_numpy(ends.reshape(len(sizes), -1)).to(input_ids.device)),
    }
    return Tree(inputs, torch.from_numpy(path[sequence_of.ravel(), start:]).to(input_ids.device))


def _nodes(sequences: Any, start: int) -> tuple[Any, Any, Any]:
    """Where sorted sequences [sequences, length] have nodes of their own, where any, and which begin a prompt.

    A prompt's last token has no node: each of its completions' first nodes reads it.
    """
    differs = np.ones(sequences.shape, bool)
    np.logical_or.accumulate(sequences[1:] != sequences[:-1], axis=1, out=differs[1:])
    first = differs[:, start - 1].copy()
    differs[first] = True  # prompts share nothing
    exists = sequences != _PADDING
    exists[:, start - 1] = False
    return exists & differs, exists, first


def _seen(ends: Tensor) -> Tensor:
    """A node attends to its ancestors and itself, padding to itself: [prompts, nodes] → [prompts, 1, nodes, nodes]."""
    place = torch.arange(ends.numel(), device=ends.device).view_as(ends)
    earlier = place[:, None, :] <= place[:, :, None]
    return (earlier & (place[:, :, None] < ends[:, None, :]))[:, None]
