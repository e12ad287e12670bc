"""`mem_mb` of each rule: the limit above which a scheduler kills a job.

    memory.train(config, "grpo")

Rough sums of what is large: the tests of a benchmark, the weights of a model, the graded programs. A job that is killed
is retried with twice as much (`attempt` in the rules, `retries` in the cluster profiles); `--set-resources
train:mem_mb=…` corrects a rule for good.
"""

from __future__ import annotations

from collections.abc import Sequence

from maxk.config import Config, HubBase

PROCESS = 4_000  # Python, libraries and everything small
WEIGHTS = 4_000  # a billion weights in float32


def prepare(config: Config, dataset: str) -> int:
    """MB. All tests of the source: filters compare rows."""
    return PROCESS + _tests(config, [dataset])


def sample(config: Config) -> int:
    """MB. The weights on their way to the device; vLLM's are compared with a second copy in 16 bits."""
    return round(2 * PROCESS + WEIGHTS * _billions(config))


def verify(config: Config) -> int:
    """MB. The tests of a shard of the largest dataset, and one program per worker."""
    tests = max(_tests(config, [dataset]) for dataset in config.evaluated)
    return PROCESS + tests // config.sampling.shards + _programs(config)


def train(config: Config, objective: str) -> int:
    """MB on a node. Tests and programs in every process; once, policy, reference, gradients and moments in float32.

    Measured on the CPU: 20.6 bytes per weight (`python benchmarks/memory.py`). On GPUs the sum covers what the first
    process reads and gathers for a checkpoint; if all processes read the weights, it takes a second attempt.
    """
    training = config.training_of(objective)
    each = PROCESS + _tests(config, training.datasets) + _programs(config)
    return round(training.processes_per_node * each + 5 * WEIGHTS * _billions(config))


def _tests(config: Config, datasets: Sequence[str]) -> int:
    """Tests as a stage holds them at its peak."""
    return sum(config.datasets[name].tests_mb for name in datasets)


def _programs(config: Config) -> int:
    return config.verification.workers * max(config.verification.memory_mb, 1_000)


def _billions(config: Config) -> float:
    if isinstance(config.base, HubBase):
        return config.base.parameters
    return 0.0  # a decoder that is pretrained in the pipeline is small
