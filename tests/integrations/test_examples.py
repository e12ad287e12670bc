"""Each file of examples/ runs, with stand-ins for the tools that are not installed (tests/integrations/contracts.py).

`tools/` runs those of verl, Inspect and verifiers in the tools themselves, tests/training/test_example.py that of TRL.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import contracts
import numpy as np
import pytest
import yaml

from enumeration import leave_one_out
from maxk.integrations import code_reward, slime
from maxk.integrations.groups import on_policy_objective

REWARDS = [1.0, 1.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0]
BEST_OF_4 = leave_one_out(REWARDS, [1.0] * 8, 4)
ANSWER = "```python\nprint(sum(map(int, input().split())))\n```"


@pytest.fixture(scope="module", autouse=True)
def grader() -> Any:
    code_reward.configure(workers=1)
    yield
    code_reward.shared().close()


@pytest.fixture
def examples(root: Path) -> Path:
    return root / "examples"


def test_the_guide_links_every_example(root: Path, examples: Path) -> None:
    guide = (root / "docs" / "integrations.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"`examples/(\w+\.\w+)`", guide)) == sorted(
        p.name for p in examples.iterdir() if p.suffix in (".py", ".sh")
    )


# ---- commands
RECORD = f"""#!{sys.executable}
import json, os, sys
if sys.argv[1] == "-c":
    os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
open(os.environ["RECORD"], "w").write(json.dumps(sys.argv[1:]))
"""


def called(script: Path, folder: Path, *arguments: str) -> list[str]:
    """What a script passes to `python`; `python -c` runs."""
    stand_in, record = folder / "python", folder / "record.json"
    stand_in.write_text(RECORD)
    stand_in.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "RECORD": str(record), "TMPDIR": str(folder)}
    subprocess.run(["bash", str(script), *arguments], check=True, env=environment, cwd=folder)
    return json.loads(record.read_text())


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_verl_gets_a_usable_objective(examples: Path, tmp_path: Path) -> None:
    words = called(examples / "verl_train.sh", tmp_path, "train.parquet", "test.parquet", "model")
    given = dict(word.lstrip("+").split("=", 1) for word in words[2:])
    assert given["algorithm.adv_estimator"] == "maxk"
    spec = {"type": given["algorithm.maxk.type"], "k": int(given["algorithm.maxk.k"])}
    assert on_policy_objective(spec, "verl").ks == (4,)
    assert spec["k"] < int(given["actor_rollout_ref.rollout.n"])


def test_slime_gets_the_advantages(examples: Path, tmp_path: Path) -> None:
    words = called(examples / "slime_train.sh", tmp_path, "--prompt-data", "x")
    assert words[-2:] == ["--prompt-data", "x"]
    module, _, function = option(words, "--custom-reward-post-process-path").rpartition(".")
    assert getattr(importlib.import_module(module), function) is slime.post_process_rewards
    args = SimpleNamespace(**yaml.safe_load(Path(option(words, "--custom-config-path")).read_text()))
    _, advantages = slime.post_process_rewards(args, [contracts.SlimeSample(0, reward) for reward in REWARDS])
    np.testing.assert_allclose(advantages, BEST_OF_4, atol=1e-12)


def test_openrlhf_gets_a_file_with_its_function(examples: Path, tmp_path: Path) -> None:
    words = called(examples / "openrlhf_train.sh", tmp_path, "train.jsonl", "model")
    spec = importlib.util.spec_from_file_location("reward_func", option(words, "--reward.remote_url"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = json.dumps([{"stdin": "1 2\n", "expected": "3\n"}])
    assert module.reward_func(["Add." + ANSWER], ["Add."], [tests])["rewards"].tolist() == [1.0]


# ---- scripts
def test_prime_rl(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contracts.prime_rl_modules(monkeypatch)
    sys.modules["prime_rl.orchestrator.algo.base"].Algorithm = object
    algorithm = runpy.run_path(str(examples / "prime_rl_algorithm.py"))["MaxkAlgorithm"]()
    episodes = [contracts.prime_rl_episode(reward) for reward in REWARDS]
    asyncio.run(algorithm.score_group(episodes))
    np.testing.assert_allclose([episode.traces[0].advantage for episode in episodes], BEST_OF_4, atol=1e-12)


class Remote:
    """Ray's decorated functions, run in this process."""

    def __init__(self, function: Any) -> None:
        self.remote = function


def test_skyrl(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, registry = [], contracts.skyrl_registry(monkeypatch)

    class Experiment:
        def __init__(self, config: Any) -> None:
            self.config = config

        def run(self) -> None:
            trained.append((self.config, sorted(registry)))

    contracts.install(monkeypatch, "ray", remote=lambda **_: Remote, get=lambda result: result)
    config = SimpleNamespace(from_cli_overrides=lambda words: words)
    contracts.add(monkeypatch, "skyrl.train.config", SkyRLTrainConfig=config)
    contracts.add(monkeypatch, "skyrl.train.entrypoints.main_base", BasePPOExp=Experiment, validate_cfg=lambda _: None)
    contracts.add(monkeypatch, "skyrl.train.utils", initialize_ray=lambda _: None)
    monkeypatch.setattr(sys, "argv", ["train.py", "trainer.algorithm.advantage_estimator=maxk"])
    runpy.run_path(str(examples / "skyrl_train.py"), run_name="__main__")
    assert trained == [(["trainer.algorithm.advantage_estimator=maxk"], ["maxk"])]


def test_rllm(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, given = contracts.rllm_registry(monkeypatch), {}

    class Trainer:
        def __init__(self, **arguments: Any) -> None:
            given.update(arguments)

        def train(self) -> None:
            given["estimators"] = sorted(registry)

    config = SimpleNamespace(rllm={"backend": "tinker"})
    contracts.install(monkeypatch, "hydra", main=lambda **_: lambda function: lambda: function(config))
    contracts.install(monkeypatch, "omegaconf", DictConfig=SimpleNamespace)
    datasets = SimpleNamespace(load_dataset=lambda name, split: (name, split))
    contracts.add(monkeypatch, "rllm", evaluator=lambda function: function)
    contracts.add(monkeypatch, "rllm.data.dataset", DatasetRegistry=datasets)
    contracts.add(monkeypatch, "rllm.eval.types", EvalOutput=SimpleNamespace)
    contracts.add(monkeypatch, "rllm.harnesses.bash", BashHarness=object)
    contracts.add(monkeypatch, "rllm.trainer", AgentTrainer=Trainer)
    contracts.add(monkeypatch, "rllm.types", Episode=ModuleType, Task=ModuleType)
    runpy.run_path(str(examples / "rllm_train.py"), run_name="__main__")
    assert given["estimators"] == ["maxk"]
    assert given["train_dataset"] == ("code", "train")
    task = SimpleNamespace(metadata={"tests": [{"stdin": "1 2\n", "expected": "3\n"}]})
    episode = SimpleNamespace(trajectories=[SimpleNamespace(steps=[SimpleNamespace(output=ANSWER)])])
    assert given["evaluator"](task, episode).reward == 1.0
