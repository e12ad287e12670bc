"""The system-call filters, compiled to BPF in the trusted parent.

*Server filter*: an allow-list for the fork server and all it forks. What a computing program needs is allowed, with
arguments checked where one call has both a harmless and a harmful use (opens must be read-only, `prlimit` only of
oneself, `fcntl` without signals by owner, …); anything unknown is refused with EPERM, so that libraries fall back; and
calls that only an attack makes end the process at once, which the server reports as `violation`.

*Child filter*: a short deny-list stacked on it for the process that runs a program: threads but no processes, no
signals to others, no passing of descriptors, no further memory files.

*Thread filter*: has the kernel ask the server before a child starts a thread (`confined/confinement.py`, ThreadGate).

Integer arguments are compared on their low 32 bits (`_low`), because that is all the kernel looks at: a filter that
compares 64 bits is passed by setting a high bit.
"""

from __future__ import annotations

import fcntl
import functools
import os
import struct
import tempfile
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from maxk.errors import UserError, missing_extra

PID_PLACEHOLDER = 0x5AFEC0DE  # replaced in the child filter by the child's own pid

_PLAIN = """
    read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range
    sendfile fstat newfstatat stat lstat statx fstatfs statfs access faccessat faccessat2 readlink readlinkat getdents
    getdents64 getcwd chdir fchdir umask ftruncate fsync fdatasync fadvise64
    dup dup2 dup3 pipe pipe2 poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait
    eventfd eventfd2
    munmap mremap mprotect madvise brk mincore msync mlock munlock membarrier
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack pause
    timer_create timer_settime timer_delete setitimer getitimer alarm restart_syscall
    futex set_robust_list rseq set_tid_address exit exit_group wait4 waitid
    getpid gettid getppid getpgrp getpgid getsid getuid geteuid getgid getegid getresuid getresgid getgroups
    uname sysinfo times getrusage getrlimit setrlimit getpriority
    clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time sched_yield
    getrandom recvfrom sendto recvmsg sendmsg shutdown getsockopt
    kill tgkill pidfd_open memfd_create
    seccomp landlock_restrict_self landlock_create_ruleset
""".split()

_HOSTILE = """
    execve execveat ptrace process_vm_readv process_vm_writev kcmp unshare setns mount umount2 pivot_root chroot
    move_mount open_tree fsopen fsmount mount_setattr open_by_handle_at bpf userfaultfd perf_event_open
    keyctl add_key request_key kexec_load kexec_file_load init_module finit_module delete_module
    io_uring_setup io_uring_enter io_uring_register pidfd_send_signal pidfd_getfd rt_sigqueueinfo rt_tgsigqueueinfo
    reboot swapon swapoff sethostname setdomainname settimeofday clock_settime
""".split()

