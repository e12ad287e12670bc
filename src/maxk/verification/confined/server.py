"""The fork server: receives jobs, forks a confined child for every run, reports how each ended.

Executed by path in a clean interpreter (never imported): `python -s -S -B server.py CONTROL_FD`. It is trusted but
confined itself, and never receives expected outputs. Outputs stay in memory files, which it passes on unread, so that
no child forked later can find the output of an earlier program in the memory it inherits.

A child leaves the server's functions by raising `_Child`, so that the program runs at the top of the stack, with the
recursion depth plain Python would give it.

Packets on the control socket (SOCK_SEQPACKET):
  in   b"" with one memory file: the marshalled job;
  out  `HEADER` + `RESULT` per run, with one memory file per run (or one for all, `SHARED`).
"""

from __future__ import annotations

import os
import sys

import ast
import builtins
import fcntl
import gc
import importlib
import io
import marshal
import math
import resource
import select
import signal
import socket
import threading
import time
import types
from struct import Struct

from confinement import (
    SeccompFilter,
    address_space_in_use,
    die_with_parent,
    drop_capabilities,
    landlock_abi,
    landlock_restrict,
    landlock_ruleset,
    no_new_privileges,
    signal_scope_ruleset,
)
from execution import (
    ABNORMAL,
    EXIT_MEMORY,
    FAILED,
    RECORD,
    Attempt,
    Confinement,
    Limits,
    SharedRuns,
    SingleRun,
    limit,
    stop_after_cpu,
)
from purity import is_state_free

HEADER = Struct("=QIIBB")  # job, index of the first run, number of runs, SHARED?, last packet of the job?
RESULT = Struct("=BBddQQ")  # outcome, stopped by the wall clock?, CPU s, wall s, peak memory, end of output
RAN, RUNTIME_ERROR, TIME_LIMIT, MEMORY_LIMIT, OUTPUT_LIMIT, VIOLATION, UNTESTED = range(7)
_CPU_SIGNALS = (signal.SIGPROF, signal.SIGXCPU)
READY = b"ready"
BATCH_RUNS, BATCH_BYTES = 32, 32 << 20  # results are passed on no later than this
THREAD_STACK = 8 << 20  # what plain Python gives a thread; glibc would take the main stack's limit
THREADS_ADDRESS_SPACE = 512 << 20  # mapped for stacks beyond the memory limit: mostly never touched
OPEN_FILES = 64


class _Child(BaseException):
    """Carries what the forked child is to run up to the top of the stack."""

    def __init__(self, runs: SingleRun | SharedRuns) -> None:
        self.runs = runs


def memory_file(data: bytes = b"") -> int:
    """A memory file; one made with data is sealed, so nobody can change it."""
    if not data:
        return os.memfd_create("m", os.MFD_CLOEXEC)
    fd = os.memfd_create("m", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 15)  # SEAL, SHRINK, GROW, WRITE
    return fd


class Job:
    """One program and its inputs; the fields are those of the marshalled tuple the parent sends."""

    def __init__(self, packed: bytes) -> None:
        self.id, self.source, self.inputs, self.share, limits, self.files, self.arguments = marshal.loads(packed)
        cpu_s, self.wall_s, total_cpu_s, self.memory_bytes, self.output_bytes = limits
        self.limits = Limits(cpu_s, total_cpu_s, self.output_bytes, address_space=0)
        self.code = b""


class Result:
    """How one run ended."""

    def __init__(
        self, outcome: int, cpu_s: float, wall_s: float, peak: int, end: int, walled: bool = False
    ) -> None:
        self.outcome, self.cpu_s, self.wall_s, self.peak, self.end, self.walled = (
            outcome,
            cpu_s,
            wall_s,
            peak,
            end,
            walled,
        )

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


