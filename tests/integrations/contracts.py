"""How other tools call the adapters: call sites and signatures as they stand in the versions named here.

A stand-in module has the names that an adapter imports, with the tool's own parameter lists; a call function does what
the tool's call site does. `make test-integrations` compares them with the real packages where PyPI has one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

VERSIONS = {
    "verl": "0.9.1",
    "skyrl": "03d74caf596391a62a53528ca9d23a51baffae3c",
    "rllm": "18c8622371845166d24a2b3246ee03bc8190ab89",
    "slime": "a51f0714179da87b1abdff81f99ae1e22034be92",
    "prime_rl": "0.8.0 (559b44772e471d1538537b8805cc77f3824a5e64)",
    "openrlhf": "0.11.2",
    "verifiers": "0.4.0",
    "inspect_ai": "0.3.285",
}


def install(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """Makes `import NAME` give a module with these members."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        install_one(monkeypatch, ".".join(parts[:depth]))
    add(monkeypatch, name, **members)


def install_one(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module = ModuleType(name)
    module.__path__ = []  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)


def add(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """The same, beside modules of the tool that are there already."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        path = ".".join(parts[:depth])
        if path not in sys.modules:
            install_one(monkeypatch, path)
    for key, value in members.items():
        monkeypatch.setattr(sys.modules[name], key, value, raising=False)


# ---- verl: verl/trainer/ppo/core_algos.py, verl/trainer/ppo/ray_trainer.py (compute_advantage)
def verl_registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[..., Any]]:
    registry: dict[str, Callable[..., Any]] = {}

    def register_adv_est(name_or_enum: str) -> Any:
        def decorator(fn: Callable[..., Any]) -> Callable[..., Any]:
            registry[name_or_enum] = fn
            return fn

        return decorator

    install(monkeypatch, "verl.trainer.ppo.core_algos", register_adv_est=register_adv_est)
    return registry


def verl_call(
    estimator: Callable[..., Any], rewards: torch.Tensor, mask: torch.Tensor, uid: list[str], config: Any
) -> Any:
    token_level_rewards = torch.zeros_like(mask)
    token_level_rewards[:, -1] = rewards
    return estimator(
        token_level_rewards=token_level_rewards,
        response_mask=mask,
        config=config,
        index=np.array(uid, dtype=object),
        reward_baselines=rewards,
    )


# ---- SkyRL: skyrl/backends/skyrl_train/utils/ppo_utils.py
def skyrl_registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[..., Any]]:
    registry: dict[str, Callable[..., Any]] = {}

    class AdvantageEstimatorRegistry:
        @classmethod
        def register(cls, name: str, func: Callable[..., Any]) -> None:
            registry[name] = func

    install(
        monkeypatch,
        "skyrl.backends.skyrl_train.utils.ppo_utils",
        AdvantageEstimatorRegistry=AdvantageEstimatorRegistry,
    )
    return registry


def skyrl_call(
    estimator: Callable[..., Any], rewards: torch.Tensor, mask: torch.Tensor, uid: list[str], **options: Any
) -> Any:
    token_level_rewards = torch.zeros_like(mask)
    token_level_rewards[:, -1] = rewards
    return estimator(
        token_level_rewards=token_level_rewards,
        response_mask=mask,
        index=np.array(uid, dtype=object),
        values=None,
        grpo_norm_by_std=True,
        gamma=1.0,
        lambd=1.0,
        config=SimpleNamespace(**{"advantage_estimator": "maxk", "use_kl_in_reward": False, **options}),
    )


# ---- rLLM: rllm/trainer/algorithms/advantage.py
def rllm_registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[..., Any]]:
    registry: dict[str, Callable[..., Any]] = {}

    def register_adv_estimator(name: str) -> Any:
        def decorator(func: Callable[..., Any]) -> Callable[..., Any]:
            registry[name] = func
            return func

        return decorator

    install(monkeypatch, "rllm.trainer.algorithms.advantage", register_adv_estimator=register_adv_estimator)
    return registry


def rllm_call(estimator: Callable[..., Any], groups: list[list[float]]) -> list[list[float]]:
    advantages_by_group, _ = estimator(
        rewards=[np.array(group) for group in groups],
        algorithm_config=SimpleNamespace(norm_adv_by_std_in_grpo=True),
        traj_groups=[SimpleNamespace(trajectories=group) for group in groups],
    )
    return [np.asarray(advantages).tolist() for advantages in advantages_by_group]


# ---- slime: slime/ray/rollout.py (_post_process_rewards), slime/utils/types.py (Sample)
class SlimeSample:
    def __init__(self, group_index: int | None, reward: float) -> None:
        self.group_index, self.reward = group_index, reward

    def get_reward_value(self, args: Any) -> float:
        return self.reward


# ---- prime-rl: src/prime_rl/orchestrator/algo/base.py, routing.py
def prime_rl_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    def iter_trainable_traces(episodes: list[Any]) -> Any:
        for episode in episodes:
            for trace in episode.traces:
                if trace.has_error or not trace.agent.trainable:
                    continue
                yield episode, trace

    def assign_advantages(trace: Any, values: float | list[float]) -> None:
        trace.advantage = values

    install(monkeypatch, "prime_rl.orchestrator.algo.base", iter_trainable_traces=iter_trainable_traces)
    routing = ModuleType("prime_rl.orchestrator.algo.routing")
    routing.assign_advantages = assign_advantages  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, routing.__name__, routing)


def prime_rl_episode(reward: float, trainable: bool = True, has_error: bool = False) -> Any:
    trace = SimpleNamespace(reward=reward, has_error=has_error, agent=SimpleNamespace(trainable=trainable))
    return SimpleNamespace(traces=[trace])


# ---- OpenRLHF: openrlhf/utils/agent.py (SingleTurnAgentExecutor)
def openrlhf_call(reward_func: Callable[..., Any], prompt: str, completion: str, label: str) -> float:
    """The reward of one completion: the query is the decoded text of both, special tokens included."""
    return reward_func([prompt + completion], [prompt], [label])["rewards"].item()
