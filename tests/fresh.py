"""A fresh interpreter; and what `pip install 'maxk[EXTRA]'` gives: a virtual environment with the wheel and what the
extra needs, nothing else.

Packages are links to those of the environment that runs the tests, so no test needs the network.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def printed(code: str) -> str:
    """What a program prints in an interpreter of its own, which has imported nothing yet."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def build_wheel(root: Path, folder: Path) -> Path:
    order = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*order, str(folder), str(root)], check=True)
    [made] = folder.glob("*.whl")
    return made


def environment(wheel: Path, folder: Path, extra: str) -> Path:
    """A virtual environment in `folder`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    order = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-deps"]
    subprocess.run([*order, str(wheel)], check=True)
    [packages] = folder.glob("lib/python3.*/site-packages")
    [maxk] = metadata.distributions(name="maxk", path=[str(packages)])
    for distribution in required(maxk, extra):
        link(distribution, packages)
    return folder


def required(maxk: metadata.Distribution, extra: str) -> list[metadata.Distribution]:
    """What an extra needs, directly or not, as pip would find it."""
    found: dict[tuple[str, str], metadata.Distribution] = {}
    waiting = [(maxk, extra)]
    while waiting:
        distribution, asked = waiting.pop()
        for requirement in requirements(distribution, asked):
            name = canonicalize_name(requirement.name)
            for needed in ("", *requirement.extras):
                if (name, needed) not in found:
                    found[name, needed] = maxk if name == "maxk" else metadata.distribution(name)
                    waiting.append((found[name, needed], needed))
    return [distribution for (name, needed), distribution in found.items() if not needed and name != "maxk"]


def requirements(distribution: metadata.Distribution, extra: str) -> Iterator[Requirement]:
    for requirement in map(Requirement, distribution.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def link(distribution: metadata.Distribution, packages: Path) -> None:
    """Links the folders and modules of an installed package."""
    for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        if not (packages / name).exists():
            (packages / name).symlink_to(Path(str(distribution.locate_file(name))))


def attempt(environment: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """How a command of the environment ended."""
    variables = {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    command = [environment / "bin" / words[0], *words[1:]]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)


def run(environment: Path, *words: str, folder: Path) -> str:
    """What a command of the environment printed."""
    done = attempt(environment, *words, folder=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
