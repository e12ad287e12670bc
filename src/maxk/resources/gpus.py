"""GPUs of this machine, each for one job at a time.

Jobs that are started side by side, by one Snakemake or by several people's, must not meet on a GPU. Called before torch
is used, `hold(n)` takes n free devices and lets CUDA_VISIBLE_DEVICES name just these. Where the variable was
narrowed before, as Slurm and Kubernetes do, only devices that it names are taken.

A device is held by a kernel lock on a file named by its UUID, so that jobs which number devices differently agree, and
which ends with its holder however that ends. Who waits holds the lock of the queue: first come, first served, and a job
that needs all devices is not passed for ever by those that need one. A launcher's processes hold its devices with it
(`join`): they are free when the last of them has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from maxk.errors import UserError

LOCKS = Path("/tmp/maxk-gpus")  # not TMPDIR, which may be another for every job
_POLL_S = 1.0
_held: list[int] = []  # descriptors of the locks; the kernel closes them when the process ends


def hold(count: int) -> None:
    """Takes `count` GPUs, waiting until so many are free; 0 hides all.

    Raises UserError where fewer than `count` are visible, or torch sees fewer: the job would run on the CPU, silently,
    for weeks. GPUs that only torch knows (AMD's, or in a container without nvidia-smi) are left as they are.
    """
    if count == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return
    if devices := visible():
        _require(count, len(devices), "nvidia-smi shows")
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # CUDA then numbers as nvidia-smi does
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(_take(devices, count))
    _require(count, _seen_by_torch(), "torch finds")


def _require(count: int, found: int, who: str) -> None:
    if found < count:
        raise UserError(
            f"gpus: this job needs {count}, but {who} {found} on {platform.node()}; send it where there are more, "
            "mend the driver or CUDA_VISIBLE_DEVICES, or set `gpus` to what there is (0: CPU only)"
        )


def _seen_by_torch() -> int:
    import torch

    return torch.cuda.device_count()


def join() -> None:
    """Holds the visible GPUs together with the launcher that took them."""
    for lock in visible().values():
        _held.append(_opened(lock))
        fcntl.flock(_held[-1], fcntl.LOCK_SH)


def keep_through_exec() -> None:
    """Lets a program that this process becomes by `exec` go on holding the GPUs."""
    for descriptor in _held:
        os.set_inheritable(descriptor, True)


def visible() -> dict[str, str]:
    """The GPUs that CUDA would show, by their names in CUDA_VISIBLE_DEVICES, with their UUIDs.

    As for CUDA, the list ends before its first unknown name.
    """
    uuids = _uuids()
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return {str(index): uuid for index, uuid in enumerate(uuids)}
    found: dict[str, str] = {}
    for name in (part.strip() for part in names.split(",")):
        uuid = _uuid_of(name, uuids)
        if uuid is None:
            break
        found[name] = uuid
    return found


def _uuid_of(name: str, uuids: list[str]) -> str | None:
    if name.isdecimal():
        return uuids[int(name)] if int(name) < len(uuids) else None
    if name.startswith("MIG-"):  # a part of a GPU, with a UUID of its own
        return name if uuids else None
    matching = [uuid for uuid in uuids if name and uuid.startswith(name)]
    return matching[0] if len(matching) == 1 else None


def _uuids() -> list[str]:
    """UUIDs of the machine's (or container's, or Slurm job's) GPUs in the order of their indices."""
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except FileNotFoundError:
        return []
    except subprocess.TimeoutExpired:
        raise UserError("nvidia-smi does not answer; the GPU driver of this machine needs care") from None
    return done.stdout.split() if done.returncode == 0 else []


def _take(devices: dict[str, str], count: int) -> list[str]:
    """Names of `count` devices whose locks are held from now on."""
    queue = _opened("queue")
    taken: list[str] = []
    try:
        if not _locked(queue):
            print("another job waits for GPUs; waiting behind it", file=sys.stderr, flush=True)
            fcntl.flock(queue, fcntl.LOCK_EX)
        told = False
        while True:
            for name, lock in devices.items():
                if len(taken) < count and name not in taken and _taken(lock):
                    taken.append(name)
            if len(taken) == count:
                return sorted(taken, key=list(devices).index)
            if not told:
                print(f"{count} of {len(devices)} GPUs needed; waiting for others' jobs", file=sys.stderr, flush=True)
                told = True
            time.sleep(_POLL_S)
    finally:
        os.close(queue)


def _taken(lock: str) -> bool:
    """Whether the device was free and is now ours. Shared from then on, so that a launcher's processes can join."""
    descriptor = _opened(lock)
    if not _locked(descriptor):
        os.close(descriptor)
        return False
    fcntl.flock(descriptor, fcntl.LOCK_SH)  # none can come in between: takers come one by one, through the queue
    _held.append(descriptor)
    return True


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _opened(name: str) -> int:
    """A descriptor of the lock file, which users share: any may make it, and reading is enough to lock it."""
    with contextlib.suppress(FileExistsError):
        LOCKS.mkdir()
        LOCKS.chmod(0o1777)
    path = LOCKS / name
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.fchmod(descriptor, 0o644)  # whatever the umask
        os.close(descriptor)
    return os.open(path, os.O_RDONLY)
