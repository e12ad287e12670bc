"""The trusted end of the fork servers: jobs sent, results received, packets checked.

A server is confined and never sees a hostile program's output, but it is not trusted: a malformed packet raises, and
the caller replaces the server.
"""

from __future__ import annotations

import marshal
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from maxk.grading.confined.wire import HEADER, OUTCOMES, RAN, RESULT, TIME_LIMIT, Order
from maxk.grading.sandbox import ServerProcess
from maxk.grading.tasks import NUMPY, Task

_PACKET, _FILES = 1 << 16, 64
_SLACK_S = 30.0


@dataclass
class OutputFile:
    """A memory file with outputs, closed when no run refers to it any more."""

    fd: int

    def __del__(self) -> None:
        os.close(self.fd)


@dataclass(eq=False)
class Run:
    """How one test run ended, and where its output is."""

    test: int  # of the task
    outcome: int
    doubtful: bool
    cpu_s: float
    file: OutputFile | None
    start: int
    end: int

    def output(self) -> bytes:
        """The bytes written by a run that ended well."""
        parts: list[bytes] = []
        at = self.start
        while self.file is not None and at < self.end:
            part = os.pread(self.file.fd, self.end - at, at)
            if not part:
                break
            parts.append(part)
            at += len(part)
        return b"".join(parts)


@dataclass(eq=False)
class Report:
    """How the next runs of a task ended, and whether the server is done with it; the runs `left` are handed back."""

    task: Task
    runs: list[Run]
    last: bool
    left: range


@dataclass(eq=False)
class _Pack:
    """Tasks that were sent together."""

    timed_out: bool = False  # some run of theirs that was reported


@dataclass
class _Progress:
    """Of a task on a server."""

    pack: _Pack
    reported: int = 0
    timed_out: bool = False  # some run that was reported

    def report(self, task: Task, first: int, runs: list[Run], last: bool) -> Report:
        """Raises ValueError if these runs are not the next ones, or if the server is done too early or too late."""
        end = first + len(runs)
        if first != self.reported or end > task.tests:
            raise ValueError("a packet of other runs than the next ones")
        self.reported = end
        self.timed_out |= any(run.outcome == TIME_LIMIT for run in runs)
        self.pack.timed_out |= self.timed_out
        if last and end < task.tests:
            due = task.divisible and (self.timed_out or (end == 0 and self.pack.timed_out))
        else:
            due = bool(runs) and last == (end == task.tests)
        if not due:
            raise ValueError("a packet without runs, or one that ends a job too early or too late")
        return Report(task, runs, last, range(end, task.tests) if last else range(0))


class Server:
    """A server process with the jobs it has been given."""

    _ids = 0

    def __init__(self, tier: str, kind: str) -> None:
        self.tier, self.kind = tier, kind
        self.jobs: dict[int, Task] = {}
        self._progress: dict[int, _Progress] = {}  # of each job
        self.heard = time.monotonic()
        self.process = ServerProcess(tier, numpy=kind == NUMPY)

    def is_stuck(self) -> bool:
        """Whether it has been silent for longer than any batch of its jobs can take."""
        silent = time.monotonic() - self.heard
        if not self.jobs or silent < _SLACK_S:  # asked after every packet, so the jobs are looked at only then
            return False
        return silent > _SLACK_S + max(job.limits.wall * job.silent_runs for job in self.jobs.values())

    @property
    def load(self) -> int:
        """Packs it has not finished."""
        return len({id(progress.pack) for progress in self._progress.values()})

    def send(self, pack: Sequence[Task]) -> None:
        """Queues jobs; several share a process. Raises OSError if the server is gone or descriptors run out."""
        ids = range(Server._ids + 1, Server._ids + 1 + len(pack))
        Server._ids = ids[-1]
        orders: list[Order] = []
        contents: list[bytes] = []
        for number, job in zip(ids, pack, strict=True):
            parts = [marshal.dumps(job.head()), *job.inputs()]
            orders.append(_order(number, job, sum(map(len, contents)), parts))
            contents += parts
        self.process.send([marshal.dumps([tuple(order) for order in orders])], contents)
        if not self.jobs:
            self.heard = time.monotonic()
        self.jobs.update(zip(ids, pack, strict=True))
        together = _Pack()
        self._progress.update((number, _Progress(together)) for number in ids)

    def receive(self) -> Report:
        """What one packet reports; raises OSError or ValueError if the server is gone or the packet is malformed."""
        packet, fds, _, _ = socket.recv_fds(self.process.socket, _PACKET, _FILES)
        files = [OutputFile(fd) for fd in fds]
        if not packet:
            raise OSError(f"the server ended: {self.process.last_words()}")
        self.heard = time.monotonic()
        if len(packet) < HEADER.size:
            raise ValueError("a packet without a header")
        job_id, first, count, last = HEADER.unpack_from(packet)
        job = self.jobs.get(job_id)
        if job is None or len(packet) != HEADER.size + count * RESULT.size:
            raise ValueError("a packet of no job or of the wrong length")
        results = RESULT.iter_unpack(packet[HEADER.size :])
        runs = [_run(job, first + index, files, *result) for index, result in enumerate(results)]
        report = self._progress[job_id].report(job, first, runs, bool(last))
        if last:
            del self.jobs[job_id], self._progress[job_id]
        return report


def _order(number: int, job: Task, start: int, parts: list[bytes]) -> Order:
    limits, sizes = job.limits, [len(part) for part in parts]
    return Order(
        number,
        job.may_share,
        job.divisible,
        start,
        sizes[0],
        sizes[1:],
        limits.cpu_s,
        limits.wall,
        limits.total,
        limits.memory_mb << 20,
        limits.output_bytes,
    )


def _run(
    job: Task, test: int, files: list[OutputFile], outcome: int, doubtful: int, file: int, cpu_s: float,
    start: int, end: int,
) -> Run:  # fmt: skip
    sized = 0 <= end - start <= job.limits.output_bytes and 0 <= file < len(files)
    if outcome not in OUTCOMES or (outcome == RAN and not sized):
        raise ValueError("a result out of range")
    return Run(test, outcome, bool(doubtful), cpu_s, files[file] if outcome == RAN else None, start, end)
