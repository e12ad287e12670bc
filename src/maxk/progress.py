"""Progress of long work: a bar on a terminal, else one line every few seconds, as logs of parallel jobs need it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")

LINE_EVERY_S = 10.0
_LINE = "{desc}: {n_fmt}/{total_fmt} in {elapsed}, about {remaining} left{postfix}"


def track(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    """Yields `items` and reports progress on stderr."""
    with Progress(total, label) as progress:
        for item in items:
            yield item
            progress.advance()


class Progress(tqdm):  # type: ignore[misc]  # tqdm has no types
    """Counts completed work up to `total`; use it as a context manager, or `close` it."""

    def __init__(self, total: int, label: str, done: int = 0) -> None:
        self._terminal = sys.stderr.isatty()
        shown = {} if self._terminal else {"bar_format": _LINE, "mininterval": LINE_EVERY_S, "miniters": 1}
        super().__init__(total=total, desc=label, initial=done, file=sys.stderr, **shown)

    def advance(self, count: int = 1, status: str = "") -> None:
        """Adds `count` completed items; `status` is a few words, such as the current reward."""
        self.set_postfix_str(status, refresh=False)
        self.update(count)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draws the bar, or prints a line."""
        if self._terminal:
            super().display(msg, pos)
        elif self.n > self.initial:
            print(self, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._terminal:
            super().close()
        elif not self.disable:  # type: ignore[has-type]
            self.disable = True
            self.display()
