"""Assigns the GPUs of one machine, each to one job at a time.

Jobs of one Snakemake run, of several runs, or of several users must not share a GPU. `hold(n)`, called before torch is
used, locks n free devices and sets CUDA_VISIBLE_DEVICES to them. If the variable was already set, as Slurm and
Kubernetes do, only the devices it names are used.

The locks are the kernel's, on files named by device UUID (different jobs may number the same device differently). They
end with the process, however that ends, and survive `exec`.
"""

from __future__ import annotations

import fcntl
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from maxk.errors import UserError

LOCKS = Path("/tmp/maxk-gpus")  # not TMPDIR, which may differ between jobs
_POLL_S = 1.0


def hold(count: int) -> None:
    """Locks `count` GPUs until the process ends; waits until that many are free. 0 hides all GPUs.

    Raises UserError if fewer are visible, or if torch finds fewer: the job would silently run on the CPU. GPUs that
    nvidia-smi does not list (AMD's, or in a container without the tool) are left alone.
    """
    if count == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return
    if devices := visible():
        _require(count, len(devices), "nvidia-smi shows")
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # CUDA then numbers devices as nvidia-smi does
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(_take(devices, count))
    require(count)


def require(count: int) -> None:
    """Raises UserError unless torch finds `count` GPUs."""
    _require(count, _found_by_torch(), "torch finds")


def _require(count: int, found: int, source: str) -> None:
    if found < count:
        raise UserError(
            f"gpus: {count} needed, but {source} {found} on {platform.node()}; use a machine with more, fix the driver "
            "or CUDA_VISIBLE_DEVICES, or set `gpus` to what there is (0: CPU only)"
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


def _take(devices: dict[str, str], count: int) -> list[str]:
    """Names of `count` devices that are locked from now on.

    A waiting job holds the queue, so a job that needs every GPU is not starved by jobs that need one.
    """
    queue = _open("queue")
    fcntl.flock(queue, fcntl.LOCK_EX)
    taken: list[str] = []
    reported = False
    while True:
        free = (name for name, uuid in devices.items() if name not in taken and _lock(uuid))
        taken += [name for _, name in zip(range(count - len(taken)), free, strict=False)]
        if len(taken) == count:
            os.close(queue)
            return sorted(taken, key=list(devices).index)
        if not reported:
            print(f"waiting for {count} of {len(devices)} GPUs; other jobs hold them", file=sys.stderr, flush=True)
            reported = True
        time.sleep(_POLL_S)


def _lock(uuid: str) -> bool:
    """Whether the device was free; then this process holds it until it ends."""
    descriptor = _open(uuid)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    os.set_inheritable(descriptor, True)  # for torchrun, which replaces this process
    return True


def _open(name: str) -> int:
    """A descriptor of a lock file, which any user of the machine may create and lock."""
    umask = os.umask(0)
    try:
        LOCKS.mkdir(mode=0o777, exist_ok=True)
        return os.open(LOCKS / name, os.O_RDONLY | os.O_CREAT, 0o644)
    finally:
        os.umask(umask)
