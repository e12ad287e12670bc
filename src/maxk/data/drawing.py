"""Draws the problems of generated datasets until every split is full, and counts what each filter leaves of the draws.

Which split a drawn problem belongs to depends on its text alone, so train and test never overlap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

from maxk.errors import UserError

TEST_FRACTION = 0.2  # of all that can be drawn; the rest is on the train side
PATIENCE = 20_000  # draws without a new problem, after which all are assumed to be drawn


class Drawn(Protocol):
    @property
    def split(self) -> str: ...


T = TypeVar("T", bound=Drawn)


def split_of(text: str) -> str:
    """`train` or `test`: a property of the text itself, the same in every dataset and every run."""
    digest = hashlib.sha256(text.encode()).digest()
    return "test" if int.from_bytes(digest[:8]) < TEST_FRACTION * 2**64 else "train"


def fill(
    name: str,
    wanted: Mapping[str, int],
    draws: Iterator[T],
    filters: Mapping[str, Callable[[T], bool]],
    keep: Callable[[T], None],
    remedy: str,
) -> dict[str, int]:
    """Calls `keep` with what passes all filters until the splits are full, and returns the funnel.

    Raises UserError, with the remedy, if too few problems of the dataset `name` can be drawn.
    """
    funnel, last_kept = dict.fromkeys(["drawn", *filters, *wanted], 0), 0
    while any(funnel[split] < wanted[split] for split in wanted):
        one = next(draws)
        funnel["drawn"] += 1
        if _passes(one, filters, funnel):
            keep(one)
            funnel[one.split] += 1
            last_kept = funnel["drawn"]
        elif funnel["drawn"] - last_kept > PATIENCE:
            asked = " and ".join(f"{split}={number}" for split, number in wanted.items())
            found = " and ".join(str(funnel[split]) for split in wanted)
            raise UserError(
                f"datasets.{name}: asked for {asked}, but {PATIENCE} draws in a row added none to {found}; {remedy}"
            )
    return funnel


def _passes(one: T, filters: Mapping[str, Callable[[T], bool]], funnel: dict[str, int]) -> bool:
    """Whether every filter accepts the draw. Counts it in the funnel for each that does."""
    for name, keeps in filters.items():
        if not keeps(one):
            return False
        funnel[name] += 1
    return True
