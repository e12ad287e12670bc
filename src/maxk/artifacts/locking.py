"""Kernel locks of open files: they end with the process that holds them, however that ends. Standard library only."""

from __future__ import annotations

import errno
import fcntl
from typing import IO, Any


def flock(file: IO[Any], how: int) -> None:
    """Takes a kernel lock; does nothing on a file system that has none.

    Raises BlockingIOError if `how` holds LOCK_NB and another process has the lock.
    """
    try:
        fcntl.flock(file, how)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
