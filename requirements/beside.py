"""Resolves maxk[trl] beside other tools and prints the table of docs/installation.md: `make beside` (needs uv, PyPI).

Exit status 1 if a tool falls below the version that it resolves to by itself: then a range in pyproject.toml excludes
what the tool needs. Nothing is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
TOOLS = ("verl", "openrlhf", "vllm", "inspect-ai", "verifiers", "trl")
SHOWN = ("transformers", "torch", "numpy")
TARGET = ("--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_28")


def main() -> int:
    held_back = []
    print(f"| beside | tool | {' | '.join(SHOWN)} |", "|---" * (2 + len(SHOWN)) + "|", sep="\n")
    for tool in TOOLS:
        beside, alone = resolved(tool, f"maxk[trl] @ {ROOT.as_uri()}"), resolved(tool)
        print(f"| `{tool}` | {' | '.join([beside[tool], *(beside.get(name, '') for name in SHOWN)])} |", flush=True)
        if beside[tool] != alone[tool]:
            held_back.append(f"{tool}: {beside[tool]} beside maxk[trl], {alone[tool]} alone")
    print(*held_back, sep="\n", file=sys.stderr)
    return int(bool(held_back))


def resolved(*requirements: str) -> dict[str, str]:
    """Versions by package. `--no-config`: the constraints of maxk's own locks do not bind those who install it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "requirements.in")
        source.write_text("\n".join(requirements))
        command = [os.environ.get("UV", "uv"), "pip", "compile", str(source), *TARGET]
        command += ["--no-config", "--no-annotate", "--no-header", "--quiet"]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    pins = [line.split(";")[0].strip().split("==") for line in lines if "==" in line]
    return {canonicalize_name(name): version for name, version in pins}


if __name__ == "__main__":
    sys.exit(main())
