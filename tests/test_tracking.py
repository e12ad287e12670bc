"""MLflow mirrors the files: it starts before any work or not at all, and later never stops a stage."""

from __future__ import annotations

import json
import math
import multiprocessing
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from maxk import tracking
from maxk.artifacts import files
from maxk.config import Config
from maxk.errors import UserError
from maxk.tracking import page


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow takes most of a test's time to make a fresh one."""
    path = tmp_path_factory.mktemp("database") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def started(seconds: Config, empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The seconds-scale experiment with tracking started, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_database, tmp_path / "mlflow.db")
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
    parent, nested = runs(started)["seconds: experiment"], runs(started)["base: score"]
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
    assert runs(started)["grpo/seed0: train"].info.status == status


def test_a_job_that_starts_again_goes_on_in_its_run(started: Config) -> None:
    with pytest.raises(SystemExit), tracking.stage(started, "train", policy="grpo/seed0") as run:
        run.metrics({"reward": 0.1}, step=1)
        raise SystemExit(143)
    with tracking.stage(started, "train", policy="grpo/seed0") as run:
        run.metrics({"reward": 0.2}, step=2)
    assert len(runs(started)) == 2
    again = runs(started)["grpo/seed0: train"]
    assert (again.info.status, again.data.metrics) == ("FINISHED", {"reward": 0.2})


def test_a_changed_param_on_resume_is_told_and_stops_nothing(
    started: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit), tracking.stage(started, "train", policy="grpo/seed0") as run:
        run.params({"lr": 1})
        raise SystemExit(143)
    with tracking.stage(started, "train", policy="grpo/seed0") as run:
        run.params({"lr": 2})
        run.metrics({"reward": 1.0})
    assert "a record was not taken" in capsys.readouterr().err
    again = runs(started)["grpo/seed0: train"]
    assert (again.info.status, again.data.tags["maxk.lost_records"]) == ("FINISHED", "1")
    assert again.data.metrics == {"reward": 1.0}


def test_a_database_that_fails_later_stops_nothing(
    started: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with tracking.stage(started, "train", policy="grpo/seed0") as run:
        with monkeypatch.context() as broken:
            for method in ("log_batch", "set_tag", "log_artifact"):
                broken.setattr(MlflowClient, method, lambda *_, **__: 1 / 0)
            run.params({"a": 1})
            run.tag("a", "b")
            run.artifact("absent")
        run.metrics({"reward": 1.0})
    assert capsys.readouterr().err.count("a record was not taken") == 1
    ended = runs(started)["grpo/seed0: train"]
    assert (ended.info.status, ended.data.tags["maxk.lost_records"], ended.data.metrics) == (
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
        run.params({"name": name})
        for step in range(20):
            run.metrics({"reward": float(step)}, step=step)


def test_eight_parallel_jobs_lose_no_record(started: Config) -> None:
    names = [f"grpo/seed{i}" for i in range(8)]
    # Processes of their own, as jobs are: a forked one would share its parent's connection.
    with ProcessPoolExecutor(8, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_write, [(started, name) for name in names]))
    client = MlflowClient(files.read_json(started.layout.tracking)["uri"])
    for name in names:
        run = runs(started)[f"{name}: train"]
        assert run.info.status == "FINISHED"
        assert "maxk.lost_records" not in run.data.tags
        assert run.data.params == {"name": name}
        history = client.get_metric_history(run.info.run_id, "reward")
        assert sorted(point.step for point in history) == list(range(20))


# --------------------------------------------------------------------------------------------------- the parent's life
def parent(config: Config) -> Any:
    """The experiment's own run."""
    where = files.read_json(config.layout.tracking)
    return MlflowClient(where["uri"]).get_run(where["run_id"])


def test_the_parent_runs_until_the_pipeline_ends_and_again_when_it_goes_on(started: Config) -> None:
    Path("table2.md").write_text("| a table |\n")
    tracking.report(started, ["table2.md"], note="| a table |\n")
    assert parent(started).info.status == "RUNNING"
    tracking.conclude(started, failed=False)
    first = parent(started)
    assert first.info.status == "FINISHED"
    assert first.data.tags["mlflow.note.content"] == "| a table |\n"
    tracking.start(started)
    again = parent(started)
    assert (again.info.status, again.info.run_id) == ("RUNNING", first.info.run_id)


@pytest.mark.parametrize(
    ("errors", "status"),
    [
        ([], "FAILED"),
        ([ValueError("x")], "FAILED"),
        ([SystemExit(143)], "KILLED"),
        ([SystemExit(143), ValueError("x")], "FAILED"),
    ],
)
def test_the_parent_ends_as_its_jobs_did(errors: list[BaseException], status: str, started: Config) -> None:
    for number, error in enumerate(errors):
        with pytest.raises(type(error)), tracking.stage(started, "train", policy=f"grpo/seed{number}"):
            raise error
    tracking.conclude(started, failed=True)
    assert parent(started).info.status == status


def test_failures_of_an_earlier_run_do_not_count(started: Config) -> None:
    with pytest.raises(ValueError, match="x"), tracking.stage(started, "train", policy="grpo/seed7"):
        raise ValueError("x")
    time.sleep(0.01)  # times are kept in milliseconds
    tracking.start(started)
    with pytest.raises(SystemExit), tracking.stage(started, "train", policy="grpo/seed0"):
        raise SystemExit(143)
    tracking.conclude(started, failed=True)
    assert parent(started).info.status == "KILLED"


@pytest.mark.parametrize("how", ["conclude", "start"])
def test_a_job_that_could_not_say_how_it_ended_was_killed(how: str, started: Config) -> None:
    """kill -9 leaves the nested run RUNNING; the end of the pipeline, or else the next begin, says what it was."""
    killed = tracking.stage(started, "train", policy="grpo/seed0")
    killed.__enter__()
    assert runs(started)["grpo/seed0: train"].info.status == "RUNNING"
    tracking.conclude(started, failed=True) if how == "conclude" else tracking.start(started)
    assert runs(started)["grpo/seed0: train"].info.status == "KILLED"
    assert parent(started).info.status == ("KILLED" if how == "conclude" else "RUNNING")
    with tracking.stage(started, "train", policy="grpo/seed0") as run:
        run.metrics({"reward": 1.0})
    assert (len(runs(started)), runs(started)["grpo/seed0: train"].info.status) == (2, "FINISHED")


def test_a_database_that_was_deleted_is_made_anew(started: Config, tmp_path: Path, monkeypatch) -> None:
    # MLflow keeps the open file in this process; another path stands for a process that starts afresh.
    before, another = files.read_json(started.layout.tracking), f"sqlite:///{tmp_path}/another.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", another)
    files.write_json(started.layout.tracking, {**before, "uri": another})
    tracking.start(started)
    assert files.read_json(started.layout.tracking)["run_id"] != before["run_id"]
    assert parent(started).info.status == "RUNNING"


