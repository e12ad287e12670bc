"""MLflow mirrors the files: it starts before any work or not at all, and later never stops a stage."""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from maxk import files, tracking
from maxk.config import Config
from maxk.errors import UserError


@pytest.fixture
def started(seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The seconds-scale experiment with tracking started, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    # MLflow keeps one connection a URI, and the default one is relative: name each test's database in full.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    tracking.start(seconds)
    return seconds


def runs(config: Config) -> dict[str, Any]:
    """All runs by name."""
    where = files.read_json(config.layout.tracking)
    found = MlflowClient(where["uri"]).search_runs([where["experiment_id"]])
    return {run.info.run_name: run for run in found}


def test_a_stage_is_a_nested_run_with_params_metrics_data_and_artifacts(started: Config, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello")
    with tracking.stage(started, "score", policy="base") as run:
        run.params({"sampling": {"n": 16}, "seed": 0})
        run.metrics({"max_at_k": 0.5}, step=8)
        run.metrics({"max@4": 0.25, "absent": None, "undefined": math.nan})
        run.dataset("pocket-short", "results/x", "abc", context="evaluation")
        run.artifact("note.txt")
    parent, nested = runs(started)["seconds"], runs(started)["score/base"]
    assert nested.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert nested.data.tags["maxk.stage"] == "score"
    assert nested.data.tags["maxk.policy"] == "base"
    assert nested.data.params == {"sampling.n": "16", "seed": "0"}
    assert nested.data.metrics == {"max_at_k": 0.5, "max_at_4": 0.25}
    assert nested.info.status == "FINISHED"
    assert nested.inputs.dataset_inputs[0].dataset.digest == "abc"
    client = MlflowClient(files.read_json(started.layout.tracking)["uri"])
    assert client.get_metric_history(nested.info.run_id, "max_at_k")[0].step == 8
    assert [item.path for item in client.list_artifacts(nested.info.run_id)] == ["note.txt"]


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("x"), "FAILED"), (SystemExit(143), "KILLED"), (KeyboardInterrupt(), "KILLED")]
)
def test_a_run_ends_as_its_stage_does(started: Config, error: BaseException, status: str) -> None:
    with pytest.raises(type(error)), tracking.stage(started, "train", policy="grpo/seed0"):
        raise error
    assert runs(started)["train/grpo/seed0"].info.status == status


def test_a_job_that_starts_again_goes_on_in_its_run(started: Config) -> None:
    with pytest.raises(SystemExit), tracking.stage(started, "train", policy="grpo/seed0") as run:
        run.metrics({"reward": 0.1}, step=1)
        raise SystemExit(143)
    with tracking.stage(started, "train", policy="grpo/seed0") as run:
        run.metrics({"reward": 0.2}, step=2)
    assert len(runs(started)) == 2
    again = runs(started)["train/grpo/seed0"]
    assert (again.info.status, again.data.metrics) == ("FINISHED", {"reward": 0.2})


def test_a_changed_param_on_resume_is_told_and_stops_nothing(
    started: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit), tracking.stage(started, "train", policy="p") as run:
        run.params({"lr": 1})
        raise SystemExit(143)
    with tracking.stage(started, "train", policy="p") as run:
        run.params({"lr": 2})
        run.metrics({"reward": 1.0})
    assert "a record was not kept" in capsys.readouterr().err
    again = runs(started)["train/p"]
    assert (again.info.status, again.data.tags["lost_records"]) == ("FINISHED", "1")
    assert again.data.metrics == {"reward": 1.0}


def test_a_database_that_fails_later_stops_nothing(
    started: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with tracking.stage(started, "train", policy="p") as run:
        with monkeypatch.context() as broken:
            for method in ("log_batch", "set_tag", "log_artifact"):
                broken.setattr(MlflowClient, method, lambda *_, **__: 1 / 0)
            run.params({"a": 1})
            run.tag("a", "b")
            run.artifact("absent")
        run.metrics({"reward": 1.0})
    assert capsys.readouterr().err.count("a record was not kept") == 1
    ended = runs(started)["train/p"]
    assert (ended.info.status, ended.data.tags["lost_records"], ended.data.metrics) == (
        "FINISHED",
        "3",
        {"reward": 1.0},
    )


def test_a_tracker_that_cannot_start_is_an_error_before_any_work(
    seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////proc/none/mlflow.db")
    with pytest.raises(UserError, match=r"cannot start.*MLFLOW_TRACKING_URI"):
        tracking.start(seconds)
    assert not Path(seconds.layout.tracking).exists()


def test_tracking_can_be_turned_off(seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    off = seconds.model_copy(update={"tracking": seconds.tracking.model_copy(update={"enabled": False})})
    tracking.start(off)
    with tracking.stage(off, "score", policy="base") as run:
        run.metrics({"max_at_k": 1.0})
    assert not list(Path(off.layout.root).glob("mlflow*"))


def test_stages_without_a_started_tracker_say_which_stage_is_missing(
    seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"tracking\.json: no such file"), tracking.stage(seconds, "score"):
        pass


def _write(job: tuple[Config, str]) -> None:
    config, name = job
    with tracking.stage(config, "train", policy=name) as run:
        for step in range(20):
            run.metrics({"reward": float(step)}, step=step)


def test_parallel_jobs_lose_nothing(started: Config) -> None:
    names = [f"p{i}" for i in range(4)]
    with ProcessPoolExecutor(4) as pool:
        list(pool.map(_write, [(started, name) for name in names]))
    client = MlflowClient(files.read_json(started.layout.tracking)["uri"])
    for name in names:
        run = runs(started)[f"train/{name}"]
        assert "lost_records" not in run.data.tags
        assert len(client.get_metric_history(run.info.run_id, "reward")) == 20
