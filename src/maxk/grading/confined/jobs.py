"""Incoming jobs and outgoing results on the server's side of the wire (`wire.py`)."""

from __future__ import annotations

import array
import errno
import fcntl
import marshal
import os
import resource
import time
from itertools import accumulate
from typing import Any

from maxk.grading.confined.wire import BATCH_RUNS, HEADER, RESULT, TIME_LIMIT, Head, Order

OPEN_FILES = min(128, resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # limit for the server and its children
_BATCH_RUNS = max(1, min(BATCH_RUNS, OPEN_FILES // 4))  # each run holds a file, here and at the grader
_BATCH_BYTES = 8 << 20  # of outputs, after which results are sent
_LARGE_BYTES = 1 << 20  # of outputs; larger batches wait until the grader has received all earlier ones
_TIOCOUTQ = 0x5411
_SOL_SOCKET, _SCM_RIGHTS = 1, 1
_BUSY_PARENT_S = 0.005
_SHORTAGES = (errno.ENOMEM, errno.ENOBUFS, errno.ETOOMANYREFS)  # that may pass
_WAITED_UNCHARGED_S, _WAITED_PER_CPU_S = 0.25, 10  # what a busy machine may add to a run's wall-clock time
_SEALS = 15  # SEAL, SHRINK, GROW, WRITE


def memory_file(sealable: bool = False) -> int:
    return os.memfd_create("m", os.MFD_CLOEXEC | (os.MFD_ALLOW_SEALING if sealable else 0))


def receive(control: Any) -> list[int]:
    """The files of the next packet; none if the other end is closed."""
    packet, ancillary, _, _ = control.recvmsg(1, 64)
    return array.array("i", ancillary[0][2]).tolist() if packet and ancillary else []


def load(fd: int) -> Any:
    """The marshalled object in a file; closes the file."""
    with open(fd, "rb", buffering=0) as file:
        return marshal.loads(file.read())


class Job:
    """One program and its inputs, which stay in a memory file until a child reads them."""

    def __init__(self, order: Order, contents: int) -> None:
        self.order, self.contents = order, contents
        self._offsets = list(accumulate(order.input_bytes, initial=order.start + order.head_bytes))

    def stdin(self, index: int) -> int:
        """A sealed memory file with one input, copied by the kernel."""
        fd, start, left = memory_file(sealable=True), self._offsets[index], self.order.input_bytes[index]
        while left:
            copied = os.sendfile(fd, self.contents, start, left)
            start, left = start + copied, left - copied
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        return fd

    # for children only

    def head(self) -> Head:
        head: Head = marshal.loads(os.pread(self.contents, self.order.head_bytes, self.order.start))
        return head

    def input(self, index: int) -> bytes:
        return os.pread(self.contents, self.order.input_bytes[index], self._offsets[index])


class Result:
    """How one run ended, and where its output is in its file.

    doubtful: the machine's load may have ended the run, so the result counts only if nothing ran beside it.
    """

    def __init__(self, outcome: int, cpu_s: float = 0.0, start: int = 0, end: int = 0, wall_s: float = 0.0) -> None:
        self.outcome, self.cpu_s, self.start, self.end, self.wall_s = outcome, cpu_s, start, end, wall_s
        self.doubtful = False


class Death:
    """How a child died: signal or exit status, CPU and wall seconds, peak resident bytes, whether it was timed out."""

    def __init__(self, status: int, usage: resource.struct_rusage, wall_s: float, wall_timeout: bool) -> None:
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.peak = usage.ru_maxrss * 1024
        self.wall_s, self.wall_timeout = wall_s, wall_timeout
        self.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        self.exit = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0


class Batch:
    """Collects a job's results for the grader; tracks the next input to run and the time charged to the job."""

    def __init__(self, control: Any, job: Job) -> None:
        self.control, self.job = control, job
        self.next = 0
        self.left = len(job.order.input_bytes)  # runs to be made here
        self.timed_out = self._waited = 0.0  # seconds
        self._packed: list[bytes] = []
        self._files: list[int] = []
        self._file = -1  # the last one added
        self._bytes = 0

    @property
    def divisible(self) -> bool:
        """Whether the runs that are left can take place side by side, since none should turn out to be one too many.

        That is so if the total time lasts even if all of them use up their limit or wait. A run that evades the timer
        uses more (up to `RLIMIT_CPU`), so the grader discards those that were too many after all.
        """
        order, others = self.job.order, self.left - 1  # which run before the last one
        timed_out = self.timed_out + others * order.cpu_s
        waited = self._waited + others * (order.wall_s - _WAITED_UNCHARGED_S)
        return order.divisible and timed_out < order.total_cpu_s and waited < 2 * order.wall_s

    @property
    def exhausted(self) -> bool:
        """Whether the job has used up its total time for runs that time out or wait."""
        return self.timed_out >= self.job.order.total_cpu_s or self.waited_too_long

    @property
    def waited_too_long(self) -> bool:
        return self._waited >= 2 * self.job.order.wall_s

    def add(self, result: Result, file: int = -1) -> None:
        """Adds the result of the next run; its output is in `file`, which the caller still owns."""
        if file >= 0 and file != self._file:
            self._files.append(os.dup(file))
            self._file = file
        index = len(self._files) - 1 if file >= 0 else -1
        fields = (result.outcome, result.doubtful, index, result.cpu_s, result.start, result.end)
        self._packed.append(RESULT.pack(*fields))
        self._bytes += result.end - result.start
        self.next += 1
        self.left -= 1
        if result.outcome == TIME_LIMIT:  # only these are charged: a program that passes is never cut short
            self.timed_out += result.wall_s if result.doubtful else result.cpu_s
        self._waited += max(0.0, result.wall_s - _WAITED_UNCHARGED_S - _WAITED_PER_CPU_S * result.cpu_s)
        if len(self._packed) >= _BATCH_RUNS or self._bytes >= _BATCH_BYTES or not self.left:
            self.send()

    def hand_back(self) -> None:
        """Leaves it to the grader where the runs that are left take place."""
        self.left = 0
        self._send()

    def send(self) -> None:
        """Reports the runs that have not been reported."""
        if self._packed:
            self._send()

    def _send(self) -> None:
        first = self.next - len(self._packed)
        head = HEADER.pack(self.job.order.id, first, len(self._packed), not self.left)
        self._deliver(head + b"".join(self._packed))
        for fd in self._files:
            os.close(fd)
        self._packed, self._files, self._file, self._bytes = [], [], -1, 0

    def _deliver(self, packet: bytes) -> None:
        """Waits while the grader is busy elsewhere and too many bytes or descriptors are on their way to it.

        Waits for as long as the kernel lacks memory, too: the grader ends a server that is silent for long.
        """
        while self._bytes > _LARGE_BYTES and self._unread():
            time.sleep(_BUSY_PARENT_S)
        rights = [(_SOL_SOCKET, _SCM_RIGHTS, array.array("i", self._files))] if self._files else []
        while True:
            try:
                self.control.sendmsg([packet], rights)
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    raise
                time.sleep(_BUSY_PARENT_S)
            else:
                return

    def _unread(self) -> int:
        """Number of bytes sent that the grader has not received."""
        answer = array.array("i", [0])
        fcntl.ioctl(self.control.fileno(), _TIOCOUTQ, answer)
        return answer[0]
