"""What a source passes to the shared filters: candidates for problems, and the funnel that counts them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from maxk.artifacts.records import Problem

Item = TypeVar("Item")


@dataclass(frozen=True)
class Candidate:
    """A problem on its way through the filters.

    `problem.split` is empty where the source has no splits. The last `generated` tests were derived from the
    benchmark's own tests. `solutions` are the source's reference solutions, as programs. `text` identifies duplicates;
    the default is the statement.
    """

    problem: Problem
    generated: int = 0
    solutions: Sequence[str] = field(default=(), repr=False)
    text: str | None = None

    @property
    def key(self) -> str:
        """Equal for texts that differ only in case or white space."""
        return " ".join((self.text or self.problem.statement).casefold().split())


class Funnel(dict[str, int]):
    """Number of rows left after every filter, in order; `dropped` holds the ids that each filter removed."""

    def __init__(self, dataset: str) -> None:
        super().__init__()
        self.dataset = dataset
        self.dropped: dict[str, list[str]] = {}

    def start(
        self, rows: Iterable[Item], identify: Callable[[Item], Any], exclude: Collection[str] = ()
    ) -> Iterator[Item]:
        """Counts the rows, then drops those whose id is in `exclude` before anything else of them is read."""
        counted = self.keep("rows", rows, lambda _: True, identify)
        if not exclude:
            return counted
        return self.keep("not_excluded", counted, lambda row: str(identify(row)) not in exclude, identify)

    def keep(
        self, step: str, rows: Iterable[Item], accepts: Callable[[Item], bool], identify: Callable[[Item], Any]
    ) -> Iterator[Item]:
        """The rows that a filter accepts. The step enters the funnel now; rows are counted as they pass."""
        self[step], self.dropped[step] = 0, []
        return self._kept(step, rows, accepts, identify)

    def _kept(
        self, step: str, rows: Iterable[Item], accepts: Callable[[Item], bool], identify: Callable[[Item], Any]
    ) -> Iterator[Item]:
        for row in rows:
            if accepts(row):
                self[step] += 1
                yield row
            else:
                self.dropped[step].append(str(identify(row)))
