"""Ratios of whole completions to the policy that generated them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def loss_mask(inputs: dict[str, Any]) -> Tensor:
    """Completion tokens that the policy generated; results of tools are not among them. [B, T]"""
    mask: Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask


def log_ratios(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """log π_θ(y|x) − log π_old(y|x) of whole completions, from those of tokens: [B, T] each → [B].

    Tokens whose π_old is NaN count as unchanged.
    """
    return torch.where(mask.bool(), logps - old_logps, 0.0).nansum(-1)


def sequence_factor(log_ratios: Tensor, lengths: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """The factor on the advantage that turns TRL's sequence loss into PPO's clipped surrogate of whole completions.

    TRL's "luspo" loss has the gradient s·A·Σ_t ∇log π_t with s = ρ^(1/length), the geometric mean of the token ratios
    (it multiplies by the length, which cancels the mean's 1/length). The factor ρ/s makes it ρ·A·∇log π(y|x), and 0
    where PPO clips: a good completion already more likely by 1 + ε, a bad one already less likely by 1 − ε.
    """
    ratios = log_ratios.exp()
    clipped = ((advantages > 0) & (ratios > 1 + high)) | ((advantages < 0) & (ratios < 1 - low))
    return torch.where(clipped, 0.0, (log_ratios - log_ratios / lengths).exp())
