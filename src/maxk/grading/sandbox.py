"""Isolation tiers: how a fork server is started, and which tier this machine can give (docs/grader.md, "Tiers").

"auto" takes the first that starts *and* withstands a few real attacks (`probe.py`). Nothing weaker is ever used without
being asked for by name.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import importlib.util
import marshal
import math
import os
import resource
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from maxk.errors import UserError
from maxk.grading import seccomp
from maxk.grading.confined.wire import READY
from maxk.grading.verdicts import Limits

TIERS = ("bubblewrap", "landlock", "seccomp")
OFF = "off"
CHOICES = ("auto", *TIERS, OFF)
START_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 5.0


_CONFINED = Path(__file__).with_name("confined")
_MAIN_STACK_KIB = 512 << 10
_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "LD_BIND_NOW": "1",
    "PYTHONHASHSEED": "0",
    "LANG": "C.UTF-8",
}
# Imported before forking, so that programs need not import them. Few on purpose: their pages are copied.
_PRELOAD = """
    sys os io math cmath time re string operator itertools functools collections heapq bisect copy random decimal
    fractions statistics json typing dataclasses enum abc array datetime threading queue types numbers contextlib
    resource atexit
""".split()
# Without a file system nothing can be imported later.
_PRELOAD_WITHOUT_FILES = """
    argparse ast asyncio base64 binascii calendar cProfile codecs colorsys concurrent.futures.thread csv ctypes
    difflib dis encodings.idna errno fileinput getopt gettext hashlib hmac html inspect ipaddress keyword
    linecache locale logging mmap multiprocessing pathlib pickle pprint profile pstats reprlib sched secrets
    select selectors shlex shutil signal site socket stat struct subprocess tempfile textwrap timeit token
    tokenize traceback unicodedata unittest uuid warnings weakref zlib zoneinfo collections.abc graphlib
    contextvars _strptime doctest
""".split()


_ENOUGH = {  # by ulimit's letter
    "n": ("NOFILE", 64),
    "u": ("NPROC", 16),
    "i": ("SIGPENDING", 64),
    "v": ("AS", 1 << 30),
    "f": ("FSIZE", 1 << 20),
}
_ADDRESS_SPACE = 640 << 20  # of the interpreter, and of a program's stacks, beside its memory limit
_ENOUGH_PIDS = 16
_CGROUPS = Path("/sys/fs/cgroup")


class SandboxUnavailable(UserError):
    """No tier works on this machine; the message says why and what to do."""


class StartError(UserError):
    """A fork server did not start; the message has the last line that it printed."""


def low_limits() -> str:
    """Limits of this process that may keep grading processes from starting or forking, as the end of a message."""
    soft = {letter: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for letter, (name, _) in _ENOUGH.items()}
    low = [f"ulimit -{letter}" for letter, (_, enough) in _ENOUGH.items() if 0 <= soft[letter] < enough]
    low += [f"pids.max = {most} of {folder}" for folder, most in _pids_limits() if most < _ENOUGH_PIDS]
    return f"; too low, perhaps: {', '.join(low)}" if low else ""


@functools.cache
def require_room(limits: Limits) -> None:
    """Raises UserError if this process inherited a hard limit below what programs may use: it would decide verdicts."""
    cpu_s = math.ceil(1.5 * (2 * limits.cpu_s + limits.total)) + 2  # of a child that runs several programs
    needs = [
        ("v", "KiB", resource.RLIMIT_AS, ((limits.memory_mb << 20) + _ADDRESS_SPACE) >> 10, f"{limits.memory_mb} MB"),
        ("f", "KiB", resource.RLIMIT_FSIZE, (limits.output_bytes >> 10) + 1, f"{limits.output_bytes} bytes of output"),
        ("t", "s", resource.RLIMIT_CPU, cpu_s, f"{limits.cpu_s:g} CPU seconds"),
    ]
    for letter, unit, kind, need, allowed in needs:
        hard = resource.getrlimit(kind)[1]
        has = hard >> 10 if unit == "KiB" else hard
        if hard != resource.RLIM_INFINITY and has < need:
            raise UserError(
                f"programs may use {allowed}, for which ulimit -{letter} must be {need} {unit} or more; this shell has "
                f"{has} (hard limit): raise it, or allow programs less"
            )


def _pids_limits() -> Iterator[tuple[Path, int]]:
    """The limits on processes of this process's control groups (version 1 or 2) and their parents."""
    groups = Path("/proc/self/cgroup")
    for line in groups.read_text().splitlines() if groups.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "pids"):
            group = _CGROUPS / controllers / path.lstrip("/")
            for folder in (group, *group.parents):
                with contextlib.suppress(OSError, ValueError):  # not shown here, or "max"
                    yield folder, int((folder / "pids.max").read_text())


