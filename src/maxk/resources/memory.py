"""Main memory that a job asks for, in MB: what a scheduler kills it beyond.

    memory.prepare(config, "livecodebench")

Two things are large: a benchmark's tests and a model's weights. How often a stage holds them was measured on the CPU
(`python benchmarks/memory.py`); how large tests are is an estimate by source, and how large a model is stands in the
configuration (`base.parameters`). What training on GPUs keeps in main memory follows from what TRL, transformers and
accelerate do (docs/scale.md). Single jobs are corrected by Snakemake's `--set-resources prepare:mem_mb=…`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from maxk.config import Architecture, Config, HubBase, Training
from maxk.training import accelerate_config
from maxk.training.accelerate_config import Sharding

PROCESS = 4_000  # libraries, and whatever is small
# Copies of a dataset's tests (`tests_mb` of its class) that a stage holds at its peak: 0.9 measured by
# benchmarks/memory.py, for text of one byte per character; text beyond Latin-1 takes two.
COPIES = 1.5
BYTES_16, BYTES_32 = 2_000, 4_000  # MB of a billion weights
STATE = 3 * BYTES_32  # gradients and Adam's two moments; or weights and these moments, in a checkpoint


def prepare(config: Config, dataset: str) -> int:
    """All tests of a source are held, for filters compare rows."""
    return round(PROCESS + COPIES * config.datasets[dataset].tests_mb)


def verify(config: Config) -> int:
    """Tests of a shard's problems, one dataset after another; a program a worker, whose problem may allow it more."""
    return round(PROCESS + max(_tests(config, config.evaluated)) / config.sampling.shards + _programs(config))


def sample(config: Config) -> int:
    """Weights on their way to the device; vLLM's are compared with a second copy on the CPU. No test is read."""
    copies = 2 if config.sampling.backend == "vllm" else 1
    return round(2 * PROCESS + copies * _weight(config) * _billions(config))


def train(config: Config, objective: str) -> int:
    """Every process holds the tests of the training problems, and programs run beside it.

    Policy and reference are read in float32, by every process or by the first alone
    (maxk.training.accelerate_config), which also gathers weights and optimiser state for a checkpoint. Gradients and
    optimiser state stay in main memory where there is no GPU, or where the accelerate file moves them there.
    """
    training = config.training_of(objective)
    weights = _sharding(training)
    readers = 1 if weights.read_once else training.processes
    holders = 1 if weights.offloaded else 0 if config.gpus else training.processes
    if training.lora is not None:  # the reference is the policy without adapters; these are small
        billion = readers * BYTES_32 + BYTES_32
    else:
        models = 2 if training.kl_coefficient else 1
        billion = readers * models * BYTES_32 + STATE + holders * STATE
    engine = PROCESS if training.generator.backend == "vllm" and training.generator.mode == "colocate" else 0
    each = PROCESS + engine + sum(_tests(config, training.datasets)) + _programs(config)
    return round(training.processes * each + billion * _billions(config))


def _sharding(training: Training) -> Sharding:
    if training.accelerate is None or not Path(training.accelerate).is_file():  # `maxk train` says that it is missing
        return accelerate_config.WHOLE
    return accelerate_config.read(training.accelerate)


def _tests(config: Config, datasets: Sequence[str]) -> list[float]:
    return [COPIES * config.datasets[name].tests_mb for name in datasets]


def _programs(config: Config) -> int:
    return config.verification.workers * max(config.verification.memory_mb, 1_000)


def _weight(config: Config) -> int:
    whole = config.sampling.dtype == "float32" or (config.sampling.dtype == "auto" and not config.gpus)
    return BYTES_32 if whole else BYTES_16


def _billions(config: Config) -> float:
    if isinstance(config.base, HubBase):
        return config.base.parameters
    return parameters(config.base.architecture) / 1e9


def parameters(shape: Architecture) -> int:
    """Weights of the decoder that `source: pretrain` makes: tied embeddings, and layers without biases."""
    attention, mlp = 4 * shape.hidden_size**2, 3 * shape.hidden_size * shape.intermediate_size
    norms = 2 * shape.hidden_size
    return shape.hidden_size * (shape.vocabulary + 1) + shape.layers * (attention + mlp + norms)
