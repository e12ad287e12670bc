"""Items in groups that a budget holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def packed(items: Iterable[T], size: Callable[[T], int], budget: int, most: int | None = None) -> Iterator[list[T]]:
    """Consecutive items in groups of at most `budget` in size and `most` in number; a larger item is a group alone.

    Items are taken as they are needed: one group is held at a time.
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
