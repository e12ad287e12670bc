"""`UserError`, parts of its messages, and the operating system's errors (disk full, out of memory, …) that are reported
in the same way.

The command line prints a `UserError` as one line and exits with status 2. A full disk or too little memory can show up
anywhere, in any library: `resource_error` recognises them by what they raise. Any other exception is a bug of ours and
keeps its traceback.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_AGAIN = "and run again: finished work is kept"
_DISK = f"the disk is full; free some space {_AGAIN}"
_READ_ONLY = f"the file system is read-only; mount it for writing or work in another folder, {_AGAIN}"
_PERMISSION = f"no permission; fix the owner or the mode (`ls -l`) {_AGAIN}"
_MEMORY = "memory ran out"
LESS_MEMORY = (  # of a job of the pipeline
    "lower training.per_device_batch_size, sampling.batch_tokens or verification.workers, or run fewer jobs at once, "
    f"{_AGAIN}"
)
_OPEN_FILES = f"too many open files; raise the limit (`ulimit -n`) {_AGAIN}"

_BY_ERRNO = {
    errno.ENOSPC: _DISK,
    errno.EDQUOT: _DISK,
    errno.EROFS: _READ_ONLY,
    errno.ENOMEM: _MEMORY,
    errno.EMFILE: _OPEN_FILES,
    errno.ENFILE: _OPEN_FILES,
    errno.EFBIG: f"larger than this shell allows; raise the limit (`ulimit -f`) {_AGAIN}",
}
# Messages of libraries that raise their own errors: safetensors, SQLite, torch's files, torch's allocators.
_BY_TEXT = {
    "No space left on device": _DISK,
    "database or disk is full": _DISK,
    "disk I/O error": _DISK,  # SQLite, of the files beside its database
    "PytorchStreamWriter failed writing": _DISK,
    "Read-only file system": _READ_ONLY,
    "readonly database": _READ_ONLY,
    "out of memory": _MEMORY,
    "can't allocate memory": _MEMORY,
}


class UserError(Exception):
    """Something the user can fix: a wrong key, a missing file, a host without a sandbox. The message says how."""


def missing_extra(extra: str, library: str) -> str:
    """One line for a library that is not installed: the extra that holds it, and how to install that."""
    return f"needs the extra `{extra}` (no module {library!r}): {install(extra)}"


def install(extra: str) -> str:
    """The command that installs an extra; maxk is not on PyPI."""
    return f"pip install '.[{extra}]' in a clone of maxk"


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Imports of libraries that an extra holds: where one is missing, ModuleNotFoundError says that `what` needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "maxk").partition(".")[0]
        if library == "maxk":  # a bug of ours
            raise
        raise ModuleNotFoundError(f"{what} {missing_extra(extra, library)}", name=error.name) from error


def suggest(got: str, known: Iterable[str]) -> str:
    """The end of a message on an unknown name: the nearest known one, if one is near."""
    nearest = get_close_matches(got, list(known), n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""


def no_such_file(path: str | Path) -> str:
    """The end of a message on a file that does not exist: the one beside it that a misspelt name may mean."""
    path = Path(path)
    return f"no such file{suggest(path.name, (one.name for one in path.parent.glob(f'*{path.suffix}')))}"


def described(value: object) -> str:
    """A value with its type, shortened, for messages; `null` for None, as in the file."""
    text = repr(value)
    return "null" if value is None else f"{type(value).__name__} {text if len(text) <= 60 else text[:60] + '…'}"


def counted(number: int, noun: str, nouns: str = "") -> str:
    """A number of things: 1 dataset, 5 datasets; `nouns` where the plural is not a mere s."""
    return f"{number} {noun if number == 1 else nouns or f'{noun}s'}"


def unknown(got: object, known: Iterable[str]) -> str:
    """The end of a message on an unknown name: the nearest known one, if one is near, and all of them."""
    names = list(known)
    return f"{suggest(str(got), names)}; known: {', '.join(names) or 'none'}"


def lookup(known: Mapping[str, T], name: str, what: str) -> T:
    """`known[name]`. Raises UserError, with the nearest name and all of them, if there is none."""
    if name not in known:
        raise UserError(f"no {what} {name!r}{unknown(name, known)}")
    return known[name]


def resource_error(error: BaseException, less_memory: str = LESS_MEMORY) -> str | None:
    """One line that says which resource the machine lacked and what to do, if that is why `error` was raised.

    less_memory: what to do where memory ran out.
    """
    file, lack = _lack(error)
    said = f"{lack}; {less_memory}" if lack == _MEMORY else lack
    return f"{file}: {said}" if said and file else said


def _lack(error: BaseException) -> tuple[str | None, str | None]:
    """The file that was used, if it is known, and what the machine lacked, one of the sentences above."""
    if isinstance(error, PermissionError) and error.filename:
        return error.filename, _PERMISSION
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _BY_ERRNO:
            return seen.filename, _BY_ERRNO[seen.errno]
        if isinstance(seen, MemoryError):
            return None, _MEMORY
        for text, lack in _BY_TEXT.items():
            if text in str(seen):
                return None, lack
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return None, None
