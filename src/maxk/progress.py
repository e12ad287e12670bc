"""Progress of long work: a bar on a terminal, else one line every few seconds, as logs of parallel jobs need it.

Work that completes nothing for a while, such as a program that runs into its time limit, also has its line.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")

LINE_EVERY_S = 10.0
STILL_AFTER_S = 30.0  # without a line
_TICK_S = 1.0  # of the bar's clock
_ESTIMATE_FROM = 0.05  # of the work: the first items include the start-up, and are too few to stand for all
_LINE = "{desc}: {n_fmt}/{total_fmt} in {elapsed}, about {remaining} left{postfix}"
_LINE_ALONE = "{desc}: {n_fmt}/{total_fmt} in {elapsed}{postfix}"
_BAR_ALONE = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}, {rate_fmt}{postfix}]"


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
        self._shown_at = self._advanced_at = time.monotonic()
        self._closed = threading.Event()
        shown = {} if self._terminal else {"mininterval": LINE_EVERY_S, "miniters": 1}
        super().__init__(total=total, desc=label, initial=done, file=sys.stderr, **shown)
        beat = _TICK_S if self._terminal else STILL_AFTER_S
        if not self.disable:  # type: ignore[has-type]  # as TQDM_DISABLE asks
            threading.Thread(target=_watch, args=(weakref.ref(self), self._closed, beat), daemon=True).start()

    def advance(self, count: int = 1, status: str = "") -> None:
        """Adds `count` completed items; `status` is a few words, such as the current reward."""
        self._advanced_at = time.monotonic()
        self.set_postfix_str(status, refresh=False)
        self.update(count)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draws the bar, or prints a line."""
        self._shown_at = time.monotonic()
        if self._terminal:
            super().display(msg, pos)
        elif self.n > self.initial:
            print(self, file=sys.stderr, flush=True)

    @property
    def format_dict(self) -> dict[str, Any]:
        """What tqdm shows, with the form of the line or bar: with the time that is left, if it can be estimated."""
        estimated = self.n - self.initial >= _ESTIMATE_FROM * (self.total - self.initial)
        if self._terminal:
            form = None if estimated else _BAR_ALONE
        else:
            form = _LINE if estimated and self.n < self.total else _LINE_ALONE
        return {**super().format_dict, "bar_format": form}

    def still(self) -> None:
        """Moves the bar's clock, or prints a line that says for how long nothing was completed."""
        self._shown_at = now = time.monotonic()
        if self.disable:  # closed meanwhile
            return
        if self._terminal:
            self.refresh()
        else:
            elapsed, silent = map(self.format_interval, (self.format_dict["elapsed"], now - self._advanced_at))
            text = f"{self.desc}: {self.n}/{self.total} in {elapsed}, nothing new for {silent}"
            print(text, file=sys.stderr, flush=True)

    def due_s(self, beat: float) -> float:
        """Seconds until `still` is to be called, if nothing is shown before."""
        return self._shown_at + beat - time.monotonic()

    def close(self) -> None:
        self._closed.set()
        if self._terminal:
            super().close()
        elif not self.disable:  # type: ignore[has-type]
            self.disable = True
            self.display()


def _watch(seen: weakref.ref[Progress], closed: threading.Event, beat: float) -> None:
    """Calls `still` after every `beat` seconds without a line, until the progress is closed or dropped."""
    wait = beat
    while not closed.wait(wait):
        progress = seen()
        if progress is None:
            return
        if progress.due_s(beat) <= 0:
            progress.still()
        wait = max(0.01, progress.due_s(beat))
        del progress
