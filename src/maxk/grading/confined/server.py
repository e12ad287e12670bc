"""The fork server: receives orders, forks a confined child for every run, and reports how each run ended.

`__main__.py` starts it in a clean interpreter. It is trusted but confined itself. Programs, inputs and outputs stay in
memory files, which it passes on unread, so that the memory a child inherits contains nothing of earlier jobs. It never
receives expected outputs, except for checker programs, which have separate servers.
"""

from __future__ import annotations

import _socket  # only the C part: `socket` adds twenty memory maps, which every fork would copy
import atexit
import fcntl
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from maxk.grading.confined import interpreter, shared, wire
from maxk.grading.confined.confinement import (
    CpuTimer,
    Events,
    SeccompFilter,
    ThreadGate,
    address_space_in_use,
    death_with_parent,
    drop_capabilities,
    fork,
    landlock_abi,
    landlock_restriction,
    landlock_ruleset,
    no_new_privileges,
    not_dumpable,
    signal_scope_ruleset,
)
from maxk.grading.confined.execution import EXIT_MEMORY, Confinement, SingleRun, steps_of
from maxk.grading.confined.jobs import OPEN_FILES, Batch, Death, Job, Result, load, memory_file, receive
from maxk.grading.confined.large_pages import move_to_large_pages
from maxk.grading.confined.shared import SharedRuns
from maxk.grading.confined.warming import warm_up

Runs = SingleRun | SharedRuns

_CPU_SIGNALS = (signal.SIGPROF, signal.SIGXCPU)
_THREADS_ADDRESS_SPACE = 512 << 20  # for stacks, which are mapped whole and mostly not touched
_FORK_PAUSES_S = (0.01, 0.1, 1.0, 3.0)  # other programs may hold all processes that this user is allowed


class Server:
    """Serves one parent until it closes the control socket."""

    def __init__(self, control: Any, settings: dict[str, Any]) -> None:
        self.control = control
        null = os.open(os.devnull, os.O_WRONLY)
        self.null_flags = fcntl.fcntl(null, fcntl.F_GETFL)
        self.began, began = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.confinement = Confinement(null, began, death_with_parent(), CpuTimer(signal.SIGPROF))
        self.events = Events(signal.SIGCHLD)
        if settings["server_filter"]:
            self._confine(settings)
        self.idle_address_space = address_space_in_use()
        self.idle_peak = self._idle_peak()

    def _confine(self, settings: dict[str, Any]) -> None:
        """Applies the settings' restrictions to this process and prepares those of its children."""
        drop_capabilities()
        no_new_privileges()
        not_dumpable()  # without this, Landlock before ABI 6 lets children inspect our descriptors
        abi = landlock_abi() if settings["landlock"] else 0
        if settings["landlock"] == "required" and not abi:
            raise OSError("this kernel has no Landlock (it is off, older than 5.13, or forbidden here)")
        if abi:
            landlock_restriction(landlock_ruleset(settings["readable"], abi))()
            scope = signal_scope_ruleset(abi)
            self.confinement.signal_scope = None if scope is None else landlock_restriction(scope)
        self.confinement.child_filter = SeccompFilter(settings["child_filter"], settings["pid_placeholder"])
        self.events.gate = ThreadGate(settings["thread_filter"])
        SeccompFilter(settings["server_filter"]).install()

    def _idle_peak(self) -> int:
        """Resident memory of a child that does nothing, in bytes: the baseline of every memory verdict."""
        pid = fork()
        if pid == 0:
            os._exit(0)
        return os.wait4(pid, 0)[2].ru_maxrss * 1024

    def serve(self) -> Iterator[Runs]:
        """Yields the runs of a child, in that child only; the child then never returns here."""
        self.control.send(wire.READY)
        while files := receive(self.control):
            orders, contents = files
            batches = [Batch(self.control, Job(wire.Order(*order), contents)) for order in load(orders)]
            yield from self._run(batches)
            os.close(contents)

    def _run(self, batches: list[Batch]) -> Iterator[Runs]:
        if len(batches) > 1:
            yield from self._shared(batches)
            _release(batches)
        for batch in batches:
            if batch.job.order.shared and batch.left and not batch.next:
                yield from self._shared([batch])
            order = batch.job.order
            run = SingleRun(batch.job, steps_of(order, self._address_space(batch.job), self.confinement))
            while batch.left:
                if batch.timed_out and batch.divisible:
                    batch.hand_back()
                elif batch.exhausted:
                    result = Result(wire.UNTESTED)
                    result.doubtful = batch.waited_too_long
                    batch.add(result)
                else:
                    yield from self._single(batch, run)

    def _single(self, batch: Batch, run: SingleRun) -> Iterator[Runs]:
        job, stdout = batch.job, -1
        try:
            stdout, started = self._standard_files(job.stdin(batch.next)), time.monotonic()
            pid = _patient_fork()
        except OSError:  # descriptors, memory or processes have run out
            batch.add(Result(wire.FAULT))
        else:
            if pid == 0:
                yield run
            death = self._wait(pid, started, job.order.wall_s)
            result = self._judge(job.order, death, os.fstat(stdout).st_size)
            batch.add(result, stdout if result.outcome == wire.RAN else -1)
        if stdout >= 0:
            os.close(stdout)

    def _shared(self, batches: list[Batch]) -> Iterator[Runs]:
        """All runs of jobs with equal limits in one child; runs that do not end normally there are left over."""
        jobs, order = [batch.job for batch in batches], batches[0].job.order
        stdout = report = -1
        try:
            stdout, report = self._standard_files(memory_file()), memory_file()
            started = time.monotonic()
            pid = _patient_fork()
        except OSError:
            pass  # left over
        else:
            if pid == 0:
                yield SharedRuns(jobs, self._address_space(jobs[0]), self.confinement, report)
            death = self._wait(pid, started, order.wall_s, report)
            if (
                self._has_begun() and death.peak - self.idle_peak <= order.memory_bytes
            ):  # otherwise the cause cannot be attributed to a run
                timed_out = death.signal in _CPU_SIGNALS
                records = os.pread(report, os.fstat(report).st_size, 0)
                _distribute(batches, shared.results(records, order, death.cpu_s, timed_out), stdout)
        for fd in (stdout, report):
            if fd >= 0:
                os.close(fd)

    def _address_space(self, job: Job) -> int:
        return self.idle_address_space + job.order.memory_bytes + _THREADS_ADDRESS_SPACE

    def _standard_files(self, stdin: int) -> int:
        """Puts `stdin` and a new memory file at descriptors 0 and 1 for the next child; returns stdout's descriptor.

        Children share the open file behind stderr, so its flags are reset: one child must not affect the next.
        """
        fcntl.fcntl(self.confinement.null, fcntl.F_SETFL, self.null_flags)
        self.events.start()
        return _put_standard_files(stdin)

    def _has_begun(self) -> bool:
        """Whether the last child began to run a program."""
        try:
            return bool(os.read(self.began, 16))
        except BlockingIOError:
            return False

    def _wait(self, pid: int, started: float, wall_s: float, report: int = -1) -> Death:
        """Waits for the child; kills it if it has neither ended nor reported anything for the wall limit."""
        self.events.wait(wall_s)  # before anything else: pages that the child has freed by then are not copied
        deadline, reported = started + wall_s, 0
        timeout = False
        while True:
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                return Death(status, usage, time.monotonic() - started, timeout)
            left = deadline - time.monotonic()
            if left > 0:
                self.events.wait(left)  # also ends when a child stops itself
                continue
            before, reported = reported, os.fstat(report).st_size if report >= 0 else 0
            if reported == before:
                os.kill(pid, signal.SIGKILL)
                timeout = True
            deadline = time.monotonic() + wall_s

    # outcomes

    def _judge(self, order: wire.Order, death: Death, size: int) -> Result:
        if not self._has_begun():
            return Result(wire.FAULT)
        outcome = self._outcome(order, death, size)
        result = Result(outcome, death.cpu_s, 0, min(size, order.output_bytes), death.wall_s)
        killed = death.signal == signal.SIGKILL  # by itself, by us, or by a machine out of memory
        result.doubtful = killed and death.cpu_s <= order.cpu_s
        return result

    def _outcome(self, order: wire.Order, death: Death, size: int) -> int:
        """The outcome of a single run. A cause comes before the outcomes that it can bring about."""
        if death.cpu_s > order.cpu_s or death.signal in _CPU_SIGNALS or death.wall_timeout:
            return wire.TIME_LIMIT
        if death.signal == signal.SIGSYS:
            return wire.VIOLATION
        if size > order.output_bytes or death.signal == signal.SIGXFSZ:
            return wire.OUTPUT_LIMIT
        if death.exit == EXIT_MEMORY or death.peak - self.idle_peak > order.memory_bytes:
            return wire.MEMORY_LIMIT
        return wire.RUNTIME_ERROR if death.signal or death.exit else wire.RAN


