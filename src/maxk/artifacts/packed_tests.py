"""LiveCodeBench's packed columns of tests: base64 of zlib of a pickle of one string of JSON.

A pickle can run code when it is read, so the unpickler here finds no class or function: a pickle that needs one is
refused. Standard library only: `maxk grade` reads these columns too.
"""

from __future__ import annotations

import base64
import io
import pickle
import zlib
from typing import NoReturn

MAX_DECODED_BYTES = 2 * 2**30  # of one row's tests; a longer stream is damage or an attack
ERRORS = (ValueError, EOFError, pickle.UnpicklingError, zlib.error)
"""What `unpack` raises."""


class _TextOnly(pickle.Unpickler):
    """Reads a pickle of plain values; any import, which is how a pickle runs code, is an error."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, but only text is admitted")


def unpack(column: str) -> str:
    """The text in a packed column. Raises one of `ERRORS`."""
    stream = zlib.decompressobj()
    packed = stream.decompress(base64.b64decode(column.encode(), validate=True), MAX_DECODED_BYTES)
    if stream.unconsumed_tail:
        raise ValueError(f"longer than {MAX_DECODED_BYTES} bytes")
    text = _TextOnly(io.BytesIO(packed)).load()
    if not isinstance(text, str):
        raise ValueError(f"expected text, got {type(text).__name__}")
    return text
