"""The estimator in verl itself: found by the entry point, called by verl's own `compute_advantage`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo import core_algos
from verl.utils.import_utils import load_extern_object

import maxk.integrations.verl as plugin
from enumeration import leave_one_out


def test_verl_finds_the_estimator_by_the_entry_point() -> None:
    code = (
        "from verl.trainer.ppo.core_algos import get_adv_estimator_fn; print(get_adv_estimator_fn('maxk').__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "maxk.integrations.verl"


def test_the_call_site_is_the_recorded_one() -> None:
    """The keyword arguments that verl passes to every registered estimator."""
    source = Path(core_algos.__file__).with_name("ray_trainer.py").read_text()
    for passed in ('"token_level_rewards": ', '"response_mask": ', '"config": config', 'adv_kwargs["index"]'):
        assert passed in source
    assert "adv_estimator_fn(**adv_kwargs)" in source


def test_ties_of_the_best_share_the_advantage() -> None:
    """verl's own `grpo_passk` gives all zeros here."""
    rewards = [1.0, 1.0, 0.0, 0.0]
    scores = torch.zeros(4, 3)
    scores[:, -1] = torch.tensor(rewards)
    config = OmegaConf.create({"adv_estimator": "maxk", "maxk": {"type": "bon_loo1", "k": 2}})
    OmegaConf.set_struct(config, True)
    advantages, _ = core_algos.get_adv_estimator_fn("maxk")(
        token_level_rewards=scores,
        response_mask=torch.ones(4, 3),
        index=np.array(["a"] * 4, dtype=object),
        config=config,
    )
    wanted = torch.tensor(leave_one_out(rewards, [1.0] * 4, 2))
    torch.testing.assert_close(advantages, wanted[:, None].expand(4, 3))


def test_a_config_without_the_objective() -> None:
    config = OmegaConf.create({"adv_estimator": "maxk"})
    OmegaConf.set_struct(config, True)
    with pytest.raises(ValueError, match=r"algorithm.maxk is not set"):
        plugin.advantages(torch.zeros(2, 1), torch.ones(2, 1), np.array(["a", "a"]), config=config)


@pytest.mark.parametrize("spec", [{"type": "grpo_binary"}, {"type": "bon_loo1", "k": 2, "binary": True}])
def test_the_option_of_verl_that_puts_a_kl_in_the_reward_is_seen(spec: dict[str, object]) -> None:
    config = OmegaConf.load(Path(core_algos.__file__).parents[1] / "config" / "_generated_ppo_trainer.yaml").algorithm
    config.maxk = spec
    batch = (torch.zeros(2, 1), torch.ones(2, 1), np.array(["a", "a"]))
    assert not plugin.advantages(*batch, config=config)[0].any()
    assert config.use_kl_in_reward is False
    config.use_kl_in_reward = True
    with pytest.raises(ValueError, match="needs rewards from which no KL is subtracted"):
        plugin.advantages(*batch, config=config)


def test_verl_loads_the_reward_function() -> None:
    assert load_extern_object("pkg://maxk.integrations.verl", "compute_score") is plugin.compute_score


def test_the_example_sets_options_that_verl_has(root: Path) -> None:
    """An override with a + is a key of our own; verl's configuration must have all others."""
    script = (root / "examples" / "verl_train.sh").read_text()
    options = OmegaConf.load(Path(core_algos.__file__).parents[1] / "config" / "_generated_ppo_trainer.yaml")
    overrides = re.findall(r"(?<= )(\+?[a-z_]+(?:\.[a-z_]+)+)=", script)
    assert len(overrides) == 9
    absent = [name for name in overrides if OmegaConf.select(options, name.lstrip("+"), default="absent") == "absent"]
    assert absent == ["+algorithm.maxk.type", "+algorithm.maxk.k"]