def _distribute(batches: list[Batch], results: list[Result], stdout: int) -> None:
    """Adds results, which are in the order of the batches, to the batch of their run."""
    for batch in batches:
        while results and batch.left and not batch.exhausted:
            batch.add(results.pop(0), stdout)
        batch.send()
        if batch.left:
            return


def _release(batches: list[Batch]) -> None:
    """Hands back the jobs that have not begun if a run of another one has timed out, so that they wait no longer."""
    if any(batch.timed_out for batch in batches):
        for batch in batches:
            if not batch.next:
                batch.hand_back()


def _patient_fork() -> int:
    for pause in _FORK_PAUSES_S:
        try:
            return fork()
        except OSError:
            time.sleep(pause)
    return fork()


def _put_standard_files(stdin: int) -> int:
    try:
        stdout = memory_file()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        return stdout
    finally:
        os.close(stdin)


def _prepare_process() -> None:
    """Prepares what children inherit: standard files and streams, builtins, signal dispositions, limits."""
    os.close(_put_standard_files(memory_file()))
    interpreter.open_streams()
    interpreter.install()
    warm_up()
    os.close(_put_standard_files(memory_file()))
    interpreter.open_streams()
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    atexit._clear()


def start() -> Server:
    """Creates the server for the parent at the other end of the control socket, whose fd is the first argument."""
    death_with_parent()()
    control = _socket.socket(fileno=int(sys.argv[1]))
    file, proc = receive(control)
    settings = load(file)
    _prepare_process()
    move_to_large_pages(proc)
    os.close(proc)
    server = Server(control, settings)
    for name in [name for name in sys.modules if name.split(".")[0] == "maxk"]:
        del sys.modules[name]
    del sys.path[0]  # where these modules are
    sys.argv = ["main.py"]
    gc.collect()
    gc.freeze()
    return server
