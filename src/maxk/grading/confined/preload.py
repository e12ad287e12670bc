"""Imports a fork server's modules for its programs, before its own code, and compacts its memory layout.

A fork shares all memory until one side writes to a page, and merely using an object writes to it, so objects that are
used together should share pages. A fork also copies every memory map of the process, and each library has five.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import struct
import sys

_PAGE, _LOADED, _WRITABLE = 4096, 1, 2  # type and flag of an ELF segment
_LINK, _HEADER, _SEGMENT = struct.Struct("4Q"), struct.Struct("32xQ14xHH6x"), struct.Struct("IIQQQQQQ")
_FRESH_BYTES = 4096  # objects adjacent over this many bytes can only be in fresh memory
_OF_THE_SERVER = ("errno", "fcntl", "marshal", "resource", "signal", "_sitebuiltins")


def preload(modules: list[str], paths: list[str]) -> list[bytes]:
    """Imports modules, also from `paths`. The caller must keep the result alive."""
    sys.path.extend(paths)
    for name in [*modules, *_OF_THE_SERVER]:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # not in this Python; a program that imports it fails as it would anywhere
    gc.collect()
    return fill_holes()


def fill_holes() -> list[bytes]:
    """Fills the small free gaps that imports left across the heap. The caller must keep the result alive.

    Later allocations then share fresh pages. All gaps of a size are full when new objects are adjacent in memory.
    """
    kept = []
    for size in range(16, 513, 16):
        length, run, last = size - sys.getsizeof(b""), 0, 0
        while length >= 0 and run < _FRESH_BYTES // size:
            kept.append(bytes(length))
            run = run + 1 if id(kept[-1]) - last == size else 0
            last = id(kept[-1])
    return kept


def join_maps() -> None:
    """Gives each library's maps two protections instead of four, so that the kernel merges five maps into two.

    This makes more of the process's own memory executable or writable, which a program could do itself anyway.
    """
    libc = ctypes.CDLL(None)
    link = libc._handle if sys.maxsize > 1 << 32 else 0  # the first `struct link_map` of <link.h>
    while link:
        base, name, _, link = _LINK.unpack(ctypes.string_at(link, _LINK.size))
        if not base or not ctypes.string_at(name).startswith(b"/"):
            continue  # the program itself, or the kernel's
        at, size, count = _HEADER.unpack(ctypes.string_at(base, _HEADER.size))
        headers = ctypes.string_at(base + at, size * count)
        loaded = [segment for segment in _SEGMENT.iter_unpack(headers) if segment[0] == _LOADED]
        for flag, protection in ((0, 5), (_WRITABLE, 3)):  # read and execute, read and write
            part = [segment for segment in loaded if segment[1] & _WRITABLE == flag]
            if part:
                start, end = part[0][3] // _PAGE * _PAGE, part[-1][3] + part[-1][6]
                libc.mprotect(ctypes.c_void_p(base + start), ctypes.c_size_t(end - start), protection)
