"""Runs tests with the oldest and the newest versions that pyproject.toml allows: `make test-bounds`.

| environment | versions | tests |
|---|---|---|
| core | the oldest of the extra `torch` | estimators, statistics, objectives |
| oldest | the oldest of the extra `trl` | the public trainer |
| newest | the newest of the extra `trl` | all of these |

Only what pyproject.toml names is old (`--resolution lowest-direct`); the rest is as new as that allows. Environments go
to .venv-bounds and are removed when their tests pass. Needs uv, PyPI, Python 3.11 (newer ones have no wheels of the
oldest numpy) and 7 GB of disk, because the torch of PyPI brings CUDA; UV_TORCH_BACKEND=cpu takes torch from PyTorch's
own index instead.

    python requirements/bounds.py            # all three
    python requirements/bounds.py oldest     # one
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".venv-bounds"
# One module per boundary to a library; what only checks mathematics is left out.
CORE = [
    *("tests/test_estimators.py", "tests/test_statistics.py"),  # numpy
    *("tests/test_objectives.py", "tests/test_diagnostics.py"),  # torch
]
TRAINER = ["tests/training/test_maxk_trainer.py"]  # transformers, trl, accelerate, datasets
ENVIRONMENTS = {
    "core": ("torch", "lowest-direct", CORE),
    "oldest": ("trl", "lowest-direct", TRAINER),
    "newest": ("trl", "highest", [*CORE, *TRAINER]),
}
# What the tests themselves import; their ranges are those of other extras. The core meets pyarrow in tests only.
TOOLS = {"hypothesis", "pydantic", "pytest", "pyyaml", "scipy"}
TOOLS_OF = {"core": TOOLS | {"pyarrow"}, "oldest": TOOLS | {"peft"}, "newest": TOOLS | {"peft"}}
SHOWN = ("numpy", "torch", "transformers", "trl", "accelerate", "datasets")


def main(names: list[str]) -> int:
    failed = [name for name in names or ENVIRONMENTS if not passes(name)]
    print(f"failed: {', '.join(failed)}" if failed else "the ranges hold")
    return int(bool(failed))


def passes(name: str) -> bool:
    """Makes an environment and runs its tests in it."""
    extra, resolution, tests = ENVIRONMENTS[name]
    start = time.monotonic()
    python = environment(name, extra, resolution)
    installed = time.monotonic()
    print(f"{name}: {versions(python)}", flush=True)
    settings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, env=settings)
    print(f"{name}: installed in {installed - start:.0f} s, tested in {time.monotonic() - installed:.0f} s", flush=True)
    if done.returncode == 0:
        shutil.rmtree(FOLDER / name)
    return done.returncode == 0


def environment(name: str, extra: str, resolution: str) -> Path:
    """The Python of a fresh environment with an extra and the tests' tools."""
    folder = FOLDER / name
    uv("venv", "--clear", "--python", "3.11", str(folder))
    python = folder / "bin" / "python"
    with tempfile.TemporaryDirectory() as temporary:
        tools = Path(temporary, "tools.in")
        tools.write_text("\n".join(tools_of(name)))
        wanted = ["--requirements", str(ROOT / "pyproject.toml"), "--extra", extra, "--requirements", str(tools)]
        uv("pip", "install", "--python", str(python), *wanted, "--resolution", resolution)
    return python


def uv(*arguments: str) -> None:
    """`--no-config`: the constraints of `make lock` are not part of the ranges."""
    subprocess.run([os.environ.get("UV", "uv"), *arguments, "--no-config", "--quiet"], check=True)


def tools_of(name: str) -> list[str]:
    """The tests' own requirements, as pyproject.toml has them."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = [one for extra in ("pipeline", "test") for one in extras[extra]]
    return ["psutil>=7.0", *(one for one in listed if Requirement(one).name in TOOLS_OF[name])]


def versions(python: Path) -> str:
    """Installed versions of what the ranges are about."""
    code = f"""
from importlib.metadata import PackageNotFoundError, version
for name in {SHOWN}:
    try: print(name, version(name))
    except PackageNotFoundError: pass"""
    found = subprocess.run([python, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout
    return ", ".join(found.splitlines())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
