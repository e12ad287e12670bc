"""What `maxk grade` and `maxk compare` cost beyond grading: reading and scoring, in CPU-seconds and in memory.

    python benchmarks/sample_files.py                  # 1,000 problems × 256 samples
    python benchmarks/sample_files.py --samples 32     # memory must not grow with this

Every problem has two different programs, so that the grader runs each once and the rest is reading. The second run
finds all verdicts there: it reads both files, compares every digest and scores. The third compares the file of verdicts
with itself (`maxk compare`). Exits with 1 if the second takes over 10 CPU-seconds.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TARGET_S = 10.0
COMMENT = "# a comment, so that it is as long as a program\n" * 9


def written(folder: Path, problems: int, samples: int) -> list[str]:
    tests = [{"stdin": f"{n}\n", "expected": f"{n}\n"} for n in range(3)]
    with (folder / "p.jsonl").open("w") as file:
        for name in range(problems):
            file.write(json.dumps({"problem_id": name, "tests": tests}) + "\n")
    with (folder / "s.jsonl").open("w") as file:
        for name in range(problems):
            for number in range(samples):
                program = (
                    f"{'# a comment as long as a program is' * 12}\nprint(int(input()) + {number % 2})  # {name}\n"
                )
                file.write(json.dumps({"problem_id": name, "program": program}) + "\n")
    return [str(folder / "p.jsonl"), str(folder / "s.jsonl")]


def run(arguments: list[str]) -> tuple[float, float, int]:
    """Wall-clock seconds, CPU seconds and peak MiB of the process and its children."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, "-m", "maxk", *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - started, cpu, after.ru_maxrss // 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=256)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["grade", *written(Path(folder), args.problems, args.samples)]
        first, again = run(arguments), run(arguments)
        verdicts = f"{folder}/s.verdicts.jsonl"
        compared = run(["compare", f"a={verdicts}", f"b={verdicts}"])
    print(f"{args.problems} problems × {args.samples} samples")
    for label, (wall, cpu, peak) in (("with grading", first), ("all graded before", again), ("compared", compared)):
        print(f"{label:18} {wall:6.1f} s, {cpu:6.1f} CPU-seconds, peak {peak} MiB")
    return int(again[1] > TARGET_S)


if __name__ == "__main__":
    sys.exit(main())
