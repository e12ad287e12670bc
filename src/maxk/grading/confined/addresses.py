"""Ends a process in which several executions follow one another when it is about to show an address.

Where a new object lies tells what earlier executions left in the allocator: which one of a process this is, or what an
earlier one chose to tell it. Addresses are seen in two ways: in the text of objects without a text of their own
(`<function f at 0x7f…>`) and in hashes by identity, which order sets; the hash of a NaN is one of these. So the
functions behind them are replaced, in the type objects, by C's `abort`. The server then runs what is left of the job in
processes of their own, where every execution starts from the same memory.

Offsets are those of `PyTypeObject` (CPython, Include/cpython/object.h); `_check_layout` tries them.
"""

from __future__ import annotations

import ctypes
import decimal
import os
import struct
import types

from maxk.grading.confined.confinement import SystemCall

_SYS_PREADV = {"x86_64": 295, "aarch64": 69, "riscv64": 69, "ppc64le": 320, "s390x": 328}
_REPR, _HASH = 11, 15  # of tp_repr and tp_hash, in words
_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8
_MODULES = frozenset(  # of types of which programs can hold a value
    "builtins itertools functools _collections operator re _io io array decimal json.decoder statistics".split()
)
_SHOWN = (types.FunctionType, types.BuiltinFunctionType, types.GeneratorType)
_HASHED = (types.MethodType, types.BuiltinFunctionType, float, complex, decimal.Decimal)
_CONSTANT = (type, type(None), type(...), type(NotImplemented))  # what has these types lies where it lay at the start


def _slot(kind: type, index: int) -> ctypes.c_void_p:
    return ctypes.c_void_p.from_address(id(kind) + index * ctypes.sizeof(ctypes.c_void_p))


def _types() -> list[type]:
    """Types of those modules made in C, and exceptions; their other classes have hashes and texts of their own.

    Plain objects are only sentinels of the library, made before any program.
    """
    found, left = {object}, [object]
    while left:
        new = set(type.__subclasses__(left.pop())) - found
        found |= new
        left += new
    found = {kind for kind in found if kind.__module__ in _MODULES and not issubclass(kind, (*_CONSTANT, Warning))}
    return [kind for kind in found - {object} if _made_in_c(kind) or issubclass(kind, BaseException)]


def _made_in_c(kind: type) -> bool:
    return not kind.__flags__ & _HEAP_TYPE or bool(kind.__flags__ & _IMMUTABLE_TYPE)


def _revealing() -> list[ctypes.c_void_p]:
    by_identity = {index: _slot(object, index).value for index in (_REPR, _HASH)}
    slots = [_slot(kind, _REPR) for kind in _SHOWN] + [_slot(kind, _HASH) for kind in _HASHED]
    for kind in _types():
        slots += [_slot(kind, index) for index, value in by_identity.items() if _slot(kind, index).value == value]
    return slots


def _check_layout() -> None:
    class Shown:
        def __repr__(self) -> str:
            return ""

    class Hashed:
        def __hash__(self) -> int:
            return 0

    own = [
        [_slot(kind, index).value != _slot(object, index).value for index in (_REPR, _HASH)] for kind in (Shown, Hashed)
    ]
    if own != [[True, False], [False, True]]:
        raise OSError("the types of this Python are not laid out as those of CPython are known to be")


class Addresses:
    """Made ready in the server, hidden in a child: by one system call, which scatters a file over all slots."""

    class _Piece(ctypes.Structure):
        _fields_ = (("address", ctypes.c_void_p), ("length", ctypes.c_size_t))  # struct iovec

    def __init__(self) -> None:
        _check_layout()
        slots = _revealing()
        abort = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
        file = os.memfd_create("addresses", os.MFD_CLOEXEC)
        os.write(file, struct.pack(f"{len(slots)}P", *[abort] * len(slots)))
        pieces = (self._Piece * len(slots))(*[self._Piece(ctypes.addressof(s), ctypes.sizeof(s)) for s in slots])
        self._scatter = SystemCall(_SYS_PREADV[os.uname().machine], file, pieces, len(slots), 0, 0)

    def hide(self) -> None:
        """In a new child, which must still have the server's descriptors."""
        self._scatter()
