"""`tracking.report_to`: TRL's callbacks get the metrics, and a missing tracker is reported before any work."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tiny import config, make_trainer
from transformers import TrainerCallback
from transformers.integrations import integration_utils

from maxk import cli
from maxk.config import Config
from maxk.errors import UserError
from maxk.tracking import reporters


def with_trackers(config: Config, *names: str) -> Config:
    return config.model_copy(update={"tracking": config.tracking.model_copy(update={"report_to": names})})


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without W&B's variables, also afterwards."""
    for name in ("WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


class Tracker(TrainerCallback):
    """Stands in for transformers' callback of a tracker."""

    logged: ClassVar[list[tuple[str, str, float]]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "reward" in logs:
            Tracker.logged.append((args.project, args.run_name, logs["reward"]))


def test_training_reports_to_the_named_trackers(
    seconds: Config, letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "trackio", Tracker)
    options = reporters.arguments(with_trackers(seconds, "trackio"), "grpo/seed0")
    Tracker.logged.clear()
    trainer = make_trainer(letters_model, config(tmp_path, **options))
    trainer.train()
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    assert Tracker.logged == [("maxk-seconds", "grpo/seed0", reward) for reward in rewards]
    assert len(rewards) == 2


def test_training_reports_to_none_by_default(seconds: Config) -> None:
    assert reporters.arguments(seconds, "grpo/seed0")["report_to"] == []
    reporters.prepare(seconds)


def test_a_project_of_weights_and_biases_that_the_user_chose_stays(
    seconds: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    reporters.prepare(seconds)
    assert os.environ["WANDB_PROJECT"] == "mine"
    assert os.environ["WANDB_DIR"] == "results/seconds"


def test_a_missing_tracker_is_reported_before_any_work(
    seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reporters, "find_spec", lambda name: None)
    asked = with_trackers(seconds, "wandb")
    with pytest.raises(UserError, match=r"tracking.report_to: wandb is not installed"):
        reporters.prepare(asked)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["configure", json.dumps(asked.model_dump(mode="json"))]) == 2
    assert "pip install '.[track]' in a clone of maxk" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_space_of_trackio_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporters, "find_spec", lambda name: name)
    monkeypatch.delenv("TRACKIO_SPACE_ID", raising=False)
    assert reporters.fault("trackio") is None
    monkeypatch.setenv("TRACKIO_SPACE_ID", "me/space")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert "HF_TOKEN" in reporters.fault("trackio")[1]
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_1")
    assert reporters.fault("trackio") is None


def test_an_unknown_tracker_is_refused() -> None:
    from maxk.config import Tracking

    with pytest.raises(ValueError, match="'trackio' or 'wandb'"):
        Tracking(report_to=("wanbd",))
