"""Where a completion ends: with the token that completes the first stop string, which is kept.

Every sampler stops there by means of its own: transformers by `StopStringCriteria`, vLLM while it decodes. What they
share is here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any


def holds(text: str, stop: Sequence[str]) -> bool:
    return any(string in text for string in stop)


def cut(ids: Sequence[int], stop: Sequence[str], tokenizer: Any) -> list[int] | None:
    """The tokens up to the one that completes the first stop string; None if the text holds none."""

    def stopped(length: int) -> bool:
        return holds(tokenizer.decode(ids[:length], skip_special_tokens=True), stop)

    if not stopped(len(ids)):
        return None
    return list(ids[: bisect_left(range(len(ids) + 1), True, key=stopped)])
