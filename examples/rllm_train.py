"""rLLM with advantages for the best of 4 and maxk's sandbox for rewards.

    python examples/rllm_train.py rllm.algorithm.adv_estimator=maxk

The datasets "code" are yours (rLLM's DatasetRegistry); a task's metadata hold its tests.
"""

from __future__ import annotations

import hydra
import rllm
from omegaconf import DictConfig
from rllm.data.dataset import DatasetRegistry
from rllm.eval.types import EvalOutput
from rllm.harnesses.bash import BashHarness
from rllm.trainer import AgentTrainer
from rllm.types import Episode, Task

from maxk.integrations import code_reward
from maxk.integrations.rllm import register


@rllm.evaluator
def tests_passed(task: Task, episode: Episode) -> EvalOutput:
    """The fraction of tests that the program in the last reply passes."""
    reply = episode.trajectories[-1].steps[-1].output
    reward = code_reward.score(str(reply), task.metadata["tests"])["score"]
    return EvalOutput(reward=reward, is_correct=reward == 1, signals=[])


@hydra.main(config_path="pkg://rllm.trainer.config", config_name="unified", version_base=None)
def main(config: DictConfig) -> None:
    register({"type": "bon_loo1", "k": 4})
    AgentTrainer(
        backend=config.rllm.get("backend", "verl"),
        agent_flow=BashHarness(),
        evaluator=tests_passed,
        config=config,
        train_dataset=DatasetRegistry.load_dataset("code", "train"),
        val_dataset=DatasetRegistry.load_dataset("code", "test"),
    ).train()


if __name__ == "__main__":
    main()
