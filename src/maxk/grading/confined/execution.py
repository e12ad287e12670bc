"""One run of one program in a forked child: confine the child, run the program, end as the interpreter would.

`__main__.py` runs the program's code at the top of the stack; this module prepares the run and cleans up after it.
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

TIMER_SLACK_S = 0.01  # a run that the timer stops has certainly exceeded its limit
_BACKSTOP = 1.5  # RLIMIT_CPU as a multiple of the CPU limit: it overcounts under load
_INFINITY = resource.RLIM_INFINITY
_LONG = 1 << 63  # plain Python exits with 255 for a status beyond this
_ALL_DESCRIPTORS = 1 << 20
# Words in a source whose objects may have an effect when freed; otherwise freeing a program's objects wastes its time.
_FINALISED = ("__del__", "yield", "open", "TextIOWrapper", "Writer", "finalize")
_RECURSION_LIMIT = sys.getrecursionlimit()
_CEILINGS = {
    kind: resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_AS)
}


Step = Callable[[], object]


@dataclass(repr=False)
class Attempt:
    """One execution: run `code` in `namespace`, then store the exception that ended it in `error`."""

    code: types.CodeType
    namespace: dict[str, object]
    error: BaseException | None = None


@dataclass
class Confinement:
    """The restrictions that the server prepared for its children; None for those that the tier lacks.

    Both methods return steps: calls that the server prepares once per job and a child only makes, because everything
    else that a child does copies the memory pages it touches.
    """

    null: int
    began: int  # pipe through which a child reports that its program begins
    die_with_parent: SystemCall
    timer: CpuTimer
    child_filter: SeccompFilter | None = None
    signal_scope: SystemCall | None = None

    def entering(self) -> list[Step]:
        """In a new child: restrictions, timer, standard error."""
        steps: list[Step] = [self.die_with_parent, partial(os.dup2, self.null, 2), self.timer.create]
        # The timer holds the only queued signal the process may have: all processes of a user share few of them.
        steps.append(partial(resource.setrlimit, resource.RLIMIT_SIGPENDING, (0, 0)))
        steps += [self.signal_scope] if self.signal_scope else []
        return steps + ([self.child_filter.install] if self.child_filter else [])

    def beginning(self, *kept: int) -> list[Step]:
        """Reports once that the program begins; closes all descriptors but `kept`."""
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
    """A step that sets a limit, never above the hard limit with which the sandbox was started."""
    ceiling = _CEILINGS[kind]
    if ceiling != _INFINITY:
        soft, hard = (ceiling if value == _INFINITY else min(value, ceiling) for value in (soft, hard))
    return partial(resource.setrlimit, kind, (soft, hard))


def cpu_seconds(limit_s: float) -> int:
    """RLIMIT_CPU in seconds, which backs up the timer."""
    return math.ceil(_BACKSTOP * limit_s)


def exit_status(error: BaseException | None) -> int:
    """The status with which plain Python would exit; MemoryError has a separate one."""
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
    """Flushes as the interpreter does at exit: a closed or missing stream is fine, a failing write is not."""
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
            os._exit(1)  # before the program began, so not the program's fault
        attempt = Attempt(code or _compiled(source), interpreter.fresh_main())
        yield attempt
        if sys.getrecursionlimit() < _RECURSION_LIMIT:  # the program's limit must not affect the interpreter's exit
            sys.setrecursionlimit(_RECURSION_LIMIT)
        os._exit(finish(attempt))


def _compiled(source: str) -> types.CodeType:
    try:
        return compile(source, "main.py", "exec", dont_inherit=True)
    except MemoryError:
        os._exit(EXIT_MEMORY)
    except Exception:  # any fault of the source
        os._exit(1)


def finish(attempt: Attempt) -> int:
    """Does what the interpreter does at exit: hook, threads, atexit, flush, finalisers. Returns the exit status."""
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
