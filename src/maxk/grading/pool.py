"""The trusted end of the fork servers: jobs sent, results received, packets checked.

A server is confined and never sees a hostile program's output, but it is not believed either: a packet that makes no
sense raises, and the caller replaces the server.
"""

from __future__ import annotations

import marshal
import os
import socket
import struct
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from maxk.grading.planning import Plan
from maxk.grading.sandbox import ServerProcess, send_memory_file
from maxk.grading.verdicts import Limits, Submission

RAN, RUNTIME, TIME, MEMORY, OUTPUT, FORBIDDEN, UNTESTED = range(7)  # outcomes, as in confined/server.py

_HEADER = struct.Struct("=QIIBBQ")
_RESULT = struct.Struct("=BBddQQ")
_PACKET, _FILES = 1 << 18, 64
_PACK = 8  # programs
_PACK_TESTS = 2000  # more results than this do not fit in one packet
_PACK_BYTES = 1 << 20  # of inputs, which count as memory of the programs that share a process
_SLACK_S = 30.0
_BATCH_RUNS = 32
KINDS = PLAIN, NUMPY, CHECKER = ("plain", "numpy", "checker")  # servers: what they run and what they hold
CHECKER_FILES = ["input.txt", "expected.txt", "output.txt"]


@dataclass(eq=False)
class Job:
    """One submission on its way; `waiters` are the indices that share its verdict."""

    submission: Submission
    limits: Limits
    key: bytes
    waiters: list[int]
    kind: str  # of the server it needs
    plan: Plan
    statuses: list[str] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    first: int = 0  # test its current run starts at
    checks: dict[int, Check] = field(default_factory=dict)  # tests waiting for a checker program
    ran: bool = False
    attempts: int = 0
    walled: bool = False  # stopped by the wall clock: depends on the machine's load, so never stored
    alone: bool = False  # being run again with nothing beside it
    again_from: int = -1  # test from which it has to be run again alone
    problem: bytes = b""  # digest of its tests

    @property
    def tests(self) -> int:
        return len(self.statuses) - self.first

    @property
    def silent_runs(self) -> int:
        """How many tests may run before the server says how they went."""
        return max(_BATCH_RUNS, self.tests) if self.may_share else _BATCH_RUNS

    @property
    def may_share(self) -> bool:
        """Whether its tests may run in one process, and that process be shared with other such programs."""
        return self.plan.shared and not self.alone and self.tests <= _PACK_TESTS


@dataclass(eq=False)
class Check:
    """A checker program's run for one test of a job."""

    job: Job
    test: int
    output: bytes
    limits: Limits
    source: str
    attempts: int = 0
    alone: bool = False
    tests: int = 1
    kind = CHECKER


@dataclass(eq=False)
class Trial(Check):
    """A checker's run on the expected output of a test, which a sound one accepts."""

    key: bytes = b""
    waiting: list[Check] = field(default_factory=list)  # for how it ends


