"""PPO's clipped surrogate with one ratio a completion, and with one ratio a token.

Both turn advantages A (constants) and the current log-ratios log π_θ − log π_old into an objective to be
maximised, one value a completion; average or sum it over the batch and negate it for a loss.

The off-policy advantages of `maxk.objectives` are derived with ρ_i = π_θ(y_i|x)/π_old(y_i|x) of the *whole*
completion. Its gradient ρ_i A_i ∇log π_θ(y_i|x) is unbiased for ∇max@k; multiplying each token's gradient by
that token's own ratio, as PPO and GRPO do, is not, once ratios differ from 1 (tests/test_surrogates.py
enumerates both). Token ratios are the usual choice for another reason: their variance does not grow with the
length. TRL's importance_sampling_level "sequence" is neither: it takes the geometric mean over tokens (GSPO,
Zheng et al. 2025).
"""

from __future__ import annotations

import torch
from torch import Tensor

# e^20 is far beyond any clip range; above it a ratio is held constant so that 0·inf cannot become NaN.
MAX_LOG_RATIO = 20.0


def sequence_surrogate(log_ratio: Tensor, advantages: Tensor, epsilon: float | None) -> Tensor:
    """min(ρA, clip(ρ, 1−ε, 1+ε)A) with ρ = exp(log_ratio) of whole completions; all [B].

    `log_ratio` is the sum of the token log-ratios. epsilon None: ρA, unclipped.
    """
    return _clipped(log_ratio, advantages, epsilon)


def token_surrogate(log_ratios: Tensor, advantages: Tensor, mask: Tensor, epsilon: float | None) -> Tensor:
    """Σ_t m_t·min(ρ_t A, clip(ρ_t, 1−ε, 1+ε)A) with the ratio ρ_t of each token; [B, T], [B], [B, T] → [B].

    Summed over tokens, hence equal in gradient to `sequence_surrogate` where all ratios are 1; divide by a
    length for GRPO's per-token mean. epsilon None: unclipped.
    """
    return (_clipped(log_ratios, advantages[:, None], epsilon) * mask).sum(dim=1)


def _clipped(log_ratio: Tensor, advantages: Tensor, epsilon: float | None) -> Tensor:
    ratio = log_ratio.clamp(max=MAX_LOG_RATIO).exp()
    if epsilon is None:
        return ratio * advantages
    return torch.minimum(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)
