"""What a forked child does with one run of one program: confine itself, run it, end as the interpreter would.

The program's code is run by `__main__.py`, at the top of the stack; this module prepares it and cleans up after it.
`shared.py` does the same for several runs in one process.
"""

from __future__ import annotations

import _thread
import atexit
import gc
import math
import os
import random
import resource
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from maxk.grading.confined import interpreter
from maxk.grading.confined.confinement import CpuTimer, SeccompFilter, SystemCall
from maxk.grading.confined.jobs import Job
from maxk.grading.confined.wire import Order

EXIT_MEMORY = 251  # exit status of a child whose program ended by MemoryError

TIMER_SLACK_S = 0.01  # what the timer stops has certainly used more than its limit
_BACKSTOP = 1.5  # RLIMIT_CPU, in CPU limits: it overcounts under load
_INFINITY = resource.RLIM_INFINITY
_LONG = 1 << 63  # what lies beyond ends plain Python with 255
_ALL_DESCRIPTORS = 1 << 20
# What may have an effect when it is freed; freeing all that a program leaves would take it time for nothing.
_FINALISED = ("__del__", "yield", "open", "TextIOWrapper", "Writer", "finalize")
_RECURSION_LIMIT = sys.getrecursionlimit()
_CEILINGS = {
    kind: resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_AS)
}


Step = Callable[[], object]


@dataclass(repr=False)
class Attempt:
    """One execution: run `code` in `namespace`, then leave how it ended in `error`."""

    code: types.CodeType
    namespace: dict[str, object]
    error: BaseException | None = None


@dataclass
class Confinement:
    """What the server made ready for its children to put on; None where the tier has none.

    Both methods give steps: calls that the server prepares once a job and a child only makes, for whatever else a child
    does costs it copies of the pages that it touches.
    """

    null: int
    began: int  # where a child says that its program begins
    die_with_parent: SystemCall
    timer: CpuTimer
    child_filter: SeccompFilter | None = None
    signal_scope: SystemCall | None = None

    def entering(self) -> list[Step]:
        """In a new child: restrictions, timer, standard error."""
        steps: list[Step] = [self.die_with_parent, partial(os.dup2, self.null, 2), self.timer.create]
        # The timer has the one queued signal that the process may have: a user has few, for all processes together.
        steps.append(partial(resource.setrlimit, resource.RLIMIT_SIGPENDING, (0, 0)))
        steps += [self.signal_scope] if self.signal_scope else []
        return steps + ([self.child_filter.install] if self.child_filter else [])

    def beginning(self, *kept: int) -> list[Step]:
        """Says, for good, that the harness has done its part; closes all descriptors but `kept`."""
        steps: list[Step] = [partial(os.write, self.began, b"b")]
        start = 3
        for fd in sorted(kept):
            steps.append(partial(os.closerange, start, fd))
            start = fd + 1
        return [*steps, partial(os.closerange, start, _ALL_DESCRIPTORS)]


def steps_of(order: Order, address_space: int, confinement: Confinement) -> list[Step]:
    """What a child does before its only run."""
    seconds = cpu_seconds(order.cpu_s)
    return [
        *confinement.entering(),
        limit(resource.RLIMIT_CPU, seconds, seconds + 1),
        limit(resource.RLIMIT_FSIZE, order.output_bytes + 1, order.output_bytes + 1),
        limit(resource.RLIMIT_AS, address_space, address_space),
        confinement.timer.setting(order.cpu_s + TIMER_SLACK_S),
        *confinement.beginning(),
    ]


def take(steps: list[Step]) -> None:
    """Makes the calls; raises OSError if one fails."""
    for step in steps:
        step()


def limit(kind: int, soft: int, hard: int) -> Step:
    """Sets a limit, never above the hard limit the sandbox was started with."""
    ceiling = _CEILINGS[kind]
    if ceiling != _INFINITY:
        soft, hard = (ceiling if value == _INFINITY else min(value, ceiling) for value in (soft, hard))
    return partial(resource.setrlimit, kind, (soft, hard))


def cpu_seconds(limit_s: float) -> int:
    """RLIMIT_CPU, which stands behind the timer."""
    return math.ceil(_BACKSTOP * limit_s)


def exit_status(error: BaseException | None) -> int:
    """The status plain Python would exit with; MemoryError has its own."""
    if error is None:
        return 0
    if isinstance(error, MemoryError):
        return EXIT_MEMORY
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return (error.code & 0xFF if -_LONG <= error.code < _LONG else 255) if isinstance(error.code, int) else 1


def flushed(stream: object) -> bool:
    """Like the interpreter's own flush at exit: a closed or missing stream is fine, a failing write is not."""
    try:
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()  # type: ignore[attr-defined]
    except BaseException:
        return False
    return True


class SingleRun:
    """One execution of one program in a process of its own: real descriptors, real exit."""

    def __init__(self, job: Job, steps: list[Step]) -> None:
        self._job, self._steps = job, steps

    def attempts(self) -> Iterator[Attempt]:
        try:
            source, code, interpreter.files, arguments = self._job.head()
            interpreter.source = source
            sys.argv = ["main.py", *arguments]
            if "random" in source:
                random.seed()  # the generator's state is inherited
            take(self._steps)
        except BaseException:
            os._exit(1)  # before the program began, so it is not its fault
        attempt = Attempt(code or _compiled(source), interpreter.fresh_main())
        yield attempt
        if sys.getrecursionlimit() < _RECURSION_LIMIT:  # what the interpreter does at its end is not the program's
            sys.setrecursionlimit(_RECURSION_LIMIT)
        os._exit(finish(attempt))


def _compiled(source: str) -> types.CodeType:
    try:
        return compile(source, "main.py", "exec", dont_inherit=True)
    except MemoryError:
        os._exit(EXIT_MEMORY)
    except Exception:  # whatever the source's fault is
        os._exit(1)


def finish(attempt: Attempt) -> int:
    """What the interpreter does at its end: hook, threads, atexit, flush, finalisers."""
    error = attempt.error
    if error is not None and not isinstance(error, SystemExit) and sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(error), error, error.__traceback__)
    status = exit_status(error)
    attempt.error = error = None
    try:
        if _thread._count():
            threading._shutdown()  # type: ignore[attr-defined]
        if atexit._ncallbacks():
            atexit._run_exitfuncs()
    except BaseException as late:
        status = exit_status(late)
    if not flushed(sys.stdout):
        status = status or 120
    if any(word in interpreter.source for word in _FINALISED):
        attempt.namespace.clear()
        gc.collect()
    flushed(sys.__stdout__)
    return status