class ServerProcess:
    """A running fork server and the parent's end of its control socket."""

    def __init__(self, tier: str, numpy: bool = False) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket = ours
        self._stderr = os.memfd_create("stderr", os.MFD_CLOEXEC)
        try:
            self.process = subprocess.Popen(
                _command(tier, theirs.fileno(), numpy),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env={} if tier == "bubblewrap" else _ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        finally:
            theirs.close()
        # A server that has already ended has written why to its standard error, which `wait_ready` reads.
        with contextlib.suppress(BrokenPipeError, ConnectionError):
            self._send_files(lambda: memory_file([marshal.dumps(_settings(tier, numpy))]), _open_proc)

    def send(self, *contents: Iterable[bytes]) -> None:
        """Sends memory files with these contents, of any size, as one small packet."""
        self._send_files(*(functools.partial(memory_file, parts) for parts in contents))

    def _send_files(self, *makers: Callable[[], int]) -> None:
        files: list[int] = []
        try:
            for make in makers:
                files.append(make())
            socket.send_fds(self.socket, [b"j"], files)
        finally:
            for fd in files:
                os.close(fd)

    def wait_ready(self) -> None:
        """Blocks until the server accepts jobs; raises StartError with its message if it does not start."""
        self.socket.settimeout(START_TIMEOUT_S)
        try:
            answer = self.socket.recv(64)
        except OSError as error:
            answer = str(error).encode()
        self.socket.settimeout(None)
        if answer != READY:
            self.close()
            raise StartError(f"a grading process did not start ({self.last_words()})")

    def last_words(self) -> str:
        """The last line the server wrote to its standard error."""
        words = os.pread(self._stderr, 1 << 16, 0).decode(errors="replace").strip().splitlines()
        return words[-1] if words else "it ended without a message"

    def close(self) -> None:
        """Ends the server and everything it runs, and waits for it."""
        self.socket.close()  # the server ends when it sees this
        try:
            self.process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __del__(self) -> None:
        os.close(self._stderr)


def _open_proc() -> int:
    """For the server, which reads its own memory map there while it starts; the sandbox may not have /proc."""
    return os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def memory_file(parts: Iterable[bytes]) -> int:
    """A memory file that holds `parts` one after another; the caller closes it."""
    fd = os.memfd_create("job", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.writelines(parts)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _command(tier: str, control: int, numpy: bool) -> list[str]:
    options = ["-s", "-S", "-B", "-W", "ignore"]  # not -I, which ignores PYTHONHASHSEED
    modules = [*_PRELOAD, *(_PRELOAD_WITHOUT_FILES if tier == "seccomp" else []), *(["numpy"] if numpy else [])]
    paths = [str(numpy_folder())] if numpy else []
    server = [_interpreter(), *options, _entry(), str(control), ",".join(modules), *paths]
    # The main stack's limit can only be set before exec; a shell does it without forking this (threaded) process. It
    # stays as the server's parent: what it starts dies with it, while a parent *thread* that ends kills nothing.
    stack = f'ulimit -S -s {_MAIN_STACK_KIB} 2>/dev/null || ulimit -S -s "$(ulimit -H -s)"; "$@"'
    return ["/bin/sh", "-c", stack, "sh", *(_bubblewrap(numpy) if tier == "bubblewrap" else []), *server]


def _bubblewrap(numpy: bool) -> list[str]:
    program = shutil.which("bwrap")
    if program is None:
        raise StartError("the program bwrap is not installed")
    command = [program, "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    command += ["--die-with-parent", "--new-session", "--hostname", "sandbox"]
    for path in ("/lib", "/lib64"):
        if Path(path).is_symlink():
            command += ["--symlink", str(Path(path).readlink()), path]
    for path in [*_readable(numpy), _interpreter(), str(_CONFINED)]:
        if Path(path).exists() and not path.startswith("/dev/"):
            command += ["--ro-bind", path, path]
    command += ["--dev-bind", "/dev/null", "/dev/null"]
    for name, value in _ENVIRONMENT.items():
        command += ["--setenv", name, value]
    # bwrap gets an empty environment: it stays as pid 1, where programs could read it.
    return [*command, "--remount-ro", "/", "--chdir", "/", "--"]


def _settings(tier: str, numpy: bool) -> dict[str, Any]:
    confined = tier != OFF
    files = tier != "seccomp"
    return {
        "landlock": "required" if tier == "landlock" else "wanted" if tier == "bubblewrap" else "",
        # Not /dev/urandom: one read of it may take many seconds, and limits on CPU time act only between system calls.
        "readable": [*_readable(numpy), "/dev/null"],
        "server_filter": seccomp.server_filter(files) if confined else b"",
        "child_filter": seccomp.child_filter() if confined else b"",
        "thread_filter": seccomp.thread_filter() if confined else b"",
        "pid_placeholder": seccomp.PID_PLACEHOLDER,
    }


@functools.cache
def _interpreter() -> str:
    """The real interpreter, not the link a virtual environment has."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


@functools.cache
def _entry() -> str:
    """The file a server executes. Its modules are compiled here and kept: servers, which write nothing, could not."""
    for path in _CONFINED.glob("*.py"):
        importlib.machinery.SourceFileLoader(path.stem, str(path)).get_code(path.stem)
    return str(_CONFINED / "__main__.py")


@functools.cache
def numpy_folder() -> Path | None:
    """The folder numpy is installed in, if it is."""
    found = importlib.util.find_spec("numpy")
    return Path(found.origin).parent.parent if found and found.origin else None


def _readable(numpy: bool) -> list[str]:
    """What the interpreter needs to read: shared libraries, the standard library, time zones, numpy."""
    prefix = Path(sys.base_prefix)
    paths = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(prefix / "lib")]
    paths += ["/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/localtime"]
    paths += [path for path in ("/lib", "/lib64") if not Path(path).is_symlink()]
    folder = numpy_folder()
    if numpy and folder:
        paths += [str(folder / "numpy"), str(folder / "numpy.libs")]
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(path.startswith(above + "/") for above in kept):
            kept.append(path)
    return kept
