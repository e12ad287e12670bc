"""Runs programs of the shared language (`maxk/grading/sharing`) one after another in one process.

Each run gets fresh globals and streams, and the process reports before and after it. A run that does not end normally,
and every run after it, is repeated in a separate process. A run that began and was stopped by the CPU timer timed out;
other deaths of the process say nothing about a run.
"""

from __future__ import annotations

import gc
import io
import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from maxk.grading.confined import execution, interpreter
from maxk.grading.confined.jobs import Job, Result
from maxk.grading.confined.wire import OUTPUT_LIMIT, RAN, RUNTIME_ERROR, TIME_LIMIT, Order

_RECORD = Struct("=BQQ")  # event, CPU ns of the process so far, bytes of output so far
_BEGAN, _ENDED, _FAILED = range(3)
_OUTPUT_BYTES = 8 << 20  # of all runs together, after which the remaining runs are left over
_RECURSION_LIMIT = sys.getrecursionlimit()
# Library code may need a few more levels on its first run than later, so a run this close to the limit is left over.
_RECURSION_MARGIN = 100
_INFINITY = resource.RLIM_INFINITY


@dataclass
class SharedRuns:
    """All runs of `jobs`, which have equal limits."""

    jobs: list[Job]
    address_space: int
    confinement: execution.Confinement
    report: int  # file for the records

    def attempts(self) -> Iterator[execution.Attempt]:
        try:
            self._prepare()
        except BaseException:
            os._exit(1)
        started = _cpu_s()
        for job in self.jobs:
            code, timed_out = job.head()[1], 0.0
            assert code is not None  # checking it for the shared language compiled it
            for index in range(len(job.order.input_bytes)):
                self._ready(job.order, job.input(index))
                began = self._record(_BEGAN)
                attempt = execution.Attempt(code, interpreter.fresh_main())
                yield attempt
                outcome = _outcome(attempt)
                self._disarm()  # freeing the run's objects is not charged to it
                spent = (self._record(outcome) - began) / 1e9
                timed_out += spent if spent > job.order.cpu_s else 0.0
                if timed_out >= job.order.total_cpu_s or os.lseek(1, 0, os.SEEK_END) > _OUTPUT_BYTES:
                    os._exit(0)
                attempt.namespace.clear()
                gc.collect()
            if _cpu_s() - started >= job.order.cpu_s:
                break  # slow jobs must not keep the others waiting
        os._exit(0)

    def _prepare(self) -> None:
        timer = self.confinement.timer
        self._arm, self._disarm = timer.setting(self.jobs[0].order.cpu_s + execution.TIMER_SLACK_S), timer.setting(0.0)
        execution.take(self.confinement.entering())
        execution.limit(resource.RLIMIT_AS, self.address_space, self.address_space)()
        sys.setrecursionlimit(_RECURSION_LIMIT - _RECURSION_MARGIN)
        sys.setrecursionlimit = _higher_recursion_limit
        execution.take(self.confinement.beginning(self.jobs[0].contents, self.report))
        gc.freeze()  # the collection after each run then looks at that run's objects alone

    def _ready(self, order: Order, data: bytes) -> None:
        """Sets the limits of one run and opens its streams."""
        execution.limit(resource.RLIMIT_FSIZE, os.lseek(1, 0, os.SEEK_END) + order.output_bytes + 1, _INFINITY)()
        execution.limit(resource.RLIMIT_CPU, int(_cpu_s()) + 1 + execution.cpu_seconds(order.cpu_s), _INFINITY)()
        raw = io.BytesIO(data)
        sys.stdin = interpreter.text(io.BufferedReader(raw, 4096), "<stdin>")
        sys.stdout = interpreter.text(open(1, "wb", closefd=False), "<stdout>")  # noqa: SIM115
        self._arm()

    def _record(self, event: int) -> int:
        """Reports an event and returns the CPU nanoseconds at which it happened."""
        now = int(_cpu_s() * 1e9)
        os.write(self.report, _RECORD.pack(event, now, os.lseek(1, 0, os.SEEK_END)))
        return now


def _cpu_s() -> float:
    """CPU seconds as `wait4` will report them; the process clock lags behind while a timer runs on it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _higher_recursion_limit(limit: int, /) -> None:
    """Ignores requests for a higher limit, so a run that needs it is left over; ends the process on any other value."""
    if type(limit) is not int or not _RECURSION_LIMIT <= limit < 1 << 31:
        os._exit(0)


def _outcome(attempt: execution.Attempt) -> int:
    error, attempt.error = attempt.error, None
    status = execution.exit_status(error)
    if isinstance(error, RecursionError) or status == execution.EXIT_MEMORY:
        os._exit(0)  # an earlier run may have caused this
    return _ENDED if execution.flushed(sys.stdout) and not status else _FAILED


def results(report: bytes, order: Order, cpu_s: float, timed_out: bool) -> list[Result]:
    """The results of a process's runs according to its records, in order; all other runs must be repeated.

    cpu_s: CPU seconds of the process. timed_out: whether the CPU timer ended it.
    """
    found: list[Result] = []
    start = began_ns = 0
    running = False
    for event, cpu_ns, end in _RECORD.iter_unpack(report[: len(report) // _RECORD.size * _RECORD.size]):
        running = event == _BEGAN
        if running:
            began_ns = cpu_ns
            continue
        spent_s = (cpu_ns - began_ns) / 1e9
        outcome = RUNTIME_ERROR if event == _FAILED else RAN
        outcome = OUTPUT_LIMIT if end - start > order.output_bytes else outcome
        outcome = TIME_LIMIT if spent_s > order.cpu_s else outcome
        found.append(Result(outcome, spent_s, start, end))
        start = end
    spent_s = cpu_s - began_ns / 1e9
    if running and timed_out and spent_s > order.cpu_s:
        found.append(Result(TIME_LIMIT, spent_s, start, start))
    return found
