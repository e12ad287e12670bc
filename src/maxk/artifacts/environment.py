"""What a result was made with: recorded beside it, never part of its identity."""

from __future__ import annotations

import hashlib
import platform
import warnings
from functools import cache
from importlib import metadata
from pathlib import Path

from maxk.errors import UserError

_RECORDED = ("maxk", "torch", "transformers", "trl", "numpy", "vllm")


def quiet_libraries() -> None:
    """Keeps other libraries' bars and deprecation notes out of the progress that our stages report."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")


def require_gpus(count: int) -> None:
    """Raises UserError unless torch can use `count` GPUs: on a CPU, work meant for them would take weeks."""
    import torch

    if (found := torch.cuda.device_count()) < count:
        raise UserError(
            f"gpus: {count} in the configuration, but torch finds {found} on this machine; mend the driver or "
            "CUDA_VISIBLE_DEVICES (`nvidia-smi` shows what there is), or set gpus to what there is (0: CPU only)"
        )


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that can change a result, and the digest of our own source."""
    found = {"python": platform.python_version(), "source": source()}
    for package in _RECORDED:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def source(*parts: str) -> str:
    """Digest (16 hex digits) of the source of parts of maxk, such as "reporting"; of all of it without arguments.

    Cheap stages have it in Snakemake's params, so that edited code runs again; expensive ones record it.
    """
    package = Path(__file__).parents[1]
    places = [package / part for part in parts] or [package]
    found = [
        path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")])
    ]
    digest = hashlib.sha256()
    for path in sorted(found):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