class Server:
    def __init__(self, control: socket.socket, settings: dict) -> None:
        self.control = control
        self.confinement = Confinement()
        self.null = os.open(os.devnull, os.O_WRONLY)
        self._confine(settings)
        self.idle_address_space = address_space_in_use()
        self.idle_peak = 0

    def _confine(self, settings: dict) -> None:
        """Puts the settings' restrictions on this process, and makes ready those of its children."""
        if not settings["server_filter"]:
            return
        drop_capabilities()
        no_new_privileges()
        abi = landlock_abi() if settings["landlock"] else 0
        if settings["landlock"] == "required" and not abi:
            raise OSError("this kernel has no Landlock (it is off, older than 5.13, or forbidden here)")
        if abi:
            landlock_restrict(landlock_ruleset(settings["readable"], abi))
            self.confinement.signal_scope = signal_scope_ruleset(abi)
        self.confinement.child_filter = SeccompFilter(settings["child_filter"], settings["pid_placeholder"])
        SeccompFilter(settings["server_filter"]).install()

    # jobs

    def serve(self) -> None:
        """Until the parent closes the socket. Children leave by `_Child`."""
        self._measure_idle_child()
        self.control.send(READY)
        while True:
            _, descriptors, _, _ = socket.recv_fds(self.control, 1, 1)
            if not descriptors:
                return
            with open(descriptors[0], "rb", buffering=0) as file:
                job = Job(file.read())
            self._run(job)
            job = None

    def _measure_idle_child(self) -> None:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        self.idle_peak = os.wait4(pid, 0)[2].ru_maxrss * 1024

    def _run(self, job: Job) -> None:
        job.limits.address_space = self.idle_address_space + job.memory_bytes + THREADS_ADDRESS_SPACE
        batch = _Batch(self.control, job)
        self._first(job, batch)
        while batch.next < len(job.inputs):
            if batch.charged >= job.limits.total_cpu_s:
                batch.add(Result(UNTESTED, 0.0, 0.0, 0, 0), memory_file())
            else:
                self._single(job, batch)
        batch.send(last=True)

    def _first(self, job: Job, batch: _Batch) -> None:
        """Compiles in a child, which then runs either every input (proven state-free) or the first one."""
        stdin, stdout = memory_file(job.inputs[0]), memory_file()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._enter(job, stdin, stdout, keep=writer)
            raise _Child(_compile(job, writer))
        os.close(writer)
        os.close(stdin)
        report, death = self._wait(pid, job, reader)
        os.close(reader)
        verb, report = report[:1], report[1:]
        if verb == b"P":
            self._shared_results(job, batch, report, death, stdout)
            return
        if verb == b"I":
            job.code = report
        result = self._judge(job, death, stdout)
        batch.add(result, stdout)
        if verb == b"E":  # does not compile, whatever the input
            while batch.next < len(job.inputs):
                batch.add(result, memory_file())

    def _single(self, job: Job, batch: _Batch) -> None:
        stdin, stdout = memory_file(job.inputs[batch.next]), memory_file()
        pid = os.fork()
        if pid == 0:
            self._enter(job, stdin, stdout)
            raise _Child(SingleRun(_load(job), job.source, job.limits, job.files, job.arguments))
        os.close(stdin)
        _, death = self._wait(pid, job)
        batch.add(self._judge(job, death, stdout), stdout)

    def _enter(self, job: Job, stdin: int, stdout: int, keep: int = -1) -> None:
        """In the child: descriptors, limits, confinement, in this order."""
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.dup2(self.null, 2)
        self.confinement.put_on()
        os.closerange(3, max(keep, 3))
        os.closerange(keep + 1 if keep > 2 else 3, 1 << 20)
        limits = job.limits
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
        limit(resource.RLIMIT_AS, limits.address_space, limits.address_space)
        if keep < 0:
            _single_limits(limits)

    def _wait(self, pid: int, job: Job, reader: int = -1) -> tuple[bytes, Death]:
        """Waits for the child, collecting what it reports; kills it when no progress is made for the wall limit."""
        started = time.monotonic()
        chunks: list[bytes] = []
        process = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(process, select.POLLIN)
        poll.register(self.control, 0)
        if reader >= 0:
            poll.register(reader, select.POLLIN)
        deadline, walled = started + job.wall_s, False
        while True:
            events = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
            if self.control.fileno() in events:
                os.kill(pid, signal.SIGKILL)
                os._exit(0)  # the parent is gone
            if reader in events:
                chunk = os.read(reader, 1 << 16)
                if chunk:
                    chunks.append(chunk)
                    deadline = time.monotonic() + job.wall_s
                else:
                    poll.unregister(reader)
            elif process in events:
                break
            elif not events and time.monotonic() >= deadline:
                walled = True
                os.kill(pid, signal.SIGKILL)
                deadline += 60
        os.close(process)
        _, status, usage = os.wait4(pid, 0)
        return b"".join(chunks), Death(status, usage, time.monotonic() - started, walled)

    # outcomes

    def _judge(self, job: Job, death: Death, stdout: int) -> Result:
        size = os.fstat(stdout).st_size
        outcome = self._outcome(job, death, size)
        return Result(
            outcome, death.cpu_s, death.wall_s, death.peak, min(size, job.output_bytes), death.walled
        )

    def _outcome(self, job: Job, death: Death, size: int) -> int:
        """One process, one program, one input: the causes in the order in which they explain the others."""
        if death.cpu_s > job.limits.cpu_s or death.signal in _CPU_SIGNALS or death.walled:
            return TIME_LIMIT
        if death.signal == signal.SIGSYS:
            return VIOLATION
        if size > job.output_bytes or death.signal == signal.SIGXFSZ:
            return OUTPUT_LIMIT
        if death.exit == EXIT_MEMORY or death.peak - self.idle_peak > job.memory_bytes:
            return MEMORY_LIMIT
        return RUNTIME_ERROR if death.signal or death.exit else RAN

    def _shared_results(self, job: Job, batch: _Batch, report: bytes, death: Death, stdout: int) -> None:
        """Results of the executions that ended in order; whatever is missing is run in its own process afterwards."""
        if death.peak - self.idle_peak > job.memory_bytes:
            os.close(stdout)
            return  # which execution used it cannot be told
        results: list[Result] = []
        before_cpu = 0.0
        before_end = 0
        whole = len(report) // RECORD.size * RECORD.size
        for how, cpu_ns, end in RECORD.iter_unpack(report[:whole]):
            if how == ABNORMAL:
                break
            cpu = cpu_ns / 1e9 - before_cpu
            outcome = RUNTIME_ERROR if how == FAILED else RAN
            if end - before_end > job.output_bytes:
                outcome = OUTPUT_LIMIT
            if cpu > job.limits.cpu_s:
                outcome = TIME_LIMIT
            results.append(Result(outcome, cpu, 0.0, death.peak, end))
            before_cpu, before_end = cpu_ns / 1e9, end
        dying = death.cpu_s - before_cpu
        if death.signal in _CPU_SIGNALS and len(results) < len(job.inputs) and dying > job.limits.cpu_s:
            results.append(Result(TIME_LIMIT, dying, death.wall_s, death.peak, before_end))
        batch.add_shared(results, stdout)


