"""Assigns the GPUs of one machine to jobs, whole or in fractions.

Jobs of one Snakemake run, of several runs, or of several users must not take more of a GPU than there is. `hold(n,
fraction)`, called before torch is used, locks that fraction of n devices and sets CUDA_VISIBLE_DEVICES to them. If the
variable was already set, as Slurm and Kubernetes do, only the devices it names are used.

The locks are the kernel's, on files named by device UUID (different jobs may number the same device differently); each
of a file's first hundred bytes stands for one percent of the device. They end with the process, however that ends, and
survive `exec`.
"""

from __future__ import annotations

import fcntl
import math
import os
import platform
import struct
import subprocess
import sys
import time
from pathlib import Path

from maxk.errors import UserError

LOCKS = Path("/tmp/maxk-gpu-locks")  # not TMPDIR, which may differ between jobs
_POLL_S = 1.0
_WHOLE = 100  # percent


def percent(fraction: float) -> int:
    """The percent of a GPU that a fraction takes: three jobs of 1/3 fit."""
    return max(1, math.floor(_WHOLE * fraction + 1e-9))


def hold(count: int, fraction: float = 1.0) -> None:
    """Locks `fraction` of each of `count` GPUs until the process ends; waits until they are free. 0 hides all GPUs.

    Raises UserError if fewer are visible, or if torch finds fewer: the job would silently run on the CPU. GPUs that
    nvidia-smi does not list (AMD's, or in a container without the tool) are left alone.
    """
    if count == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return
    if devices := visible():
        _require(count, len(devices), "nvidia-smi shows")
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # CUDA then numbers devices as nvidia-smi does
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(_take(devices, count, percent(fraction)))
    require(count)


def require(count: int) -> None:
    """Raises UserError unless torch finds `count` GPUs."""
    _require(count, _found_by_torch(), "torch finds")


def limit_memory(fraction: float) -> None:
    """Lets torch allocate at most `fraction` of this process's GPU: a job ends before it takes a neighbour's memory."""
    import torch

    torch.cuda.set_per_process_memory_fraction(fraction, int(os.environ.get("LOCAL_RANK", 0)))


def _require(count: int, found: int, source: str) -> None:
    if found < count:
        raise UserError(
            f"gpus: {count} needed, but {source} {found} on {platform.node()}; use a machine with more, fix the driver "
            "or CUDA_VISIBLE_DEVICES, or set `gpus` to the number available (0: CPU only)"
        )


def _found_by_torch() -> int:
    import torch

    return torch.cuda.device_count()


def visible() -> dict[str, str]:
    """UUIDs of the GPUs that CUDA shows, by their names in CUDA_VISIBLE_DEVICES: indices or (MIG) UUIDs.

    As in CUDA, the list ends before the first unknown name.
    """
    uuids = _uuids()
    names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(len(uuids))))).split(",")
    found: dict[str, str] = {}
    for name in names:
        if (uuid := _uuid_of(name, uuids)) is None:
            break
        found[name] = uuid
    return found


def _uuid_of(name: str, uuids: list[str]) -> str | None:
    if name.isdecimal():
        return uuids[int(name)] if int(name) < len(uuids) else None
    if name.startswith("MIG-"):
        return name
    return next((uuid for uuid in uuids if name and uuid.startswith(name)), None)


def _uuids() -> list[str]:
    """UUIDs of the GPUs of this machine (or container, or Slurm job), in the order of their indices."""
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except FileNotFoundError:
        return []
    except subprocess.TimeoutExpired:
        raise UserError("nvidia-smi does not respond; check the GPU driver of this machine") from None
    return done.stdout.split() if done.returncode == 0 else []


def _take(devices: dict[str, str], count: int, size: int) -> list[str]:
    """Names of `count` devices of which `size` percent are locked from now on.

    A waiting job holds the queue, so a job that needs every GPU is not starved by jobs that need one.
    """
    queue = _open("queue")
    fcntl.flock(queue, fcntl.LOCK_EX)
    taken: list[str] = []
    _take_free(devices, count, size, taken)
    if len(taken) < count:
        wanted = str(count) if size == _WHOLE else f"{size} % of {count}"
        print(f"waiting for {wanted} of {len(devices)} GPUs; other jobs hold them", file=sys.stderr, flush=True)
    while len(taken) < count:
        time.sleep(_POLL_S)
        _take_free(devices, count, size, taken)
    os.close(queue)
    return sorted(taken, key=list(devices).index)


def _take_free(devices: dict[str, str], count: int, size: int, taken: list[str]) -> None:
    """Adds devices to `taken` until there are `count`, those with most room first."""
    for name, uuid in sorted(devices.items(), key=lambda one: -_room(one[1])):
        if len(taken) < count and name not in taken and _lock(uuid, size):
            taken.append(name)


def _room(uuid: str) -> int:
    """Percents of a device that no job holds. (Only the job that holds the queue asks or locks.)"""
    descriptor = _open(uuid)
    try:
        return sum(_lock_percent(descriptor, number) for number in range(_WHOLE))
    finally:
        os.close(descriptor)


def _lock(uuid: str, size: int) -> bool:
    """Whether `size` percents were free, next to each other or not; then this process holds them until it ends."""
    descriptor, locked = _open(uuid), 0
    for number in range(_WHOLE):
        locked += _lock_percent(descriptor, number)
        if locked == size:
            os.set_inheritable(descriptor, True)  # for torchrun, which replaces this process
            return True
    os.close(descriptor)
    return False


def _lock_percent(descriptor: int, number: int) -> bool:
    # struct flock. These locks belong to the open file, as flock's do, and not to the process.
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
    except BlockingIOError:
        return False
    return True


def _open(name: str) -> int:
    """A descriptor of a lock file, which any user of the machine may create and lock."""
    umask = os.umask(0)
    try:
        LOCKS.mkdir(mode=0o777, exist_ok=True)
        return os.open(LOCKS / name, os.O_RDWR | os.O_CREAT, 0o666)
    finally:
        os.umask(umask)
