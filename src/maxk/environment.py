"""What a result was made with: recorded beside it, never part of its identity."""

from __future__ import annotations

import platform
import warnings
from importlib import metadata

_RECORDED = ("maxk", "torch", "transformers", "trl", "numpy", "vllm")


def quiet_libraries() -> None:
    """Keeps other libraries' bars and deprecation notes out of the progress that our stages report."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that can change a result."""
    found = {"python": platform.python_version()}
    for package in _RECORDED:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
