"""Generation one batch ahead: a vLLM server draws the next completions while the policy trains on these.

A batch's completions then come from the policy of one generation batch ago, so ratios must be those to the sampler's
log-probabilities (`old_policy="sampler"`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any

Prompts = list[list[int]]  # token ids


@dataclass
class _Asked:
    """A request of completions, in a thread."""

    prompts: Prompts
    num_generations: int
    found: Future[Any]


class Ahead:
    """Replaces `generation.generate`, TRL's call of its vLLM server.

    training   says whether a call is for training; evaluation takes nothing that was drawn ahead.
    upcoming   gives the prompts of the next generation batch of training, or None if there is none.
    """

    def __init__(self, generation: Any, training: Callable[[], bool], upcoming: Callable[[], Prompts | None]) -> None:
        self._generate, self._training, self._upcoming = generation.generate, training, upcoming
        self._asked: _Asked | None = None
        generation.generate = self.generate

    def wait(self) -> None:
        """Returns when the server is idle; only then may its weights change."""
        if self._asked is not None:
            wait([self._asked.found])

    def forget(self) -> None:
        """Drops what was drawn ahead."""
        self.wait()
        self._asked = None

    def generate(self, prompts: Prompts, **options: Any) -> Any:
        """Completions of these prompts, drawn beforehand if they were foreseen; then asks for the next."""
        if not self._training():
            return self._generate(prompts=prompts, **options)
        asked, self._asked, n = self._asked, None, options["num_generations"]
        if asked is not None and (asked.prompts, asked.num_generations) == (prompts, n):
            found = asked.found.result()
        else:
            found = self._generate(prompts=prompts, **options)
        if (upcoming := self._upcoming()) is not None:
            options["profiler"] = None  # TRL's measures one call
            self._asked = _Asked(upcoming, n, in_background(lambda: self._generate(prompts=upcoming, **options)))
        return found


def in_background(call: Callable[[], Any]) -> Future[Any]:
    """The result of a call in a daemon thread: a server that does not answer must not keep the process from ending."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="generation", daemon=True).start()
    return future


class Lookahead:
    """Reads batches before their time; `seen` are those of the optimiser step that is running, and later ones."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self.seen: list[Any] = []
        self._batches, self._waiting = batches, deque[Any]()

    def reads(self, batches: Iterator[Any]) -> bool:
        return self._batches is batches

    def next(self, count: int, further: int) -> Iterator[Any]:
        """The next `count` batches, after reading `further` more."""
        self._waiting.extend(islice(self._batches, max(0, count + further - len(self._waiting))))
        self.seen = list(self._waiting)
        return iter([self._waiting.popleft() for _ in range(min(count, len(self._waiting)))])
