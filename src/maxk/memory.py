"""Main memory that a job asks for, in MB: what a scheduler kills it beyond.

    memory.prepare(config, "livecodebench")

Two things are large: a benchmark's tests and a model's weights. How often a stage holds its tests was measured
(`python benchmarks/memory.py`); how large tests are is an estimate by source, and how large a model is stands in the
configuration (`base.parameters`). Single jobs are corrected by Snakemake's `--set-resources prepare:mem_mb=…`.
"""

from __future__ import annotations

from maxk.config import Config, HubBase

PROCESS = 4_000  # libraries, and whatever is small
# Decoded tests of all rows of a source, in MB; those that are not named here are small. Estimates.
TESTS = {"livecodebench": 20_000, "codeforces": 10_000, "code_contests": 10_000, "livebench": 2_000, "apps": 2_000}
# Copies of these tests that a stage holds at its peak: 0.9 measured by benchmarks/memory.py, for text of one byte a
# character; text beyond Latin-1 takes two.
COPIES = 1.5
BYTES_16, BYTES_32 = 2_000, 4_000  # MB of a billion weights


def prepare(config: Config, dataset: str) -> int:
    """All tests of a source are held, for filters compare rows."""
    return round(PROCESS + COPIES * TESTS.get(config.datasets[dataset].source, 0))


def verify(config: Config) -> int:
    """Tests of a shard's problems, one dataset after another; a program a worker, whose problem may allow it more."""
    largest = max(TESTS.get(config.datasets[name].source, 0) for name in config.evaluated)
    workers = config.verification.workers * max(config.verification.memory_mb, 1_000)
    return round(PROCESS + COPIES * largest / config.sampling.shards + workers)


def sample(config: Config) -> int:
    """Weights on their way to the device; vLLM's are compared with a second copy on the CPU. No test is read."""
    copies = 2 if config.sampling.backend == "vllm" else 1
    return round(2 * PROCESS + copies * _weight(config) * _billions(config))


def _weight(config: Config) -> int:
    whole = config.sampling.dtype == "float32" or (config.sampling.dtype == "auto" and not config.gpus)
    return BYTES_32 if whole else BYTES_16


def _billions(config: Config) -> float:
    return config.base.parameters if isinstance(config.base, HubBase) else 0
