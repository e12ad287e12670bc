"""Generation one batch ahead: a vLLM server draws the next completions while the policy trains on these.

A batch's completions then come from the policy of one generation batch ago, so ratios must be those to the sampler's
log-probabilities (`old_policy="sampler"`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any

Prompts = list[list[int]]  # token ids


class Ahead:
    """Replaces `generation.generate`, TRL's call of its vLLM server.

    upcoming   gives the prompts of the next generation batch, or None where the next call is not known.
    """

    def __init__(self, generation: Any, upcoming: Callable[[], Prompts | None]) -> None:
        self._generate, self._upcoming = generation.generate, upcoming
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="generation")
        self._asked: tuple[Prompts, Future[Any]] | None = None
        generation.generate = self.generate

    def wait(self) -> None:
        """Returns when the server is idle; only then may its weights change."""
        if self._asked is not None:
            wait([self._asked[1]])

    def generate(self, prompts: Prompts, **options: Any) -> Any:
        """Completions of these prompts, drawn beforehand if they were foreseen; then asks for the next."""
        if self._asked is not None and self._asked[0] == prompts:
            found = self._asked[1].result()
            self._asked = None
        else:
            found = self._generate(prompts=prompts, **options)
        if (upcoming := self._upcoming()) is not None:
            options["profiler"] = None  # TRL's measures one call
            self._asked = upcoming, self._thread.submit(self._generate, prompts=upcoming, **options)
        return found


class Lookahead:
    """Reads batches before their time; `seen` are those of the optimiser step that is running, and later ones."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._waiting: deque[Any] = deque()

    def over(self, batches: Iterator[Any], count: int, further: int) -> Iterator[Any]:
        """The next `count` batches, after reading `further` more."""
        self._waiting.extend(islice(batches, max(0, count + further - len(self._waiting))))
        self.seen = list(self._waiting)
        return iter([self._waiting.popleft() for _ in range(min(count, len(self._waiting)))])
