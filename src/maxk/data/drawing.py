"""Draws the problems of generated datasets until every split is full, and counts what each filter leaves of the draws.

Which split a drawn problem belongs to depends on its text alone, so train and test never overlap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

from maxk.artifacts.records import Problem
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
    make: Callable[[str, T], Problem],
    remedy: str,
) -> tuple[list[Problem], dict[str, int]]:
    """The problems of the dataset `name`, and its funnel: distinct draws that pass all filters, until splits are full.

    `make` is given a problem's id and its draw. Raises UserError, with the remedy, if too few can be drawn.
    """
    kept: dict[str, dict[T, Problem]] = {split: {} for split in wanted}
    filters = {
        "split_not_full": lambda one: len(kept[one.split]) < wanted[one.split],
        "not_duplicate": lambda one: one not in kept[one.split],
        **filters,
    }
    funnel, last_kept = dict.fromkeys(["drawn", *filters, *wanted], 0), 0
    while any(funnel[split] < wanted[split] for split in wanted):
        one = next(draws)
        funnel["drawn"] += 1
        if _passes(one, filters, funnel):
            kept[one.split][one] = make(f"{name}/{one.split}/{funnel[one.split]:04}", one)
            funnel[one.split] += 1
            last_kept = funnel["drawn"]
        elif funnel["drawn"] - last_kept > PATIENCE:
            asked = " and ".join(f"{split}={number}" for split, number in wanted.items())
            found = " and ".join(str(funnel[split]) for split in wanted)
            raise UserError(
                f"datasets.{name}: {asked} requested, but only {found} found: the last {PATIENCE} draws gave no "
                f"further one; {remedy}"
            )
    return [problem for split in kept.values() for problem in split.values()], funnel


def _passes(one: T, filters: Mapping[str, Callable[[T], bool]], funnel: dict[str, int]) -> bool:
    """Whether every filter accepts the draw. Counts it in the funnel for each that does."""
    for name, keeps in filters.items():
        if not keeps(one):
            return False
        funnel[name] += 1
    return True
