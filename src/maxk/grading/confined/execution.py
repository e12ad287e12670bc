"""What a forked child does: confine itself, make the streams and `__main__` of one execution, report how it ended.

The child runs program code in `server.py`, at the top of the stack, so that a program has the recursion depth it would
have under plain Python; this module prepares each execution and cleans up after it.
"""

from __future__ import annotations

import _thread
import atexit
import builtins
import functools
import gc
import io
import math
import os
import random
import re
import resource
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct

from maxk.grading.confined.confinement import CpuTimer, SeccompFilter, SystemCall

EXIT_MEMORY = 251  # exit status of a child whose program ended by MemoryError
RECORD = Struct("=BQQ")  # of one shared execution: how it ended, CPU ns so far, bytes of output so far
ENDED, FAILED, ABNORMAL = range(3)

_TIMER_SLACK_S = 0.01  # what the timer stops has certainly used more than its limit
_BACKSTOP = 1.5  # RLIMIT_CPU, in CPU limits: it overcounts under load
_timer = CpuTimer(signal.SIGPROF)
_INFINITY = resource.RLIM_INFINITY
_ALL_DESCRIPTORS = 1 << 20
_RECURSION_LIMIT = sys.getrecursionlimit()
_DIGITS_LIMIT = sys.get_int_max_str_digits()


@dataclass
class Limits:
    """Of one execution; `address_space` includes what the idle interpreter uses."""

    cpu_s: float
    total_cpu_s: float
    output_bytes: int
    address_space: int


@dataclass(repr=False)
class Attempt:
    """One execution: run `code` in `namespace`, then leave how it ended in `error`."""

    code: types.CodeType
    namespace: dict[str, object]
    error: BaseException | None = None


@dataclass
class Confinement:
    """What the server made ready for its children to put on; None where the tier has none."""

    null: int
    die_with_parent: SystemCall
    child_filter: SeccompFilter | None = None
    signal_scope: SystemCall | None = None

    def enter(self, keep: int = 2) -> None:
        """In a new child: its restrictions, standard streams and, beside them, no descriptor but `keep`."""
        self.die_with_parent()
        os.dup2(self.null, 2)
        if self.signal_scope is not None:
            self.signal_scope()
        if self.child_filter is not None:
            self.child_filter.install()
        if keep > 2:
            os.closerange(3, keep)
        os.closerange(keep + 1, _ALL_DESCRIPTORS)


_CACHING = re.compile(r"typing|\bre\b|fractions")  # modules whose functions keep what checked programs pass them
_library_caches: list[functools._lru_cache_wrapper[object]] = []


def find_library_caches() -> None:
    """To be called when all modules are imported, before any program runs."""
    _library_caches[:] = [item for item in gc.get_objects() if isinstance(item, functools._lru_cache_wrapper)]


def _clear_library_caches() -> None:
    """Caches of library functions hold, as keys, objects of the program that called them."""
    re.purge()
    for cached in _library_caches:
        cached.cache_clear()


def _fresh_main() -> dict[str, object]:
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __file__="main.py", __annotations__={})
    sys.modules["__main__"] = main
    return main.__dict__


def _fresh_streams(stdin: bytes, stderr: bool) -> None:
    raw = io.BytesIO(stdin)
    raw.name = 0  # as of a stream over descriptor 0
    sys.stdin = text(io.BufferedReader(raw, 4096))  # as over a descriptor
    sys.stdout = text(open(1, "wb", closefd=False))  # noqa: SIM115
    if stderr:
        sys.stderr = text(open(2, "wb", closefd=False))  # noqa: SIM115


_CEILINGS = {
    kind: resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_AS)
}


def limit(kind: int, soft: int, hard: int) -> None:
    """Sets a limit, never above the hard limit the sandbox was started with."""
    ceiling = _CEILINGS[kind]
    if ceiling != _INFINITY:
        soft, hard = (ceiling if value == _INFINITY else min(value, ceiling) for value in (soft, hard))
    resource.setrlimit(kind, (soft, hard))


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
    return error.code & 0xFF if isinstance(error.code, int) else 1


@dataclass
class SingleRun:
    """One execution of one program in a process of its own: real descriptors, real exit."""

    code: types.CodeType | None  # None: compile it here
    source: str
    limits: Limits
    files: dict[str, bytes] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)

    def attempts(self) -> Iterator[Attempt]:
        self._put_limits_on()
        code = self.code or self._compiled()
        sys.argv = ["main.py", *self.arguments]
        if self.files:
            _offer_files(self.files)
        if "random" in self.source:
            random.seed()  # the generator's state is inherited
        attempt = Attempt(code, _fresh_main())
        yield attempt
        if sys.getrecursionlimit() < _RECURSION_LIMIT:  # what the interpreter does at its end is not the program's
            sys.setrecursionlimit(_RECURSION_LIMIT)
        os._exit(self._finish(attempt))

    def _put_limits_on(self) -> None:
        seconds = math.ceil(_BACKSTOP * self.limits.cpu_s)
        limit(resource.RLIMIT_CPU, seconds, seconds + 1)
        limit(resource.RLIMIT_FSIZE, self.limits.output_bytes + 1, self.limits.output_bytes + 1)
        limit(resource.RLIMIT_AS, self.limits.address_space, self.limits.address_space)
        _timer.start()
        _timer.set(self.limits.cpu_s + _TIMER_SLACK_S)

    def _compiled(self) -> types.CodeType:
        try:
            return compile(self.source, "main.py", "exec", dont_inherit=True)
        except MemoryError:
            os._exit(EXIT_MEMORY)
        except Exception:  # whatever the source's fault is
            os._exit(1)

    def _finish(self, attempt: Attempt) -> int:
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
        if not _flushed(sys.stdout):
            status = status or 120
        if any(word in self.source for word in ("__del__", "yield", "open", "TextIOWrapper", "finalize")):
            attempt.namespace.clear()
            gc.collect()
            _flushed(sys.__stdout__)
        return status


