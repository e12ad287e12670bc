"""The one error users are meant to see, and what of the machine's own errors is one of them.

A `UserError` is something the user can mend: a wrong key, a missing file, a host without a sandbox. The command line
prints its message as one line and exits with status 2. A full disk or too little memory can strike anywhere, in any
library: `lack` knows them by what they raise, `refusal` by trying. Anything else is a bug of ours and keeps its
traceback.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_AGAIN = "and run again: what is finished stays"
_DISK = f"the disk is full; free some space {_AGAIN}"
_READ_ONLY = f"the file system is read-only; mount it for writing or work in another folder, {_AGAIN}"
_PERMISSION = f"no permission; mend the owner or the mode (`ls -l`) {_AGAIN}"
_MEMORY = (
    "memory ran out; lower training.per_device_batch_size, sampling.batch_tokens or verification.workers, "
    f"or run fewer jobs at once, {_AGAIN}"
)
_OPEN_FILES = f"too many open files; raise the limit (`ulimit -n`) {_AGAIN}"

_BY_ERRNO = {
    errno.ENOSPC: _DISK,
    errno.EDQUOT: _DISK,
    errno.EROFS: _READ_ONLY,
    errno.ENOMEM: _MEMORY,
    errno.EMFILE: _OPEN_FILES,
    errno.ENFILE: _OPEN_FILES,
}
# What libraries with their own errors say: safetensors, SQLite, torch's files, torch's allocators.
_BY_TEXT = {
    "No space left on device": _DISK,
    "database or disk is full": _DISK,
    "PytorchStreamWriter failed writing": _DISK,
    "Read-only file system": _READ_ONLY,
    "out of memory": _MEMORY,
    "can't allocate memory": _MEMORY,
}


class UserError(Exception):
    """A fault in what the user gave or has; the message names the thing and what to do about it."""


def lack(error: BaseException) -> str | None:
    """What the machine lacked, if that is why `error` was raised, and the mend, in one line; else None."""
    if isinstance(error, PermissionError) and error.filename:
        return f"{error.filename}: {_PERMISSION}"
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _BY_ERRNO:
            return f"{seen.filename}: {_BY_ERRNO[seen.errno]}" if seen.filename else _BY_ERRNO[seen.errno]
        if isinstance(seen, MemoryError):
            return _MEMORY
        for text, mend in _BY_TEXT.items():
            if text in str(seen):
                return mend
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return None


_TRIAL_BYTES = 2**16  # SQLite's first files are that large


def refusal(folder: str | Path) -> str | None:
    """Why nothing can be written in a folder that exists, and the mend, in one line; None where it can.

    Found by trying: SQLite says no more than "disk I/O error", Snakemake names files instead of reasons.
    """
    trial = Path(folder, f".trial-{os.getpid()}")
    try:
        try:
            with trial.open("wb") as handle:
                handle.write(bytes(_TRIAL_BYTES))
        finally:
            trial.unlink(missing_ok=True)
    except OSError as error:
        return lack(OSError(error.errno, error.strerror, str(folder)))
    return None
