"""Log-probabilities of completions, with every prefix that they share computed once, gradients included.

A batch repeats each prompt once per completion, and completions of one prompt often begin alike. Here a row is one
prompt with the tree of its completions: a node is a distinct (prefix, next token), and it attends to its ancestors
alone. Up to rounding, log-probabilities and gradients are those of one row per completion.

    tree = trees.build(input_ids, attention_mask, kept)
    output = model(**tree.inputs, fused_lm_head=True)  # TRL's fused head
    tree.spread(output.log_probs)                      # [completions, kept]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

IGNORED = -100  # label of a node without one
NODES = 4096  # of a prompt's completions at most: masks, and the time of attention, grow with their square
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
    """The trees of a batch whose last `kept` columns are completions; prompts are padded on the left."""
    start = input_ids.shape[1] - kept
    trees: dict[tuple[int, ...], _Branches] = {}
    paths: list[tuple[_Branches, list[int]]] = []
    for ids, mask in zip(input_ids.tolist(), attention_mask.tolist(), strict=True):
        prompt = tuple(ids[start - sum(mask[:start]) : start])
        tree = trees.setdefault(prompt, _Branches(prompt))
        paths.append((tree, tree.add(ids[start : start + sum(mask[start:])])))
    width = max(len(tree.tokens) for tree in trees.values())
    first = {id(tree): row * width for row, tree in enumerate(trees.values())}
    node = [[first[id(tree)] + at for at in path] + [-1] * (kept - len(path)) for tree, path in paths]
    rows = [tree.inputs(width) for tree in trees.values()]
    inputs = {name: torch.stack([row[name] for row in rows]).to(input_ids.device) for name in rows[0]}
    return Tree(inputs, torch.tensor(node, device=input_ids.device))


class _Branches:
    """A prompt and the tree of its completions. A completion's first node is a copy of the prompt's last token."""

    def __init__(self, prompt: tuple[int, ...]) -> None:
        self.last = len(prompt) - 2
        self.tokens, self.labels = list(prompt[:-1]), [IGNORED] * (len(prompt) - 1)
        self.first = prompt[-1]
        self.parents = list(range(-1, self.last))
        self._known: dict[tuple[int, int], int] = {}

    def add(self, completion: list[int]) -> list[int]:
        """The nodes whose labels are the completion's tokens."""
        path, parent, token = [], self.last, self.first
        for label in completion:
            node = self._known.get((parent, label))
            if node is None:
                node = self._known[parent, label] = len(self.tokens)
                self.tokens.append(token)
                self.labels.append(label)
                self.parents.append(parent)
            path.append(node)
            parent, token = node, label
        return path

    def inputs(self, width: int) -> dict[str, Tensor]:
        """Padded on the right; a padding node attends to itself."""
        padding = [0] * (width - len(self.tokens))
        seen = np.eye(width, dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                seen[node] |= seen[parent]
        return {
            "input_ids": torch.tensor(self.tokens + padding),
            "shift_labels": torch.tensor(self.labels + [IGNORED] * len(padding)),
            "position_ids": torch.from_numpy(seen.sum(1) - 1),
            "attention_mask": torch.from_numpy(seen)[None],
        }
