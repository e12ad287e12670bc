"""Moves the memory of a fork server into large pages, without changing an address.

A fork copies an entry for each page of the process, and the child's end frees each of them. Linux handles the parts of
a large page (2 MiB) in one step, even where they are mapped one by one. It makes large pages of aligned memory only
(MADV_COLLAPSE, Linux ≥ 6.1), so each region is copied to aligned memory, which then takes the region's place.

The interpreter's own data must not change between the copy and the replacement. So no Python code runs between them:
both are C functions, chained by their contexts (makecontext(3)). Code does not change and is copied beforehand.

A region whose move is refused at any step stays where it is, and so do those after it.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator

_LARGE = 2 << 20
# Private mappings, as in /proc/self/maps: protection, and the smallest size worth it. Small libraries' code is not: a
# fork does not copy entries of unchanged file pages.
_PRIVATE = {"rw-p": (3, 128 << 10), "r-xp": (5, _LARGE)}
_LARGEST = 16 << 20
_NOT_MOVABLE = {"[stack]", "[vdso]"}
_PRIVATE_ANONYMOUS, _READ_WRITE = 0x22, 3  # of mmap
_MAY_MOVE_FIXED, _COLLAPSE = 3, 25  # of mremap, madvise
_LINK, _STACK = struct.Struct("Q"), struct.Struct("QiiQ")  # at offsets 8 and 16 of `ucontext_t` on 64-bit Linux
_CONTEXT_BYTES, _STACK_BYTES = 8 << 10, 64 << 10
_CONTEXTS = 4  # three calls and the caller

Call = tuple[Callable[..., int], tuple[int, ...]]


class _Memory:
    """C functions that work on memory, called with the GIL held; AttributeError if the library lacks some."""

    def __init__(self) -> None:
        self.libc = ctypes.PyDLL(None)
        for name in ("getcontext", "makecontext", "swapcontext"):
            getattr(self.libc, name)
        for name in ("mmap", "mremap", "memcpy"):
            getattr(self.libc, name).restype = ctypes.c_void_p
        self._area = self.map(_CONTEXTS * (_CONTEXT_BYTES + _STACK_BYTES))

    def map(self, size: int) -> int:
        at = self.libc.mmap(None, ctypes.c_long(size), _READ_WRITE, _PRIVATE_ANONYMOUS, -1, ctypes.c_long(0))
        if at == ctypes.c_void_p(-1).value:
            raise OSError("no memory")
        return int(at)

    def unmap(self, start: int, end: int) -> None:
        if start < end:
            self.libc.munmap(ctypes.c_long(start), ctypes.c_long(end - start))

    def aligned(self, size: int) -> int:
        """The address of new memory in large pages; raises OSError if there are none."""
        whole = -(-size // _LARGE) * _LARGE
        at = self.map(whole + _LARGE)
        start = -(-at // _LARGE) * _LARGE
        self.unmap(at, start)
        self.unmap(start + whole, at + whole + _LARGE)
        for page in range(start, start + whole, _LARGE):
            ctypes.memset(page, 0, 1)  # memory that was never touched cannot be collapsed
        if self.libc.madvise(ctypes.c_long(start), ctypes.c_long(whole), _COLLAPSE):
            self.unmap(start, start + whole)
            raise OSError("no large pages")
        self.unmap(start + size, start + whole)
        return start

    def move(self, start: int, end: int, protection: int) -> None:
        """Raises OSError if the region could not be moved; it is then as before."""
        size = end - start
        copy = self.aligned(size)
        left = ctypes.create_string_buffer(1)
        calls: list[Call] = [
            (self.libc.mremap, (copy, size, size, _MAY_MOVE_FIXED, start)),
            (self.libc.mincore, (copy, 1, ctypes.addressof(left))),  # writes only if the copy is still there
        ]
        if protection == _READ_WRITE:
            calls.insert(0, (self.libc.memcpy, (copy, start, size)))
        else:
            ctypes.memmove(copy, start, size)
        try:
            self._protect(copy, size, protection)
            self._call_in_turn(calls)
            if left.raw != b"\0":
                raise OSError("the copy could not take the region's place")
        except OSError:
            self.unmap(copy, copy + size)
            raise

    def _protect(self, at: int, size: int, protection: int) -> None:
        """Raises OSError if memory may not be made executable here, as SELinux can demand."""
        if self.libc.mprotect(ctypes.c_long(at), ctypes.c_long(size), protection):
            raise OSError("protection refused")

    def _call_in_turn(self, calls: list[Call]) -> None:
        """Makes the calls without running any Python code between them."""
        contexts = [self._area + at * _CONTEXT_BYTES for at in range(len(calls) + 1)]
        stacks = self._area + len(contexts) * _CONTEXT_BYTES
        for at, (function, arguments) in enumerate(calls):
            context = ctypes.c_void_p(contexts[at])
            self.libc.getcontext(context)
            ctypes.memmove(contexts[at] + 8, _LINK.pack(contexts[at + 1]), _LINK.size)
            stack = _STACK.pack(stacks + at * _STACK_BYTES, 0, 0, _STACK_BYTES)
            ctypes.memmove(contexts[at] + 16, stack, _STACK.size)
            words = map(ctypes.c_long, arguments)
            self.libc.makecontext(context, function, len(arguments), *words)
        self.libc.swapcontext(ctypes.c_void_p(contexts[-1]), ctypes.c_void_p(contexts[0]))

    def close(self) -> None:
        self.unmap(self._area, self._area + _CONTEXTS * (_CONTEXT_BYTES + _STACK_BYTES))


def move_to_large_pages(proc: int) -> None:
    """Moves all private memory of this process. proc: descriptor of /proc.

    Has no effect where the kernel or the C library (musl) cannot do it.
    """
    try:
        regions = list(_regions(_read(proc)))
        memory = _Memory()
    except (OSError, AttributeError):
        return
    for start, end, protection in regions:
        try:
            memory.move(start, end, protection)
        except OSError:
            break
    memory.close()


def _read(proc: int) -> str:
    with os.fdopen(os.open("self/maps", os.O_RDONLY, dir_fd=proc)) as file:
        return file.read()


def _regions(maps: str) -> Iterator[tuple[int, int, int]]:
    """Start, end and protection of the mappings to move, from the contents of /proc/self/maps."""
    for line in maps.splitlines():
        span, protection, _, _, _, *names = line.split(maxsplit=5)
        start, end = (int(address, 16) for address in span.split("-"))
        number, smallest = _PRIVATE.get(protection, (0, _LARGEST))
        if smallest <= end - start < _LARGEST and not _NOT_MOVABLE.intersection(names):
            yield start, end, number
