"""The fork server: receives jobs, forks a confined child for every run, reports how each ended.

Started by `__main__.py` in a clean interpreter. It is trusted but confined itself, and never receives expected outputs.
Outputs stay in memory files, which it passes on unread, so that no child forked later can find the output of an earlier
program in the memory it inherits.
"""

from __future__ import annotations

import _socket  # the C part alone: `socket` maps twenty more pieces of memory, which every fork would copy
import atexit
import builtins
import fcntl
import gc
import importlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from maxk.grading.confined.addresses import Addresses
from maxk.grading.confined.confinement import (
    SeccompFilter,
    address_space_in_use,
    death_with_parent,
    drop_capabilities,
    fork,
    landlock_abi,
    landlock_restriction,
    landlock_ruleset,
    no_new_privileges,
    signal_scope_ruleset,
)
from maxk.grading.confined.execution import (
    ABNORMAL,
    EXIT_MEMORY,
    FAILED,
    RECORD,
    Confinement,
    SharedRuns,
    SingleRun,
    find_library_caches,
    text,
)
from maxk.grading.confined.results import (
    MEMORY_LIMIT,
    OUTPUT_LIMIT,
    RAN,
    RUNTIME_ERROR,
    TIME_LIMIT,
    UNTESTED,
    VIOLATION,
    Batch,
    Death,
    Job,
    Result,
    memory_file,
    plausible,
    receive,
)

Runs = SingleRun | SharedRuns

_READY = b"ready"
_CHILD_SIGNAL = (signal.SIGCHLD,)
_FRESH_BYTES = 4096  # neighbours for so long can only be in fresh memory
_OPEN_FILES = 128
_CPU_SIGNALS = (signal.SIGPROF, signal.SIGXCPU)
_THREAD_STACK = 8 << 20  # what plain Python gives a thread; glibc would take the main stack's limit
_THREADS_ADDRESS_SPACE = 512 << 20  # for stacks, which are mapped whole and mostly never touched


