"""Groups items under a size budget: rows into row groups on disk, prompts into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def packed(items: Iterable[T], size: Callable[[T], int], budget: int, most: int | None = None) -> Iterator[list[T]]:
    """Groups of consecutive items, of at most `budget` in size and `most` in number; a larger item is its own group.

    Lazy: one group is in memory at a time.
    """
    group: list[T] = []
    held = 0
    for item in items:
        own = size(item)
        if group and (held + own > budget or len(group) == most):
            yield group
            group, held = [], 0
        group.append(item)
        held += own
    if group:
        yield group
