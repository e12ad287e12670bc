"""What a fork server imports for its programs, before its own code, so that the latter lies together in memory.

A fork shares all memory until one side writes to a page, and merely using an object writes to it: what is used together
should lie together.
"""

from __future__ import annotations

import gc
import importlib
import sys

_FRESH_BYTES = 4096  # neighbours for so long can only be in fresh memory
_OF_THE_SERVER = ("ctypes", "errno", "fcntl", "marshal", "mmap", "resource", "signal", "struct", "_sitebuiltins")


def preload(modules: list[str], paths: list[str]) -> list[bytes]:
    """Imports modules, also from `paths`; the result is to be kept."""
    sys.path.extend(paths)
    for name in [*modules, *_OF_THE_SERVER]:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # not in this Python; a program importing it fails as it would anywhere
    gc.collect()
    return fill_holes()


def fill_holes() -> list[bytes]:
    """Fills the small free gaps that importing left all over the heap; the result is to be kept.

    What is allocated later then lies together on fresh pages. Gaps of one size are full when new objects follow one
    another in memory.
    """
    kept = []
    for size in range(16, 513, 16):
        length, run, last = size - sys.getsizeof(b""), 0, 0
        while length >= 0 and run < _FRESH_BYTES // size:
            kept.append(bytes(length))
            run = run + 1 if id(kept[-1]) - last == size else 0
            last = id(kept[-1])
    return kept