class _Batch:
    """Results on their way to the parent, and what the job has been charged so far."""

    def __init__(self, control: socket.socket, job: Job) -> None:
        self.control, self.job = control, job
        self.next, self.charged = 0, 0.0
        self.results: list[Result] = []
        self.files: list[int] = []
        self.bytes = 0
        self.complete = False

    def add(self, result: Result, stdout: int) -> None:
        self.results.append(result)
        self.files.append(stdout)
        self.next += 1
        self.bytes += result.end
        self._charge(result)
        if len(self.files) >= BATCH_RUNS or self.bytes >= BATCH_BYTES:
            self.send()

    def add_shared(self, results: list[Result], stdout: int) -> None:
        for result in results:
            self.results.append(result)
            self.next += 1
            self._charge(result)
            if self.charged >= self.job.limits.total_cpu_s:
                break
        self.files.append(stdout)
        self.send(shared=True)

    def _charge(self, result: Result) -> None:
        """Only tests that end in a time limit are charged: a program that passes is never cut short."""
        if result.outcome == TIME_LIMIT:
            self.charged += result.wall_s if result.walled else result.cpu_s

    def send(self, shared: bool = False, last: bool = False) -> None:
        """Passes on what has gathered; the packet that completes the job says so."""
        if self.complete:
            return
        self.complete = last = last or self.next == len(self.job.inputs)
        if not self.results and not last:
            _close(self.files)
            self.files = []
            return
        first = self.next - len(self.results)
        head = HEADER.pack(self.job.id, first, len(self.results), shared, last)
        packet = head + b"".join(result.pack() for result in self.results)
        if self.files:
            socket.send_fds(self.control, [packet], self.files)
        else:
            self.control.send(packet)
        _close(self.files)
        self.results, self.files, self.bytes = [], [], 0