class Server:
    """Serves one parent until it closes the control socket."""

    def __init__(self, control: Any, settings: dict[str, Any]) -> None:
        self.control = control
        null = os.open(os.devnull, os.O_WRONLY)
        self.null_flags = fcntl.fcntl(null, fcntl.F_GETFL)
        self.confinement = Confinement(null, death_with_parent())
        if settings["server_filter"]:
            self._confine(settings)
        self.idle_address_space = address_space_in_use()
        self.idle_peak = self._idle_peak()
        self.addresses = Addresses()
        self.filling: list[bytes] = []

    def _confine(self, settings: dict[str, Any]) -> None:
        """Puts the settings' restrictions on this process, and makes ready those of its children."""
        drop_capabilities()
        no_new_privileges()
        abi = landlock_abi() if settings["landlock"] else 0
        if settings["landlock"] == "required" and not abi:
            raise OSError("this kernel has no Landlock (it is off, older than 5.13, or forbidden here)")
        if abi:
            landlock_restriction(landlock_ruleset(settings["readable"], abi))()
            scope = signal_scope_ruleset(abi)
            self.confinement.signal_scope = None if scope is None else landlock_restriction(scope)
        self.confinement.child_filter = SeccompFilter(settings["child_filter"], settings["pid_placeholder"])
        SeccompFilter(settings["server_filter"]).install()

    def _idle_peak(self) -> int:
        """Resident memory of a child that does nothing, in bytes: the zero of every memory verdict."""
        pid = fork()
        if pid == 0:
            os._exit(0)
        return os.wait4(pid, 0)[2].ru_maxrss * 1024

    def serve(self) -> Iterator[Runs]:
        """Yields in children only: what the child is to run. It comes to the top of the stack and never back."""
        self.control.send(_READY)
        while (packed := receive(self.control)) is not None:
            yield from self._run([Batch(self.control, Job(one)) for one in packed])

    def _run(self, batches: list[Batch]) -> Iterator[Runs]:
        for batch in batches:
            job = batch.job
            job.limits.address_space = self.idle_address_space + job.memory_bytes + _THREADS_ADDRESS_SPACE
        if len(batches) > 1:
            yield from self._shared(batches)
        for batch in batches:
            if batch.job.shared and not batch.next:
                yield from self._shared([batch])
            while batch.left:
                if batch.exhausted:
                    batch.add_rest(Result(UNTESTED))
                else:
                    yield from self._single(batch.job, batch)

    def _single(self, job: Job, batch: Batch) -> Iterator[Runs]:
        stdout = _standard_files(job.inputs[batch.next])
        # Children share the open file behind stderr; what one did to its flags must not reach the next.
        fcntl.fcntl(self.confinement.null, fcntl.F_SETFL, self.null_flags)
        pid = fork()
        if pid == 0:
            self.confinement.enter()
            yield SingleRun(job.code, job.source, job.limits, job.files, job.arguments)
        _, death = self._wait(pid, job)
        batch.add(self._judge(job, death, os.fstat(stdout).st_size), stdout)

    def _shared(self, batches: list[Batch]) -> Iterator[Runs]:
        """All inputs of programs with equal limits in one child; what does not end in order there is left over."""
        job, programs = batches[0].job, [batch.job.program() for batch in batches]
        stdout = _standard_files()
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)  # it holds all records, so nobody need read meanwhile
        pid = fork()
        if pid == 0:
            self.addresses.hide()
            self.confinement.enter(keep=writer)
            yield SharedRuns(programs, job.limits, writer)
        os.close(writer)
        report, death = self._wait(pid, job, reader)
        os.close(reader)
        results = self._shared_results(job, sum(len(program.inputs) for program in programs), report, death)
        start = 0
        for batch in batches:
            own, results = results[: batch.left], results[batch.left :]
            if own:
                batch.add_shared(own, os.dup(stdout), start)
                start = own[-1].end
        os.close(stdout)

    def _wait(self, pid: int, job: Job, reader: int = -1) -> tuple[bytes, Death]:
        """Waits for the child, collecting its reports; kills it when none comes for the wall limit.

        SIGCHLD is blocked in the server, so it can be waited for with a timeout by one system call.
        """
        started = time.monotonic()
        deadline = started + job.wall_s
        reports, walled, ended = b"", False, 0
        while not ended:
            left = deadline - time.monotonic()
            if left > 0:
                signal.sigtimedwait(_CHILD_SIGNAL, left)  # also comes when a child stops itself
                ended, status, usage = os.wait4(pid, os.WNOHANG)
                continue
            report = _drain(reader)
            reports += report
            if not report:
                os.kill(pid, signal.SIGKILL)
                walled = True
            deadline = time.monotonic() + job.wall_s
        return reports + _drain(reader), Death(status, usage, time.monotonic() - started, walled)

    # outcomes

    def _judge(self, job: Job, death: Death, size: int) -> Result:
        end = min(size, job.limits.output_bytes)
        result = Result(self._outcome(job, death, size), death.cpu_s, end, death.wall_s, death.peak - self.idle_peak)
        result.walled = death.walled
        return result

    def _outcome(self, job: Job, death: Death, size: int) -> int:
        """One process, one program, one input: the causes in the order in which they explain one another."""
        if death.cpu_s > job.limits.cpu_s or death.signal in _CPU_SIGNALS or death.walled:
            return TIME_LIMIT
        if death.signal == signal.SIGSYS:
            return VIOLATION
        if size > job.limits.output_bytes or death.signal == signal.SIGXFSZ:
            return OUTPUT_LIMIT
        if death.exit == EXIT_MEMORY or death.peak - self.idle_peak > job.memory_bytes:
            return MEMORY_LIMIT
        return RUNTIME_ERROR if death.signal or death.exit else RAN

    def _shared_results(self, job: Job, inputs: int, report: bytes, death: Death) -> list[Result]:
        """Results of the executions that ended in order, and of one the CPU timer stopped."""
        peak = death.peak - self.idle_peak
        if peak > job.memory_bytes:
            return []  # which execution used it cannot be told
        results: list[Result] = []
        cpu_ns = end = 0
        if not plausible(inputs, job.limits.cpu_s, report, death.cpu_s):
            return []  # the check that admitted the program was wrong: believe nothing that its process said
        for how, cpu_ns_now, end_now in RECORD.iter_unpack(report[: len(report) // RECORD.size * RECORD.size]):
            if how == ABNORMAL:
                return results
            outcome = RUNTIME_ERROR if how == FAILED else RAN
            if end_now - end > job.limits.output_bytes:
                outcome = OUTPUT_LIMIT
            if cpu_ns_now - cpu_ns > job.limits.cpu_s * 1e9:
                outcome = TIME_LIMIT
            results.append(Result(outcome, (cpu_ns_now - cpu_ns) / 1e9, end_now, peak=peak))
            cpu_ns, end = cpu_ns_now, end_now
        if death.signal in _CPU_SIGNALS and len(results) < inputs:
            results.append(Result(TIME_LIMIT, death.cpu_s - cpu_ns / 1e9, end, peak=peak))
        return results


def _standard_files(stdin: bytes = b"") -> int:
    """Puts new memory files at descriptors 0 and 1, for the next child to inherit; returns another one of stdout."""
    source, stdout = memory_file(stdin), memory_file()
    os.dup2(source, 0)
    os.dup2(stdout, 1)
    os.close(source)
    return stdout


def _drain(reader: int) -> bytes:
    """What is in a pipe now."""
    try:
        return os.read(reader, 1 << 16) if reader >= 0 else b""
    except BlockingIOError:
        return b""


def _prepare_interpreter(preload: list[str], paths: list[str]) -> None:
    """Everything that children share: imported modules, standard streams, signal dispositions."""
    sys.path.extend(paths)
    for name in preload:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # not in this Python; a program importing it fails as it would anywhere
    find_library_caches()
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    os.close(_standard_files())
    sys.stdin, sys.stdout = text(open(0, "rb")), text(open(1, "wb"))  # noqa: SIM115
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    threading.stack_size(_THREAD_STACK)
    signal.pthread_sigmask(signal.SIG_BLOCK, _CHILD_SIGNAL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    atexit._clear()


def _fill_holes() -> list[bytes]:
    """Fills the small free gaps that importing left all over the heap; the result is to be kept.

    What children and the server allocate later then lies together on fresh pages instead of touching (and, after a
    fork, copying) a hundred old ones. Gaps of one size are full when new objects follow one another in memory.
    """
    kept = []
    for size in range(16, 513, 16):
        length, run, last = size - sys.getsizeof(b""), 0, 0
        while length >= 0 and run < _FRESH_BYTES // size:
            kept.append(bytes(length))
            run = run + 1 if id(kept[-1]) - last == size else 0
            last = id(kept[-1])
    return kept


def start() -> Server:
    """A server for the parent at the other end of the control socket, whose descriptor is the first argument."""
    death_with_parent()()
    control = _socket.socket(fileno=int(sys.argv[1]))
    settings = receive(control)
    _prepare_interpreter(settings["preload"], settings["paths"])
    server = Server(control, settings)
    for name in [name for name in sys.modules if name.split(".")[0] == "maxk"]:
        del sys.modules[name]
    del sys.path[0]  # where these modules are
    sys.argv = ["main.py"]
    gc.collect()
    server.filling = _fill_holes()
    gc.freeze()
    return server