def test_a_database_that_was_not_finished_is_not_there(
    seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setattr(MlflowClient, "search_experiments", lambda *_, **__: 1 / 0)
    with pytest.raises(UserError, match="cannot start"):
        tracking.start(seconds)
    assert not (tmp_path / "mlflow.db").exists()


# ----------------------------------------------------------------------------------------------------------- the page
def test_runs_have_the_tags_that_one_filters_by(started: Config) -> None:
    with tracking.stage(started, "verify", policy="grpo/seed0", shard="1"):
        pass
    with tracking.stage(started, "prepare", dataset="pocket-short"):
        pass
    with tracking.stage(started, "base", policy="base"):
        pass
    found = {
        name: {k: v for k, v in run.data.tags.items() if k.startswith("maxk.")} for name, run in runs(started).items()
    }
    verify = found["grpo/seed0: verify, shard 1"]
    expected = {"stage": "verify", "experiment": "seconds", "objective": "grpo", "seed": "0", "shard": "1"}
    assert {name: verify[f"maxk.{name}"] for name in expected} == expected
    assert verify["maxk.dataset"] == "pocket-contests, pocket-short"
    assert found["pocket-short: prepare"]["maxk.dataset"] == "pocket-short"
    assert found["base: base"]["maxk.objective"] == "base"


def test_the_experiment_has_its_note_and_views(started: Config) -> None:
    tracking.report(started, [], note="| a table |\n")
    where = files.read_json(started.layout.tracking)
    tags = MlflowClient(where["uri"]).get_experiment(where["experiment_id"]).tags
    assert tags["mlflow.note.content"] == "| a table |\n"
    view = json.loads(tags["mlflow.sharedViewState.maxk-scores"])
    state = json.loads(view["state"])
    assert state["searchFilter"] == "tags.`maxk.stage` = 'score'"
    assert [card["metricKey"] for card in state["compareRunCharts"]] == [
        "mean/max_at_k",
        "pocket-contests/max_at_k",
        "pocket-short/max_at_k",
    ]
    training = json.loads(json.loads(tags["mlflow.sharedViewState.maxk-training"])["state"])
    assert "reward" in [card["metricKey"] for card in training["compareRunCharts"]]


@pytest.mark.parametrize("base", ["http://127.0.0.1:5000", "https://host/mlflow/"])
def test_the_link_names_the_view(base: str) -> None:
    assert page.link(base, "3").startswith(f"{base.rstrip('/')}/#/experiments/3/runs?viewStateShareKey=maxk-scores&")
