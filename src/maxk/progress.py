"""Progress of long work: a bar on a terminal, else one line every few seconds.

Under Snakemake, stages run side by side and their output goes to a log; a line there gives the stage, its progress and
the estimated time left.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")

LINE_EVERY_S = 10.0


def track(items: Iterable[T], total: int, label: str, status: Callable[[], str] = str) -> Iterator[T]:
    """Yields `items` and reports progress on stderr; `status()` may add a few words, such as the current reward."""
    with Progress(total, label) as progress:
        for item in items:
            yield item
            progress.advance(status=status())


class Progress:
    """Counts completed work up to `total`; use it as a context manager."""

    def __init__(self, total: int, label: str) -> None:
        self.total, self.label, self.done = total, label, 0
        self._started = self._spoken = time.monotonic()
        self._bar = tqdm(total=total, desc=label, file=sys.stderr) if sys.stderr.isatty() else None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self.done:
            print(
                f"{self.label}: {self.done}/{self.total} in {self._elapsed():.0f} s",
                file=sys.stderr,
                flush=True,
            )

    def advance(self, count: int = 1, status: str = "") -> None:
        """Adds `count` completed items."""
        self.done += count
        if self._bar is not None:
            self._bar.set_postfix_str(status, refresh=False)
            self._bar.update(count)
        elif time.monotonic() - self._spoken >= LINE_EVERY_S:
            self._spoken = time.monotonic()
            left = self._elapsed() / self.done * (self.total - self.done)
            words = ", ".join(filter(None, [status, f"about {left:.0f} s left"]))
            print(f"{self.label}: {self.done}/{self.total} ({words})", file=sys.stderr, flush=True)

    def _elapsed(self) -> float:
        return time.monotonic() - self._started
