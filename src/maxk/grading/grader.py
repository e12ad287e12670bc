"""The grader: runs submissions on a pool of fork servers and compares their outputs.

This is the trusted side. It alone knows expected outputs; a server gets a program and inputs, and returns how each run
ended and a memory file with its output. `servers` starts and replaces the servers, `event_loop` keeps them busy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from types import TracebackType

from maxk.errors import UserError
from maxk.grading.cache import VerdictCache
from maxk.grading.event_loop import EventLoop
from maxk.grading.sandbox import CHOICES, low_limits
from maxk.grading.servers import Servers
from maxk.grading.stats import Stats
from maxk.grading.tasks import PLAIN
from maxk.grading.verdicts import Limits, NotReady, SubmissionLike, Verdict

MODES = ("auto", "fork")


class Grader:
    """Grades programs in isolation; use as a context manager.

    limits: of every test, unless the submission has its own.
    workers: fork servers, each on one core. Default: cores this process may use.
    sandbox: "auto" (the strongest tier that works), "bubblewrap", "landlock", "seccomp", or "off" (no isolation).
    mode: "auto" lets programs of a restricted language share processes (`sharing`); "fork" runs every test in its own
        process.
    cache: a VerdictCache, or None.

    Raises SandboxUnavailable on entry if no tier, or not the named one, works here.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        workers: int | None = None,
        sandbox: str = "auto",
        mode: str = "auto",
        cache: VerdictCache | None = None,
    ) -> None:
        if sandbox not in CHOICES:
            raise UserError(f"sandbox: {sandbox!r} is not one of {', '.join(CHOICES)}")
        if mode not in MODES:
            raise UserError(f"mode: {mode!r} is not one of {', '.join(MODES)}")
        self.limits = limits or Limits()
        self.workers = workers if workers is not None else len(os.sched_getaffinity(0))
        if self.workers < 1:
            raise UserError(f"workers: {workers} is not a positive number")
        self.mode, self.cache, self.stats = mode, cache, Stats()
        self._servers = Servers(sandbox, self.workers)
        self._grading = False

    @property
    def tier(self) -> str:
        """The tier in use; empty before entry."""
        return self._servers.tier

    @property
    def tier_reasons(self) -> dict[str, str]:
        """For every tier that was tried, why it is not used, or "in use"."""
        return self._servers.reasons

    def __enter__(self) -> Grader:
        self._servers.choose_tier()
        self._servers.of_kind(PLAIN)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends all servers, and a grading in another thread; nothing they started outlives this."""
        self._servers.close()

    def grade(self, submissions: Iterable[SubmissionLike]) -> list[Verdict]:
        """Verdicts of all submissions, in order.

        Raises TypeError or ValueError for a submission or test of an unknown shape, naming its index; see
        `maxk.grading.inputs`.
        """
        verdicts: dict[int, Verdict] = dict(self.grade_iter(map(_ready, submissions)))
        return [verdicts[index] for index in range(len(verdicts))]

    def grade_iter(self, submissions: Iterable[SubmissionLike | NotReady]) -> Iterator[tuple[int, Verdict]]:
        """Yields (index, verdict) as they are ready and reads submissions as needed, so that memory stays flat.

        A source that has nothing ready gives NOT_READY, which is not counted, and is asked again soon.
        Raises ValueError for a submission without tests: an empty test list must never count as passed.
        """
        if self._servers.closed:
            raise RuntimeError("the grader is closed; use it as a context manager")
        if self._grading:
            raise RuntimeError("one grading at a time: finish the first iterator or use another Grader")
        self._grading = True
        try:
            loop = EventLoop(submissions, self._servers, self.limits, self.mode, self.stats, self.cache)
            yield from loop.run()
        finally:
            self._grading = False
            for server in self._servers.busy():  # the caller has stopped before the end
                self._servers.dismiss(server)

    def canary(self) -> None:
        """Raises UserError unless a known-good program gets 1.0 and known-bad ones 0.0; for use before long work."""
        tests = [("2 3\n", "5\n"), ("10 -4\n", "6\n")]
        good = "import sys\na, b = map(int, sys.stdin.read().split())\nprint(a + b)\n"
        bad = ["print(5)\n", "raise SystemExit(1)\n", "print(sum(map(int, input().split())) + 1)\n"]
        cache, stats = self.cache, self.stats
        self.cache, self.stats = None, Stats()  # these programs are none of the caller's
        try:
            rewards = [verdict.reward for verdict in self.grade([(good, tests), *((b, tests) for b in bad)])]
        finally:
            self.cache, self.stats = cache, stats
        if rewards[0] != 1.0 or rewards[2:] != [0.0, 0.0] or rewards[1] != 0.5:
            raise UserError(
                f"the grader's canary failed: rewards {rewards} on tier {self.tier}{low_limits()}; nothing was graded"
            )


def _ready(submission: SubmissionLike) -> SubmissionLike:
    if isinstance(submission, NotReady):
        raise TypeError("NOT_READY is for the source of `grade_iter`; `grade` takes submissions only")
    return submission
