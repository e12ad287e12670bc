"""Waiting programs of the shared language, handed out in packs that share a process."""

from __future__ import annotations

from collections import OrderedDict, deque

from maxk.grading.tasks import Job
from maxk.grading.verdicts import Limits

_PROGRAMS, _TESTS, _INPUT_BYTES = 16, 2000, 1 << 20  # of a pack; inputs count as memory of all that share a process


class Packs:
    """Packs of programs with equal limits, no two of the same problem.

    So even if the language had a hole, a program would find no answers to its own problem in its process.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[tuple[bytes, Limits], deque[Job]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, job: Job) -> None:
        self._waiting.setdefault((job.problem, job.limits), deque()).append(job)
        self._count += 1

    def take(self, most: int) -> list[Job]:
        """At least one and at most `most` jobs, of the problems whose turn it is."""
        pack: list[Job] = []
        tests = size = 0
        for key in list(self._waiting):
            job = self._waiting[key][0]
            if pack and job.limits != pack[0].limits:
                continue
            tests, size = tests + job.tests, size + job.input_bytes
            if pack and (tests > _TESTS or size > _INPUT_BYTES):
                break
            pack.append(self._waiting[key].popleft())
            self._waiting.move_to_end(key)
            if not self._waiting[key]:
                del self._waiting[key]
            if len(pack) >= min(most, _PROGRAMS):
                break
        self._count -= len(pack)
        return pack