def _flushed(stream: object) -> bool:
    """Like the interpreter's own flush at exit: a closed or missing stream is fine, a failing write is not."""
    try:
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()  # type: ignore[attr-defined]
    except BaseException:
        return False
    return True


def _offer_files(files: dict[str, bytes]) -> None:
    """Lets `open` read the named in-memory files: a checker gets its three files without a file system."""
    real = io.open

    def virtual_open(file: object, mode: str = "r", *arguments: object, **options: object) -> object:
        data = files.get(str(file))
        if data is None:
            return real(file, mode, *arguments, **options)  # type: ignore[call-overload]
        raw = io.BytesIO(data)
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding="utf-8", errors="replace")

    builtins.open = io.open = virtual_open  # type: ignore[assignment]


@dataclass
class Program:
    """One that is proven state-free, and what it is to run on."""

    code: types.CodeType
    source: str
    inputs: list[bytes]

    @property
    def caches(self) -> bool:
        return _CACHING.search(self.source) is not None

    @property
    def uses_stderr(self) -> bool:
        return "stderr" in self.source or not self.source.isascii()  # letters beyond ASCII can spell it, too


@dataclass
class SharedRuns:
    """All executions of programs proven state-free, in one process, each with fresh globals and streams."""

    programs: list[Program]
    limits: Limits
    report_fd: int

    def attempts(self) -> Iterator[Attempt]:
        limit(resource.RLIMIT_AS, self.limits.address_space, self.limits.address_space)
        _timer.start()
        used = 0  # CPU nanoseconds of the tests alone, without what tidying up between them takes
        for program in self.programs:
            charged, caches, stderr = 0, program.caches, program.uses_stderr
            for data in program.inputs:
                started = self._ready(data, stderr)
                attempt = Attempt(program.code, _fresh_main())
                yield attempt
                sys.setrecursionlimit(_RECURSION_LIMIT)  # first of all: what follows may need more than is left
                outcome = self._outcome(attempt)
                spent = _cpu_ns() - started
                used += spent
                if spent > self.limits.cpu_s * 1e9:
                    charged += spent
                os.write(self.report_fd, RECORD.pack(outcome, used, os.lseek(1, 0, os.SEEK_END)))
                if outcome == ABNORMAL or charged >= self.limits.total_cpu_s * 1e9:
                    os._exit(0)
                attempt.namespace.clear()  # its cycles must not weigh on the next test's memory and time
                if caches:
                    _clear_library_caches()
                gc.collect()
            if used >= self.limits.cpu_s * 1e9:
                break  # slow ones do not keep the others waiting
        os._exit(0)

    def _ready(self, data: bytes, stderr: bool) -> int:
        """Puts the limits of one execution on and makes its streams; returns the CPU nanoseconds of its start."""
        offset = os.lseek(1, 0, os.SEEK_END)
        limit(resource.RLIMIT_FSIZE, offset + self.limits.output_bytes + 1, _INFINITY)
        started = _cpu_ns()
        seconds = started // 10**9 + 1 + math.ceil(_BACKSTOP * self.limits.cpu_s)
        limit(resource.RLIMIT_CPU, seconds, _INFINITY)
        _timer.set(self.limits.cpu_s + _TIMER_SLACK_S)
        sys.set_int_max_str_digits(_DIGITS_LIMIT)
        _fresh_streams(data, stderr)
        return started

    def _outcome(self, attempt: Attempt) -> int:
        error, attempt.error = attempt.error, None
        if isinstance(error, MemoryError):
            return ABNORMAL
        status = exit_status(error)
        if status == EXIT_MEMORY:  # chosen by the program: run alone it counts as it would there
            return ABNORMAL
        if not _flushed(sys.stdout):
            status = status or 120
        return FAILED if status else ENDED


def text(raw: io.BufferedReader | io.BufferedWriter) -> io.TextIOWrapper:
    """A standard stream over `raw`, as Python makes it in the C.UTF-8 locale."""
    stream = io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape")
    stream.mode = "r" if raw.readable() else "w"  # type: ignore[misc]  # fast-input templates ask for it
    return stream


def _cpu_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID)