_NEW_NAMESPACES = 0x7E020000  # all CLONE_NEW… flags
_CLONE_THREAD = 0x00010000
_WRITING_OPEN = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | (os.O_TMPFILE & ~os.O_DIRECTORY)
_AT_EMPTY_PATH = 0x1000
_MAP_HUGETLB = 0x40000
_O_ASYNC = 0o20000
_AF_UNIX, _SOCK_TYPE_MASK, _SOCK_STREAM = 1, 0xF, 1
_HOSTILE_FAMILIES = (2, 10, 16, 17, 40)  # INET, INET6, NETLINK, PACKET, VSOCK
_F_DUPFD_CLOEXEC = 1030
_FCNTL_COMMANDS = (
    *(fcntl.F_DUPFD, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL),
    *(_F_DUPFD_CLOEXEC, fcntl.F_ADD_SEALS, fcntl.F_GET_SEALS),
)
_IOCTLS = (0x5401, 0x5411, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# TCGETS TIOCOUTQ TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_ANSWERS = (0xC0502100, 0xC0182101)  # SECCOMP_IOCTL_NOTIF_RECV and _SEND, on a descriptor that only the server has
_PRCTLS = (1, 15, 16, 38)  # PR_SET_PDEATHSIG, PR_SET_NAME, PR_GET_NAME, PR_SET_NO_NEW_PRIVS


class _Filter:
    """A thin, readable layer over pyseccomp's rule list."""

    def __init__(self, lib: Any, default: int) -> None:
        self._lib, self._filter = lib, lib.SyscallFilter(default)
        self._filter.set_attr(lib.Attr.ACT_BADARCH, lib.KILL_PROCESS)

    def rule(self, action: int, names: Iterable[str], *arguments: Any) -> None:
        for name in names:
            if self._lib.resolve_syscall(self._lib.Arch.NATIVE, name) >= 0:  # negative: not on this architecture
                self._filter.add_rule(action, name, *arguments)

    def _low(self, index: int, mask: int, value: int) -> Any:
        return self._lib.Arg(index, self._lib.MASKED_EQ, mask & 0xFFFFFFFF, value & 0xFFFFFFFF)

    def allow(self, *names: str) -> None:
        self.rule(self._lib.ALLOW, names)

    def allow_if(self, name: str, *conditions: tuple[int, int, int]) -> None:
        """Allows `name` where every (argument index, mask, value) holds on the low 32 bits."""
        self.rule(self._lib.ALLOW, [name], *(self._low(*condition) for condition in conditions))

    def deny(self, error: int, *names: str) -> None:
        self.rule(self._lib.ERRNO(error), names)

    def kill(self, *names: str) -> None:
        self.rule(self._lib.KILL_PROCESS, names)

    def kill_if(self, name: str, *conditions: tuple[int, int, int]) -> None:
        self.rule(self._lib.KILL_PROCESS, [name], *(self._low(*condition) for condition in conditions))

    def kill_unless_equal(self, name: str, index: int, value: int) -> None:
        self.rule(self._lib.KILL_PROCESS, [name], self._lib.Arg(index, self._lib.NE, value))

    def bpf(self) -> bytes:
        with tempfile.TemporaryFile() as file:
            self._filter.export_bpf(file)
            file.seek(0)
            return file.read()


def library() -> ModuleType:
    """libseccomp for Python, which every tier needs. Raises UserError with what to install."""
    try:
        import pyseccomp
    except ModuleNotFoundError as error:
        raise UserError(missing_extra("grade", "pyseccomp")) from error
    except (ImportError, OSError, RuntimeError) as error:
        raise UserError(f"libseccomp cannot be loaded ({error}); install libseccomp2 (apt) or libseccomp") from error
    module: ModuleType = pyseccomp
    return module


@functools.cache
def server_filter(files: bool = True) -> bytes:
    """BPF of the allow-list; `files=False` (tier 3, no Landlock to confine paths) refuses every open."""
    lib = library()
    rules = _Filter(lib, lib.ERRNO(1))  # EPERM
    rules.kill(*_HOSTILE)
    plain = set(_PLAIN)
    if files:
        rules.allow_if("open", (1, _WRITING_OPEN, os.O_RDONLY))
        rules.allow_if("openat", (2, _WRITING_OPEN, os.O_RDONLY))
    else:
        plain -= set("stat lstat access faccessat faccessat2 readlink readlinkat statfs chdir newfstatat statx".split())
        rules.deny(2, "open", "openat")  # ENOENT: programs that try a file expect that there may be none
        rules.allow_if("newfstatat", (3, _AT_EMPTY_PATH, _AT_EMPTY_PATH))  # glibc's fstat
        rules.allow_if("statx", (2, _AT_EMPTY_PATH, _AT_EMPTY_PATH))
    rules.allow(*sorted(plain))
    # Reserved pages do not count as resident. On s390x the arguments are behind a pointer.
    rules.allow_if("mmap", *([] if os.uname().machine == "s390x" else [(3, _MAP_HUGETLB, 0)]))
    everything = 0xFFFFFFFF
    rules.allow_if("clone", (0, _NEW_NAMESPACES, 0))
    for bit in range(17, 31):
        if _NEW_NAMESPACES >> bit & 1:
            rules.kill_if("clone", (0, 1 << bit, 1 << bit))
    rules.allow("fork")
    rules.deny(38, "clone3", "openat2")  # ENOSYS: arguments behind a pointer cannot be checked, libc falls back
    rules.allow_if("prlimit64", (0, everything, 0))
    rules.allow_if("sched_getaffinity", (0, everything, 0))
    for command in _FCNTL_COMMANDS:
        rules.allow_if("fcntl", (1, everything, command))
    rules.allow_if("fcntl", (1, everything, fcntl.F_SETFL), (2, _O_ASYNC, 0))
    for request in (*_IOCTLS, *_ANSWERS):
        rules.allow_if("ioctl", (1, everything, request))
    for option in _PRCTLS:
        rules.allow_if("prctl", (0, everything, option))
    for family in _HOSTILE_FAMILIES:
        rules.kill_if("socket", (0, everything, family))
    # a connected stream pair inside one process is harmless and asyncio needs it; datagram pairs can address others
    rules.allow_if("socketpair", (0, everything, _AF_UNIX), (1, _SOCK_TYPE_MASK, _SOCK_STREAM))
    return rules.bpf()


@functools.cache
def child_filter() -> bytes:
    """BPF of the deny-list added in each child; `PID_PLACEHOLDER` marks the place of the child's pid."""
    lib = library()
    rules = _Filter(lib, lib.ALLOW)
    rules.kill("fork", "vfork")
    rules.kill_if("clone", (0, _CLONE_THREAD, 0))
    for name in ("kill", "tgkill"):
        rules.kill_unless_equal(name, 0, PID_PLACEHOLDER)
    rules.deny(1, "sendmsg", "recvmsg", "memfd_create", "pidfd_open", "seccomp")
    rules.deny(1, "landlock_restrict_self", "landlock_create_ruleset")
    rules.deny(1, "sendfile")  # may copy 2 GiB in one call, in which not even SIGKILL stops it
    rules.rule(lib.ERRNO(1), ["prctl"], lib.Arg(0, lib.MASKED_EQ, 0xFFFFFFFF, 1))
    filter_bytes = rules.bpf()
    if PID_PLACEHOLDER not in (k for *_, k in struct.iter_unpack("HBBI", filter_bytes)):
        raise UserError("this libseccomp compiles the child filter in a form maxk does not know")
    return filter_bytes


@functools.cache
def thread_filter() -> bytes:
    """BPF that notifies the server of each new thread."""
    lib = library()
    rules = _Filter(lib, lib.ALLOW)
    rules.rule(lib.NOTIFY, ["clone"], lib.Arg(0, lib.MASKED_EQ, _CLONE_THREAD, _CLONE_THREAD))
    return rules.bpf()
