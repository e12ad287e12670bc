"""The line that says how far a training is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from maxk.training.callbacks import ProgressLine


def test_a_training_shows_the_reward_of_the_step_it_names(capsys: pytest.CaptureFixture[str]) -> None:
    """The trainer logs a step after its end, and once more when all is done."""
    line, state = ProgressLine("train a"), SimpleNamespace(max_steps=2, global_step=0, is_world_process_zero=True)
    line.on_train_begin(None, state, None)
    for state.global_step, reward in ((1, 0.25), (2, 0.5)):
        line.on_step_end(None, state, None)
        line.on_log(None, state, None, logs={"reward": reward, "kl": 0.01})
    line.on_log(None, state, None, logs={"train_runtime": 1.0})
    line.on_train_end(None, state, None)
    assert capsys.readouterr().err.splitlines()[-1] == "train a: 2/2 in 00:00, reward 0.500, KL 0.010"
