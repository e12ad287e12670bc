"""Variables by which a launcher of several processes (torchrun, accelerate, mpirun) tells each its place.

A pod, a notebook or a shell can still have those of another program. PyTorch and accelerate trust them and wait
forever for processes that do not exist. A job therefore clears them, unless maxk itself has launched it.
"""

from __future__ import annotations

import os

_NAMES = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
_NAMES |= {f"{of}_{what}" for of in ("GROUP", "ROLE") for what in ("RANK", "WORLD_SIZE", "NAME")}  # torchrun's
_NAMES |= {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}  # Intel MPI's
_PREFIXES = ("PMI_", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_", "TORCHELASTIC_", "ACCELERATE_")
_LAUNCHED = "MAXK_LAUNCHED"


def launched() -> bool:
    """Whether this process is one of several that maxk has launched."""
    return _LAUNCHED in os.environ


def mark() -> None:
    """Marks the processes that this one is about to launch."""
    os.environ[_LAUNCHED] = "1"


def clear() -> None:
    """Removes the variables that another launcher has left."""
    for name in [name for name in os.environ if name in _NAMES or name.startswith(_PREFIXES)]:
        del os.environ[name]
