"""Micro-batches of sequences of similar length, without common padding."""

from __future__ import annotations

from typing import Any

import torch
from trl.trainer.utils import split_tensor_dict


def by_length(batches: list[dict[str, Any]], together: int) -> list[dict[str, Any]]:
    """The same sequences in as many micro-batches, sorted by completion length, each cut to its longest.

    `together` sequences that were generated next to each other stay in one micro-batch (a group, or 1). All
    micro-batches belong to one optimiser step, so their order changes no gradient; it saves computing padding.
    """
    generated = torch.cat([batch["row"] for batch in batches]).argsort()
    lengths = torch.cat([batch["completion_mask"].sum(1) for batch in batches])[generated]
    units = lengths.view(-1, together).amax(1).argsort(stable=True)
    order = generated.view(-1, together)[units].flatten()
    merged = {
        key: torch.cat([batch[key] for batch in batches])[order] if value.ndim else value
        for key, value in batches[0].items()
    }
    return [_cut(batch) for batch in split_tensor_dict(merged, len(batches))]


def _cut(batch: dict[str, Any]) -> dict[str, Any]:
    """A micro-batch without the columns that are padding in all its sequences."""
    prompt, completion = (max(1, int(batch[f"{part}_mask"].sum(1).max())) for part in ("prompt", "completion"))
    return {
        key: value[:, -prompt:] if key.startswith("prompt_") else value[:, :completion] if value.ndim > 1 else value
        for key, value in batch.items()
    }
