"""Recreates the environment of plain `python3 main.py`: streams, `open`, `exit`, recursion limit, thread stacks."""

from __future__ import annotations

import _sitebuiltins
import _thread
import builtins
import io
import os
import sys
import threading
import types
from typing import Any

_REAL_OPEN = io.open
_DEVICES = {"/dev/null": 2, "/dev/stderr": 2, "/dev/stdout": 1}  # writable devices and their descriptors
_INPUT = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_THREAD_STACK = 8 << 20  # plain Python's thread stack; glibc would take the main stack's limit
_LARGEST_STACK = 448 << 20  # larger thread stacks would not fit into a program's address space
_HIGHEST_LIMIT = (1 << 31) - 1

# Files of the current run that `open` finds in addition to the file system's.
source = ""
files: dict[str, bytes] = {}


def text(raw: io.BufferedReader | io.BufferedWriter, name: str) -> io.TextIOWrapper:
    """A standard stream over `raw`, as Python on Linux makes it in the C.UTF-8 locale."""
    stream = io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape", newline="\n")
    vars(raw.raw)["name"] = name
    vars(stream)["mode"] = "r" if raw.readable() else "w"  # fast-input templates ask for it
    return stream


def open_streams() -> None:
    """Opens the standard streams; like the interpreter's, they leave their descriptors open when closed."""
    sys.stdin = text(_REAL_OPEN(0, "rb", closefd=False), "<stdin>")
    sys.stdout = text(_REAL_OPEN(1, "wb", closefd=False), "<stdout>")
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout)


def install() -> None:
    """Installs the replacements; must be called once, before any program runs."""
    end = "Ctrl-D (i.e. EOF)"
    helpers = {name: _sitebuiltins.Quitter(name, end) for name in ("exit", "quit")}
    vars(builtins).update(helpers, help=_sitebuiltins._Helper())
    builtins.open = io.open = _open
    _thread.stack_size(_THREAD_STACK)
    threading.stack_size = _stack_size


def fresh_main() -> dict[str, object]:
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __file__="main.py", __annotations__={})
    sys.modules["__main__"] = main
    return main.__dict__


def depth() -> int:
    """The recursion depth of the caller plus a constant; only differences are meaningful."""
    usual = sys.getrecursionlimit()
    for limit in range(1, usual):
        try:
            sys.setrecursionlimit(limit)
        except RecursionError:
            continue
        sys.setrecursionlimit(usual)
        return limit
    return usual


def hide_depth(extra: int) -> None:
    """Gives programs, which start `extra` levels deeper than under plain Python, the same usable recursion depth."""
    put, asked = sys.setrecursionlimit, sys.getrecursionlimit()

    def setrecursionlimit(limit: int, /) -> None:
        nonlocal asked
        put(min(limit, _HIGHEST_LIMIT - extra) + extra if limit <= _HIGHEST_LIMIT else limit)
        asked = limit

    put(asked + extra)
    sys.setrecursionlimit = setrecursionlimit
    sys.getrecursionlimit = lambda: asked


def _stack_size(size: int = 0, /) -> int:
    return _thread.stack_size(min(size, _LARGEST_STACK))


def _open(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
    """`open` that also finds the files of this run, its input by name, and writable devices."""
    name = os.fspath(file) if isinstance(file, (str, os.PathLike)) else ""
    data = _contents(name) if mode.strip("bt") == "r" else None
    if data is not None:
        return io.BytesIO(data) if "b" in mode else _text_of(data, *arguments, **options)
    if name in _DEVICES and mode[:1] in ("w", "a"):
        file = os.dup(_DEVICES[name])
    return _REAL_OPEN(file, mode, *arguments, **options)


def _contents(name: str) -> bytes | None:
    if name in _INPUT:
        return os.pread(0, os.fstat(0).st_size, 0)
    return source.encode(errors="surrogatepass") if name == "main.py" else files.get(name)


def _text_of(
    data: bytes,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    **_: Any,
) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), encoding or "utf-8", errors, newline)