class Shareable:
    """Waiting programs proven state-free, handed out in packs that share a process.

    No two of a pack have the same problem: should the proof have a hole, a program would find no answer there that is
    of use to it.
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
        """At least one and at most `most` jobs with equal limits, of the problems whose turn it is."""
        pack: list[Job] = []
        tests = size = 0
        for key in list(self._waiting):
            job = self._waiting[key][0]
            if pack and job.limits != pack[0].limits:
                continue
            tests += job.tests
            size += sum(len(stdin) for stdin, _ in job.submission.tests)
            if pack and (tests > _PACK_TESTS or size > _PACK_BYTES):
                break
            pack.append(self._waiting[key].popleft())
            self._waiting.move_to_end(key)
            if not self._waiting[key]:
                del self._waiting[key]
            if len(pack) >= min(most, _PACK):
                break
        self._count -= len(pack)
        return pack


class Server:
    """A server process with the jobs it has been given."""

    _ids = 0

    def __init__(self, tier: str, kind: str) -> None:
        self.tier, self.kind = tier, kind
        self.jobs: dict[int, Job | Check] = {}
        self._packs: dict[int, int] = {}  # of each job
        self.heard = time.monotonic()
        self.process = ServerProcess(tier, numpy=kind == NUMPY)

    def is_stuck(self) -> bool:
        """Whether it has been silent for longer than any batch of its jobs can take."""
        longest = (job.limits.wall * (1 if isinstance(job, Check) else job.silent_runs) for job in self.jobs.values())
        patience = _SLACK_S + max(longest, default=0.0)
        return bool(self.jobs) and time.monotonic() - self.heard > patience

    @property
    def load(self) -> int:
        """Packs it has not finished."""
        return len(set(self._packs.values()))

    def send(self, pack: Sequence[Job | Check]) -> None:
        """Queues jobs; several share a process. Raises OSError when the server is gone."""
        if not self.jobs:
            self.heard = time.monotonic()
        ids = range(Server._ids + 1, Server._ids + 1 + len(pack))
        Server._ids = ids[-1]
        self.jobs.update(zip(ids, pack, strict=True))
        self._packs.update(dict.fromkeys(ids, ids[0]))
        packed = [self._packed(number, job) for number, job in zip(ids, pack, strict=True)]
        send_memory_file(self.process.socket, marshal.dumps(packed))

    def _packed(self, job_id: int, job: Job | Check) -> tuple[Any, ...]:
        limits = job.limits
        numbers = (limits.cpu_s, limits.wall, limits.total, limits.memory_mb << 20, limits.output_bytes)
        if isinstance(job, Job):
            inputs = [stdin.encode(errors="surrogatepass") for stdin, _ in job.submission.tests[job.first :]]
            return job_id, job.submission.program, job.plan.code, job.may_share, inputs, numbers, {}, []
        stdin, expected = job.job.submission.tests[job.test]
        contents = [stdin.encode(errors="surrogatepass"), expected.encode(errors="surrogatepass"), job.output]
        files = dict(zip(CHECKER_FILES, contents, strict=True))
        return job_id, job.source, b"", False, [b""], numbers, files, CHECKER_FILES

    def receive(self) -> list[Run]:
        """Results in one packet; raises OSError or ValueError when the server is gone or makes no sense."""
        packet, files, _, _ = socket.recv_fds(self.process.socket, _PACKET, _FILES)
        try:
            if not packet:
                raise OSError(f"the server ended: {self.process.last_words()}")
            self.heard = time.monotonic()
            return self._unpack(packet, files)
        except BaseException:
            for fd in files:
                os.close(fd)
            raise

    def _unpack(self, packet: bytes, files: list[int]) -> list[Run]:
        if len(packet) < _HEADER.size:
            raise ValueError("a packet without a header")
        job_id, first, count, shared, last, start = _HEADER.unpack_from(packet)
        job = self.jobs.get(job_id)
        if job is None or len(packet) != _HEADER.size + count * _RESULT.size:
            raise ValueError("a packet of no job or of the wrong length")
        if len(files) != (min(count, 1) if shared else count) or first + count > job.tests:
            raise ValueError("a packet with the wrong number of files or tests")
        runs = list(self._runs(job, first, packet, files, bool(shared), start))
        if last:
            del self.jobs[job_id], self._packs[job_id]
            if not runs:
                runs = [Run(job)]
            runs[-1].last = True
        return runs

    def _runs(
        self, job: Job | Check, first: int, packet: bytes, files: list[int], shared: bool, start: int
    ) -> Iterator[Run]:
        results = list(_RESULT.iter_unpack(packet[_HEADER.size :]))
        for index, (outcome, walled, cpu_s, _, _, end) in enumerate(results):
            if outcome > UNTESTED or (outcome == RAN and end - start > job.limits.output_bytes):
                raise ValueError("a result out of range")
            owns = not shared or index == len(results) - 1
            file = files[0 if shared else index]
            yield Run(job, first + index, outcome, bool(walled), cpu_s, file, start, end, owns)
            start = end if shared else 0


@dataclass(eq=False)
class Run:
    """How one test run ended, and where its output is."""

    job: Job | Check
    test: int = -1  # -1: no run, only the end of the job
    outcome: int = RAN
    walled: bool = False
    cpu_s: float = 0.0
    file: int = -1
    start: int = 0
    end: int = 0
    owns_file: bool = False
    last: bool = False

    def output(self) -> bytes:
        """The bytes written; closes the file if it is this run's."""
        if self.file < 0:
            return b""
        parts: list[bytes] = []
        at = self.start
        while at < self.end:
            part = os.pread(self.file, self.end - at, at)
            if not part:
                break
            parts.append(part)
            at += len(part)
        self.release()
        return b"".join(parts)

    def release(self) -> None:
        if self.owns_file:
            os.close(self.file)
            self.owns_file, self.file = False, -1
