"""Landlock, seccomp and resource limits, applied by a process to itself (standard library only; Linux).

Runs inside the sandbox, in the fork server and its children. The standard library has no binding for Landlock and
seccomp, so the few system calls are made through ctypes; every failure raises OSError.

Sources: Linux Documentation/userspace-api/landlock.rst and seccomp_filter.rst.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import math
import os
import resource
import struct
from itertools import takewhile

_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = (
    444,
    445,
    446,
)  # the same on all architectures
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277, "riscv64": 277, "ppc64le": 358, "s390x": 348}
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91, "riscv64": 91, "ppc64le": 184, "s390x": 185}
_SYS_PRCTL = {"x86_64": 157, "aarch64": 167, "riscv64": 167, "ppc64le": 171, "s390x": 172}
_SYS_TIMER = {  # timer_create, timer_settime
    "x86_64": (222, 223),
    "aarch64": (107, 110),
    "riscv64": (107, 110),
    "ppc64le": (240, 241),
    "s390x": (254, 255),
}
_CLOCK_PROCESS_CPUTIME = 2
_PR_SET_PDEATHSIG, _PR_GET_DUMPABLE, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 3, 4, 38
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1, 2
_RIGHTS_OF_ABI = {
    1: 13,
    2: 14,
    3: 15,
    4: 15,
}  # number of file-system access rights known to an ABI; 16 from 5 on

MOST_THREADS = 1000  # of one run
_NEW_LISTENER, _CONTINUE, _REQUEST_BYTES, _POLLIN = 8, 1, 80, 1
_FIRST_WITH_CONTINUE = (5, 5)
_LONGEST_WAIT_S = 1e6  # milliseconds are an int
_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # ioctl numbers

_libc = ctypes.CDLL(None, use_errno=True)
_python = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mmap.restype = ctypes.c_void_p  # the module mmap would add five memory maps, which each fork copies
_MAP_PRIVATE_ANONYMOUS = 0x22


def fork() -> int:
    """`os.fork` without Python's after-fork hooks, which cost a quarter of a child's start-up.

    The hooks repair locks held by other threads (there are none here) and reseed `random` (execution.py does that if a
    program uses it). PyDLL keeps the GIL, so the child continues as the only thread.
    """
    pid = int(_python.fork())
    if pid < 0:
        raise OSError(ctypes.get_errno(), "fork failed")
    return pid


class SystemCall:
    """A system call with prepared arguments, so that making it in a child touches little memory."""

    def __init__(self, number: int, *arguments: object) -> None:
        self._number = number
        self._words = tuple(ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *arguments))

    def __call__(self) -> int:
        result = int(_libc.syscall(*self._words))
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"system call {self._number}: {os.strerror(code)}")
        return result

    @classmethod
    def nothing(cls) -> SystemCall:
        """A call without effect."""
        return cls(_SYS_PRCTL[os.uname().machine], _PR_GET_DUMPABLE, 0, 0, 0, 0)


def _call(number: int, *arguments: object) -> int:
    return SystemCall(number, *arguments)()


def kernel_version() -> tuple[int, int]:
    """Major and minor version of the running kernel, whose release may end in anything: `6.1.0-rc2`, `6.6+`."""
    major, _, rest = os.uname().release.partition(".")
    return int(major), int("".join(takewhile(str.isdigit, rest)))


def landlock_abi() -> int:
    """The Landlock version of this kernel; 0 if it has none."""
    try:
        return _call(_SYS_LANDLOCK_CREATE, None, 0, 1)
    except OSError:
        return 0


def landlock_ruleset(readable: list[str], abi: int) -> int:
    """A ruleset that denies everything `abi` can deny except reading beneath `readable`.

    ABI 4 adds TCP bind and connect; ABI 6 adds abstract sockets and signals to other domains.
    """
    rights = (1 << _RIGHTS_OF_ABI.get(abi, 16)) - 1
    network = 3 if abi >= 4 else 0
    scope = _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if abi >= 6 else 0
    attributes = struct.pack("QQQ", rights, network, scope)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    ruleset = _call(_SYS_LANDLOCK_CREATE, attributes, len(attributes), 0)
    for path in readable:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # the interpreter works without it or fails the probe
        allowed = _READ_FILE | _READ_DIR if os.path.isdir(path) else _READ_FILE  # noqa: PTH112 (no pathlib in here)
        _call(_SYS_LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", allowed, fd), 0)
        os.close(fd)
    return ruleset


def signal_scope_ruleset(abi: int) -> int | None:
    """A ruleset that only denies signals and abstract sockets to other processes (ABI 6); None before ABI 6."""
    if abi < 6:
        return None
    return _call(_SYS_LANDLOCK_CREATE, struct.pack("QQQ", 0, 0, _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL), 24, 0)


def landlock_restriction(ruleset: int) -> SystemCall:
    return SystemCall(_SYS_LANDLOCK_RESTRICT, ruleset, 0)


def no_new_privileges() -> None:
    _call(_SYS_PRCTL[os.uname().machine], _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def not_dumpable() -> None:
    """Hides /proc/PID of this process and its children from other processes of the same user."""
    _call(_SYS_PRCTL[os.uname().machine], _PR_SET_DUMPABLE, 0, 0, 0, 0)


def death_with_parent() -> SystemCall:
    """The call by which a process asks to be killed when its parent dies."""
    return SystemCall(_SYS_PRCTL[os.uname().machine], _PR_SET_PDEATHSIG, 9, 0, 0, 0)


def drop_capabilities() -> None:
    """Drops all capabilities, so that even root can neither raise hard limits nor bypass file permissions."""
    header, nothing = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _call(_SYS_CAPSET[os.uname().machine], header, nothing)


class CpuTimer:
    """Sends this process a signal after a given amount of CPU time.

    RLIMIT_CPU and setitimer count whole ticks and so overcount on a busy virtual machine; a timer on the process clock
    counts what `wait4` reports. A program could stop the timer, so RLIMIT_CPU backs it up.
    """

    def __init__(self, signal_number: int) -> None:
        create, self._settime = _SYS_TIMER[os.uname().machine]
        event = ctypes.create_string_buffer(struct.pack("Pii48x", 0, signal_number, 0))
        self._id = ctypes.c_int(0)
        self.create = SystemCall(create, _CLOCK_PROCESS_CPUTIME, event, ctypes.byref(self._id))
        """Must be called in the timed process itself: a fork does not inherit timers."""

    def setting(self, seconds: float) -> SystemCall:
        """The call that starts the timer with `seconds` of CPU time; 0 stops it."""
        whole = int(seconds)
        value = struct.pack("qqqq", 0, 0, whole, int((seconds - whole) * 1e9))
        return SystemCall(self._settime, self._id, 0, ctypes.create_string_buffer(value, len(value)), None)


class SeccompFilter:
    """A compiled filter, prepared so that installing it in a child is one system call.

    pid_placeholder: a value in the filter that is replaced by the installing process's pid. flags: of the system call.
    """

    class _Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))

    def __init__(self, bpf: bytes, pid_placeholder: int | None = None, flags: int = 0) -> None:
        self._code = ctypes.create_string_buffer(bpf, len(bpf))
        self._program = self._Program(len(bpf) // 8, ctypes.addressof(self._code))
        offsets = [
            index * 8 + 4 for index, (*_, k) in enumerate(struct.iter_unpack("HBBI", bpf)) if k == pid_placeholder
        ]
        self._pid_offsets = offsets
        self._install = SystemCall(_SYS_SECCOMP[os.uname().machine], 1, flags, ctypes.byref(self._program))

    def install(self) -> int:
        for offset in self._pid_offsets:
            struct.pack_into("I", self._code, offset, os.getpid())
        return self._install()


class ThreadGate:
    """Bounds the number of threads that a run may start: the kernel asks the server before each one.

    No resource limit counts only the threads of one process. fd: receives the kernel's requests; -1 if the kernel does
    not ask (before Linux 5.5, or in a container whose own supervisor is asked instead).
    """

    def __init__(self, bpf: bytes) -> None:
        self.started, self.fd = 0, -1
        if kernel_version() < _FIRST_WITH_CONTINUE:  # from 5.0 on it asks, but does not know the answer "go on"
            return
        with contextlib.suppress(OSError):
            self.fd = SeccompFilter(bpf, flags=_NEW_LISTENER).install()

    def answer(self) -> None:
        self.started += 1
        error, flags = (0, _CONTINUE) if self.started <= MOST_THREADS else (-errno.EAGAIN, 0)
        request = bytearray(_REQUEST_BYTES)
        with contextlib.suppress(OSError):  # the asking process may have died
            fcntl.ioctl(self.fd, _RECEIVE, request)
            fcntl.ioctl(self.fd, _SEND, struct.pack("=8sqiI", request[:8], 0, error, flags))


class Events:
    """Waits for a child to end or stop, and meanwhile answers the requests of `gate`. SIGCHLD must be blocked."""

    def __init__(self, child_signal: int) -> None:
        self.gate: ThreadGate | None = None
        mask = ctypes.create_string_buffer(struct.pack("Q128x", 1 << child_signal - 1))
        self._signals = _libc.signalfd(-1, mask, os.O_CLOEXEC | os.O_NONBLOCK)
        if self._signals < 0:
            raise OSError(ctypes.get_errno(), "signalfd failed")
        self._entries = ctypes.create_string_buffer(16)

    def start(self) -> None:
        """Must be called before each child."""
        fd = -1
        if self.gate:
            self.gate.started, fd = 0, self.gate.fd
        struct.pack_into("ihhihh", self._entries, 0, self._signals, _POLLIN, 0, fd, _POLLIN, 0)

    def wait(self, seconds: float) -> None:
        """Returns after an event or after `seconds`."""
        _libc.poll(self._entries, 2, math.ceil(min(seconds, _LONGEST_WAIT_S) * 1000))
        if self._entries[6] != b"\0":
            os.read(self._signals, 128)
        if self._entries[14] != b"\0" and self.gate:
            self.gate.answer()


def address_space_in_use() -> int:
    """Bytes of address space of this process, found without /proc: the smallest RLIMIT_AS that allows mapping a page.

    The kernel refuses a mapping whose new total would exceed the limit, so bisection finds the total exactly.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, 1 << 46 if hard == resource.RLIM_INFINITY else min(hard, 1 << 46)
    page, nowhere = resource.getpagesize(), ctypes.c_void_p(-1).value
    while high - low > page:
        middle = (low + high) // 2
        resource.setrlimit(resource.RLIMIT_AS, (middle, hard))
        at = _libc.mmap(None, ctypes.c_size_t(page), 0, _MAP_PRIVATE_ANONYMOUS, -1, ctypes.c_long(0))
        if at == nowhere:
            low = middle
        else:
            _libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(page))
            high = middle
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return high
