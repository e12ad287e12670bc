"""Jobs as they come in and results as they go out: one place for the wire format on the confined side.

Packets on the control socket (SOCK_SEQPACKET):
  in   a byte with one memory file: marshalled jobs, several where programs proven state-free share a process;
  out  HEADER + one RESULT a run, with a memory file a run, or one for all runs in a shared child.
"""

from __future__ import annotations

import array
import errno
import fcntl
import marshal
import os
import resource
import time
import types
from struct import Struct
from typing import Any

from maxk.grading.confined.execution import RECORD, Limits, Program

# Job, index of the first run, number of runs, shared?, last packet of the job?, where the first output starts.
HEADER = Struct("=QIIBBQ")
RESULT = Struct("=BBddQQ")  # outcome, stopped by the wall clock?, CPU s, wall s, peak memory, end of the output
RAN, RUNTIME_ERROR, TIME_LIMIT, MEMORY_LIMIT, OUTPUT_LIMIT, VIOLATION, UNTESTED = range(7)

_BATCH_RUNS, _BATCH_BYTES = 32, 32 << 20  # results are passed on no later than this
_SOL_SOCKET, _SCM_RIGHTS = 1, 1
_BUSY_PARENT_S = 0.005


def memory_file(data: bytes = b"") -> int:
    """A memory file; one made with data is sealed, so nobody can change it."""
    if not data:
        return os.memfd_create("m", os.MFD_CLOEXEC)
    fd = os.memfd_create("m", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    written = os.pwrite(fd, data, 0)
    while written < len(data):
        written += os.pwrite(fd, data[written:], written)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 15)  # SEAL, SHRINK, GROW, WRITE
    return fd


def receive(control: Any) -> Any:
    """The next marshalled object the parent sends, None when it has closed the socket. The parent is trusted."""
    packet, ancillary, _, _ = control.recvmsg(1, 64)
    if not packet or not ancillary:
        return None
    with open(array.array("i", ancillary[0][2])[0], "rb", buffering=0) as file:  # noqa: PTH123
        return marshal.loads(file.read())


class Job:
    """One program and its inputs; the fields are those of the tuple the parent sends."""

    def __init__(self, packed: tuple[Any, ...]) -> None:
        self.id, self.source, code, self.shared, self.inputs, limits, self.files, self.arguments = packed
        self.code: types.CodeType | None = marshal.loads(code) if code else None
        cpu_s, self.wall_s, total_cpu_s, self.memory_bytes, output_bytes = limits
        self.limits = Limits(cpu_s, total_cpu_s, output_bytes, address_space=0)

    def program(self) -> Program:
        assert self.code is not None  # what shares a process was compiled to be checked
        return Program(self.code, self.source, self.inputs)


class Result:
    """How one run ended; `end` is where its output ends in its file."""

    def __init__(self, outcome: int, cpu_s: float = 0.0, end: int = 0, wall_s: float = 0.0, peak: int = 0) -> None:
        self.outcome, self.cpu_s, self.end, self.wall_s, self.peak = outcome, cpu_s, end, wall_s, peak
        self.walled = False

    def pack(self) -> bytes:
        return RESULT.pack(self.outcome, self.walled, self.cpu_s, self.wall_s, self.peak, self.end)


class Death:
    """How a child died: wait status, CPU and wall seconds, peak resident bytes, whether the wall clock stopped it."""

    def __init__(self, status: int, usage: resource.struct_rusage, wall_s: float, walled: bool) -> None:
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.peak = usage.ru_maxrss * 1024
        self.wall_s, self.walled = wall_s, walled
        self.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        self.exit = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0


class Batch:
    """A job's results on their way to the parent; knows the next input to run and what the job has been charged."""

    def __init__(self, control: Any, job: Job) -> None:
        self.control, self.job = control, job
        self.next, self.charged, self.complete = 0, 0.0, False
        self._results: list[Result] = []
        self._files: list[int] = []
        self._bytes = self._start = 0

    @property
    def left(self) -> int:
        return len(self.job.inputs) - self.next

    @property
    def exhausted(self) -> bool:
        return self.charged >= self.job.limits.total_cpu_s

    def add(self, result: Result, stdout: int) -> None:
        self._count(result)
        self._files.append(stdout)
        self._bytes += result.end
        if len(self._files) >= _BATCH_RUNS or self._bytes >= _BATCH_BYTES or not self.left:
            self._send()

    def add_shared(self, results: list[Result], stdout: int, start: int) -> None:
        """Results of one child, whose outputs follow one another in one file, from `start` on."""
        for result in results:
            self._count(result)
            if self.exhausted:
                break
        self._files.append(stdout)
        self._start = start
        self._send(shared=True)

    def add_rest(self, result: Result) -> None:
        """The same result, without output, for every input left."""
        while self.left:
            self.add(result, memory_file())

    def _count(self, result: Result) -> None:
        self._results.append(result)
        self.next += 1
        if result.outcome == TIME_LIMIT:  # only these are charged: a program that passes is never cut short
            self.charged += result.wall_s if result.walled else result.cpu_s

    def _send(self, shared: bool = False) -> None:
        first = self.next - len(self._results)
        head = HEADER.pack(self.job.id, first, len(self._results), shared, not self.left, self._start)
        rights = (_SOL_SOCKET, _SCM_RIGHTS, array.array("i", self._files))
        self._deliver(head + b"".join(result.pack() for result in self._results), rights)
        self._close()

    def _deliver(self, packet: bytes, rights: Any) -> None:
        """The kernel bounds descriptors in flight: while the parent is busy elsewhere, wait for it to take some."""
        while True:
            try:
                self.control.sendmsg([packet], [rights])
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS:
                    raise
                time.sleep(_BUSY_PARENT_S)
            else:
                return

    def _close(self) -> None:
        for fd in self._files:
            os.close(fd)
        self._results, self._files, self._bytes, self._start = [], [], 0, 0


def plausible(inputs: int, cpu_limit_s: float, report: bytes, cpu_s: float) -> bool:
    """Whether the records of a shared child that used `cpu_s` can be those of an orderly process.

    A second line of defence behind the purity check, which decides what may run there.
    """
    records = list(RECORD.iter_unpack(report[: len(report) // RECORD.size * RECORD.size]))
    cpu, ends = [0, *(r[1] for r in records)], [0, *(r[2] for r in records)]
    in_order = cpu == sorted(cpu) and ends == sorted(ends) and len(records) <= inputs
    unexplained = cpu_s - cpu[-1] / 1e9  # start, tidying up, and a last test that was stopped
    return in_order and unexplained <= 2 * cpu_limit_s + 1
