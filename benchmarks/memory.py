"""What a stage's memory grows by for each byte of tests, and for each weight: behind `maxk.resources.memory`.

    python benchmarks/memory.py

Two synthetic LiveCodeBench sets, packed as the hub packs them (40 problems of 5 and of 15 MB of tests), go through
`maxk prepare`, `maxk verify` and the reading of `maxk sample`, each in a process of its own; samples are written here.
The slope is the growth of the peak (resident memory of the process; the grader's children have limits of their own)
over the growth of the tests. For weights, `maxk train` makes one step of decoders of 13 and of 38 million random
weights on the CPU, where policy, reference, gradients and optimiser state all stay in main memory.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from maxk import config as configuration
from maxk.artifacts import files, records
from maxk.artifacts.records import Provenance
from maxk.config import Config

ROOT = Path(__file__).parent.parent
PROBLEMS, TESTS, SIZES_MB = 40, 5, (5, 15)
LAYERS = 4, 12

# Runs a stage and prints its peak in KiB. `sample` without a model: what it reads before it loads one.
STAGE = """
import pathlib, sys
from maxk import cli, config, stages
if sys.argv[1] == "sample":
    from maxk.stages.sample import _tasks
    _tasks(config.load("results/memory/config.json"), "d", 0)
else:
    assert cli.main(sys.argv[1:] + ["--config", "results/memory/config.json"]) == 0
print(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


def write_rows(path: Path, megabytes: int) -> None:
    """A LiveCodeBench file whose tests are numbers, a million characters a line."""
    numbers = " ".join(str(random.Random(0).randrange(10**9)) for _ in range(100_000))
    block = numbers[: 10**6 // 2]
    size = megabytes * 10**6 // TESTS
    with path.open("w") as lines:
        for number in range(PROBLEMS):
            text = (f"{number} {block}\n" * (size // len(block) + 1))[:size]
            cases = [{"input": text, "output": f"{i}\n", "testtype": "stdin"} for i in range(TESTS)]
            packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)), 1)).decode()
            row = dict.fromkeys(("question_title", "platform", "contest_id", "starter_code", "difficulty"), "")
            row |= {"question_content": f"Task {number}", "question_id": str(number), "metadata": "{}"}
            lines.write(json.dumps({**row, "public_test_cases": "[]", "private_test_cases": packed}) + "\n")


def configured(folder: Path) -> Config:
    changes = {
        "name": "memory",
        "datasets": {"d": {"source": "livecodebench", "location": str(folder / "rows.jsonl"), "train": 1, "test": 39}},
        "training": {"datasets": ["d"]},
        "sampling": {"n": 1},
        "report": {"ks": [1], "headline_k": 1},
        "objectives": {},
        "tracking": {"enabled": False},
    }
    config = configuration.parse(configuration.overlay(configuration.read_yaml(ROOT / "config/config.yaml"), changes))
    files.write_text(folder / config.layout.config, config.model_dump_json())
    return config


def write_samples(folder: Path, config: Config) -> None:
    """One program a problem, which prints the first test's answer."""
    ids = [task.problem_id for task in files.read_tasks(folder / config.layout.problems("d"), "test")]
    columns = {
        "problem_id": ids,
        "sample_index": [0] * len(ids),
        "completion": ["```python\nprint(0)\n```"] * len(ids),
        "n_tokens": [1] * len(ids),
        "finish_reason": ["stop"] * len(ids),
        "entropy": [None] * len(ids),
    }
    source = Provenance("sample", config.name, config.settings("sample"))
    files.write_table(folder / config.layout.samples("base", "d", 0), columns, records.SAMPLE, source)


def peak_mb(folder: Path, *stage: str) -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", STAGE, *stage]
    done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout.split()[-1]) / 1000


def peaks(megabytes: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "rows.jsonl", megabytes)
        config = configured(folder)
        found = {"prepare": peak_mb(folder, "prepare", "d")}
        write_samples(folder, config)
        return found | {"sample": peak_mb(folder, "sample"), "verify": peak_mb(folder, "verify", "base")}


def trained(layers: int) -> tuple[float, int]:
    """Peak of a training job in MB, and the weights of its model."""
    shape = {"hidden_size": 512, "layers": layers, "heads": 8, "intermediate_size": 1376, "vocabulary": 256}
    content = configuration.overlay(
        configuration.read_yaml(ROOT / "config/config.yaml"),
        configuration.read_yaml(ROOT / "tests/configs/seconds.yaml"),
    )
    changes = {
        "name": "memory",
        "base": {"source": "pretrain", "architecture": shape, "steps": 1, "corpus": {"size": 500}, "batch_size": 8},
        "training": {"epochs": 0.25},
        "tracking": {"enabled": False},
    }
    config = configuration.parse(configuration.overlay(content, changes))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files.write_text(folder / config.layout.config, config.model_dump_json())
        for stage in (["prepare", "pocket-contests"], ["base"]):
            peak_mb(folder, *stage)
        model = folder / config.layout.root / "policies/base/model/model.safetensors"
        return peak_mb(folder, "train", "grpo", "--seed", "0"), model.stat().st_size // 4  # float32


def main() -> None:
    small, large = map(peaks, SIZES_MB)
    tests = [PROBLEMS * size for size in SIZES_MB]
    print(f"{PROBLEMS} problems, {tests[0]} and {tests[1]} MB of tests: peak memory of the process, and its slope")
    for stage in small:
        slope = (large[stage] - small[stage]) / (tests[1] - tests[0])
        print(f"{stage:8s} {small[stage]:6.0f} MB {large[stage]:6.0f} MB   {slope:5.2f} bytes a byte of tests")
    (small_mb, few), (large_mb, many) = map(trained, LAYERS)
    slope = (large_mb - small_mb) / (many - few) * 1e6
    print(f"train    {small_mb:6.0f} MB {large_mb:6.0f} MB   {slope:5.1f} bytes a weight, of {few:,} and {many:,}")


if __name__ == "__main__":
    main()