def _close(descriptors: list[int]) -> None:
    for fd in descriptors:
        os.close(fd)


def _single_limits(limits: Limits) -> None:
    seconds = math.ceil(limits.cpu_s)
    limit(resource.RLIMIT_CPU, seconds, seconds + 1)
    limit(resource.RLIMIT_FSIZE, limits.output_bytes + 1, limits.output_bytes + 1)
    stop_after_cpu(limits.cpu_s)


def _compile(job: Job, writer: int) -> SingleRun | SharedRuns:
    """In the child: decides, before anything hostile runs, how the program is run; tells the server through `writer`.

    b"P": state-free, records follow; b"I" + code: the first input is run in this process; b"E": does not compile.
    The pipe is closed before a program that is not proven state-free runs, so it cannot speak there.
    """
    stop_after_cpu(job.limits.cpu_s)
    try:
        tree = ast.parse(job.source) if job.share else None
        code = compile(job.source if tree is None else tree, "main.py", "exec", dont_inherit=True)
        pure = tree is not None and is_state_free(tree)
        del tree
        packed = b"" if pure else marshal.dumps(code)
    except MemoryError:
        os._exit(EXIT_MEMORY)
    except (SyntaxError, ValueError, RecursionError, OverflowError):
        os.write(writer, b"E")
        os._exit(1)
    if pure:
        os.write(writer, b"P")
        return SharedRuns(code, job.source, job.inputs, job.limits, writer)
    view = memoryview(b"I" + packed)
    while view:
        view = view[os.write(writer, view) :]
    os.close(writer)
    _single_limits(job.limits)
    return SingleRun(code, job.source, job.limits, job.files, job.arguments)


def _load(job: Job) -> types.CodeType:
    if job.code:
        return marshal.loads(job.code)
    try:
        return compile(job.source, "main.py", "exec", dont_inherit=True)
    except MemoryError:
        os._exit(EXIT_MEMORY)
    except (SyntaxError, ValueError, RecursionError, OverflowError):
        os._exit(1)


def _prepare_interpreter(preload: list[str], paths: list[str]) -> None:
    """Everything that children share: imported modules, standard streams, signal dispositions."""
    sys.path.extend(paths)
    for name in preload:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # not in this Python; a program importing it fails as it would anywhere
    builtins.exit = builtins.quit = sys.exit
    os.dup2(memory_file(), 0)
    os.dup2(memory_file(), 1)
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(open(0, "rb"), "utf-8", "surrogateescape")  # noqa: SIM115
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(open(1, "wb"), "utf-8", "surrogateescape")  # noqa: SIM115
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    threading.stack_size(THREAD_STACK)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _start() -> Server:
    die_with_parent()
    control = socket.socket(fileno=int(sys.argv[1]))
    _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    with open(descriptors[0], "rb", buffering=0) as file:
        settings = marshal.loads(file.read())
    _prepare_interpreter(settings["preload"], settings["paths"])
    server = Server(control, settings)
    for name in ("confinement", "execution", "purity"):
        del sys.modules[name]
    del sys.path[0]
    sys.argv = ["main.py"]
    gc.collect()
    gc.freeze()
    return server


_server = _start()
try:
    _server.serve()
    os._exit(0)
except _Child as _child:
    _runs = _child.runs
_attempt: Attempt
for _attempt in _runs.attempts():
    try:
        exec(_attempt.code, _attempt.namespace)
    except BaseException as _error:
        _attempt.error = _error
