"""Jobs log to files; MLflow gets every event once, and never stops or delays a job."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow import MlflowClient

from fresh import printed
from maxk import tracking
from maxk.artifacts import files
from maxk.config import Config
from maxk.errors import UserError
from maxk.reporting import style
from maxk.stages.train import _track
from maxk.tracking import mirror, page


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow takes most of a test's time to create one."""
    path = tmp_path_factory.mktemp("database") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def started(seconds: Config, empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The seconds-scale experiment with tracking started, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    # MLflow keeps one connection per URI, and the default URI is relative: name each test's database in full.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    mirror.start(seconds)
    return seconds


def client(config: Config) -> MlflowClient:
    return MlflowClient(files.read_json(config.layout.tracking)["uri"])


PARENT = "mlflow.parentRunId"


def runs(config: Config) -> dict[str, Any]:
    """The runs of the experiment's present run by name, and that run itself; of several the newest."""
    where = files.read_json(config.layout.tracking)
    found = client(config).search_runs([where["experiment_id"]], order_by=["attributes.start_time ASC"])
    return {run.info.run_name: run for run in found if where["run_id"] in (run.info.run_id, run.data.tags.get(PARENT))}


def parent(config: Config) -> Any:
    return client(config).get_run(files.read_json(config.layout.tracking)["run_id"])


def train(config: Config, error: BaseException | None = None, seed: int = 0, **metrics: float) -> None:
    """A training job that logs metrics at step 1, and may end with an error."""
    with tracking.stage(config, "train", policy=f"grpo/seed{seed}") as run:
        run.metrics(metrics, step=1)
        if error is not None:
            raise error


# --------------------------------------------------------------------------------------------------------------- jobs
def test_a_job_is_a_nested_run_with_params_metrics_data_and_artifacts(started: Config) -> None:
    Path("note.txt").write_text("hello")
    with tracking.stage(started, "score", policy="base") as run:
        run.params({"sampling": {"n": 16}, "seed": 0})
        run.metrics({"max_at_k": 0.5}, step=8)
        run.metrics({"max@4": 0.25, "absent": None, "undefined": math.nan})
        run.dataset("pocket-short", "results/x", "abc", context="evaluation")
        run.artifact("note.txt")
    mirror.send(started)
    nested = runs(started)["base: score"]
    assert nested.data.tags["mlflow.parentRunId"] == parent(started).info.run_id
    assert nested.data.params == {"sampling.n": "16", "seed": "0"}
    assert nested.data.metrics == {"max_at_k": 0.5, "max_at_4": 0.25}
    assert nested.info.status == "FINISHED"
    assert nested.inputs.dataset_inputs[0].dataset.digest == "abc"
    assert client(started).get_metric_history(nested.info.run_id, "max_at_k")[0].step == 8
    assert [item.path for item in client(started).list_artifacts(nested.info.run_id)] == ["note.txt"]


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("x"), "FAILED"), (SystemExit(143), "KILLED"), (KeyboardInterrupt(), "KILLED")]
)
def test_a_run_ends_as_its_job_does(started: Config, error: BaseException, status: str) -> None:
    with pytest.raises(type(error)):
        train(started, error)
    mirror.send(started)
    assert runs(started)["grpo/seed0: train"].info.status == status


def test_events_of_a_running_job_are_sent(started: Config) -> None:
    with tracking.stage(started, "train", policy="grpo/seed0") as run:
        for step in range(3):
            run.metrics({"reward": float(step)}, step=step)
            mirror.send(started)
        found = runs(started)["grpo/seed0: train"]
        assert (found.info.status, found.data.metrics) == ("RUNNING", {"reward": 2.0})
    history = client(started).get_metric_history(found.info.run_id, "reward")
    assert [point.step for point in history] == [0, 1, 2]


def test_more_metrics_than_mlflow_takes_at_once(started: Config) -> None:
    with tracking.stage(started, "train", policy="grpo/seed0") as run:
        for step in range(1001):
            run.metrics({"reward": 0.0, "kl": 0.0}, step=step)
    mirror.send(started)
    run_id = runs(started)["grpo/seed0: train"].info.run_id
    assert len(client(started).get_metric_history(run_id, "kl")) == 1001


def test_a_stopped_job_continues_its_run_and_a_finished_one_gets_another(started: Config) -> None:
    with pytest.raises(SystemExit):
        train(started, SystemExit(143), reward=0.1)
    train(started, reward=0.2)
    mirror.send(started)
    [again] = [run for name, run in runs(started).items() if name == "grpo/seed0: train"]
    assert (again.info.status, again.data.metrics) == ("FINISHED", {"reward": 0.2})
    train(started, reward=0.3)
    mirror.send(started)
    where = files.read_json(started.layout.tracking)
    assert len(client(started).search_runs([where["experiment_id"]], "tags.`maxk.stage` = 'train'")) == 2


def test_half_a_line_of_a_killed_job_is_left_out(started: Config) -> None:
    with pytest.raises(SystemExit):
        train(started, SystemExit(143), reward=0.1)
    with Path(started.layout.events("train/grpo/seed0")).open("a") as handle:
        handle.write('{"kind": "metr')
    train(started, reward=0.2)
    mirror.send(started)
    assert runs(started)["grpo/seed0: train"].data.metrics == {"reward": 0.2}


def test_runs_have_tags_to_filter_by(started: Config) -> None:
    with tracking.stage(started, "verify", policy="grpo/seed0", shard="1"):
        pass
    with tracking.stage(started, "prepare", dataset="pocket-short"):
        pass
    mirror.send(started)
    tags = {name: run.data.tags for name, run in runs(started).items()}
    expected = {"stage": "verify", "experiment": "seconds", "objective": "grpo", "seed": "0", "shard": "1"}
    found = tags["grpo/seed0: verify, shard 1"]
    assert {name: found[f"maxk.{name}"] for name in expected} == expected
    assert found["maxk.dataset"] == "pocket-contests, pocket-short"
    assert tags["pocket-short: prepare"]["maxk.dataset"] == "pocket-short"


# ------------------------------------------------------------------------------------------------------------- faults
def test_a_tracker_that_cannot_start_is_an_error_before_any_work(
    seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////proc/none/mlflow.db")
    with pytest.raises(UserError, match=r"cannot start.*MLFLOW_TRACKING_URI"):
        mirror.start(seconds)
    assert not Path(seconds.layout.tracking).exists()


def test_tracking_can_be_turned_off(seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    off = seconds.model_copy(update={"tracking": seconds.tracking.model_copy(update={"enabled": False})})
    mirror.start(off)
    train(off, reward=1.0)
    mirror.finalize(off, failed=False)
    assert not Path(off.layout.root).exists()


def test_an_event_that_is_refused_is_reported_and_the_others_are_kept(
    started: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    with tracking.stage(started, "train", policy="grpo/seed0") as run:
        run.artifact("absent.txt")
        run.metrics({"reward": 1.0})
    mirror.send(started)
    assert capsys.readouterr().err.count("tracking: train/grpo/seed0: MLflow refused 1 event (") == 1
    found = runs(started)["grpo/seed0: train"]
    assert (found.info.status, found.data.metrics) == ("FINISHED", {"reward": 1.0})
    mirror.send(started)
    assert capsys.readouterr().err == ""


def test_a_tracker_that_is_away_gets_the_events_later(
    started: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train(started, reward=1.0)
    with monkeypatch.context() as away:
        for method in ("create_run", "get_run"):
            away.setattr(MlflowClient, method, lambda *_, **__: 1 / 0)
        mirror.finalize(started, failed=False)
    assert "tracking: not sent" in capsys.readouterr().err
    assert parent(started).info.status == "RUNNING"
    mirror.finalize(started, failed=False)
    assert parent(started).info.status == "FINISHED"
    assert runs(started)["grpo/seed0: train"].data.metrics == {"reward": 1.0}


def test_a_new_database_gets_all_events(started: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(started, reward=1.0)
    mirror.finalize(started, failed=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/another.db")
    mirror.start(started)
    assert runs(started)["grpo/seed0: train"].data.metrics == {"reward": 1.0}
    assert parent(started).info.status == "RUNNING"


def test_a_database_is_created_whole_or_not_at_all(
    seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setattr(MlflowClient, "search_experiments", lambda *_, **__: 1 / 0)
    with pytest.raises(UserError, match="cannot start"):
        mirror.start(seconds)
    assert not (tmp_path / "mlflow.db").exists()


def test_a_job_runs_without_git(started: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as machine:
        machine.setenv("PATH", "")
        train(started, reward=1.0)
    mirror.send(started)
    found = runs(started)["grpo/seed0: train"]
    assert found.info.status == "FINISHED"
    assert "mlflow.source.git.commit" not in found.data.tags


# ------------------------------------------------------------------------------------------- what is done by hand
def maxk(folder: Path, *arguments: str) -> str:
    """A command in `folder`, with the database that is there; returns what it says on stderr."""
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    done = subprocess.run(
        [sys.executable, "-m", "maxk", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    return done.stderr


def test_a_copied_folder_keeps_what_it_tracks_to_itself(seconds: Config, empty_database: Path, tmp_path: Path) -> None:
    """MLflow stores the absolute path of artifacts: a copy once wrote its report over the original's."""
    original, copy, config = tmp_path / "it's {a}", tmp_path / "copy", seconds.model_dump_json()
    (original / seconds.layout.root).mkdir(parents=True)
    shutil.copy(empty_database, original / seconds.layout.root / "mlflow.db")
    (original / "table2.md").write_text("| the original's |\n")
    event = json.dumps({"kind": "artifact", "time": 0, "path": "table2.md"}) + "\n"
    events = Path(seconds.layout.events("experiment"))
    for folder in (original, copy):
        if folder == copy:
            shutil.copytree(original, copy)
            (copy / "table2.md").write_text("| the copy's |\n")
        assert maxk(folder, "configure", config) == ""
        (folder / events).parent.mkdir(parents=True, exist_ok=True)
        with (folder / events).open("a") as handle:
            handle.write(event)
        assert maxk(folder, "finalize", "--config", seconds.layout.config) == ""
    for folder, kept in ((original, "| the original's |\n"), (copy, "| the copy's |\n")):
        [artifact] = (folder / seconds.layout.root).glob("mlartifacts/*/*/table2.md")
        assert artifact.read_text() == kept


def test_a_copied_folder_gets_its_own_experiment_in_a_shared_database(
    started: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(started, reward=1.0)
    mirror.send(started)
    first, known = parent(started), files.read_json(started.layout.tracking)
    (tmp_path / "copy").mkdir()
    shutil.copytree("results", tmp_path / "copy" / "results")
    monkeypatch.chdir(tmp_path / "copy")
    mirror.start(started)
    mirror.finalize(started, failed=True)
    assert client(started).get_run(first.info.run_id).info.status == "RUNNING"
    assert runs(started)["grpo/seed0: train"].data.metrics == {"reward": 1.0}
    assert parent(started).info.artifact_uri.startswith((tmp_path / "copy").as_uri())
    assert known["experiment_id"] != files.read_json(started.layout.tracking)["experiment_id"]


def test_a_deleted_experiment_is_restored(started: Config) -> None:
    train(started, reward=1.0)
    mirror.finalize(started, failed=False)
    before = files.read_json(started.layout.tracking)
    client(started).delete_experiment(before["experiment_id"])
    mirror.start(started)
    after = files.read_json(started.layout.tracking)
    assert [after[key] for key in ("experiment_id", "run_id")] == [before[key] for key in ("experiment_id", "run_id")]
    assert client(started).get_experiment(after["experiment_id"]).lifecycle_stage == "active"
    assert runs(started)["grpo/seed0: train"].data.metrics == {"reward": 1.0}


@pytest.mark.parametrize("which", ["job", "experiment"])
def test_a_deleted_run_is_made_again(which: str, started: Config, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(ZeroDivisionError):
        train(started, error=ZeroDivisionError(), reward=0.5)
    mirror.finalize(started, failed=True)
    client(started).delete_run((runs(started)["grpo/seed0: train"] if which == "job" else parent(started)).info.run_id)
    mirror.start(started)
    train(started, reward=1.0)
    mirror.finalize(started, failed=False)
    assert runs(started)["grpo/seed0: train"].data.metrics == {"reward": 1.0}
    assert parent(started).info.status == "FINISHED"
    assert capsys.readouterr().err == ""


def test_a_run_deleted_while_its_job_logs_is_told_once(started: Config, capsys: pytest.CaptureFixture[str]) -> None:
    with tracking.stage(started, "train", policy="grpo/seed0") as run:
        mirror.send(started)
        client(started).delete_run(runs(started)["grpo/seed0: train"].info.run_id)
        for number in range(3):
            run.tag(f"tag{number}", "a")
    mirror.send(started)
    [told] = capsys.readouterr().err.splitlines()
    assert "train/grpo/seed0: MLflow refused 4 events" in told


def test_a_run_deleted_after_its_job_was_killed_does_not_keep_others_open(started: Config) -> None:
    killed = [tracking.stage(started, "train", policy=f"grpo/seed{seed}") for seed in (0, 1)]
    for job in killed:
        job.__enter__()
    mirror.send(started)
    client(started).delete_run(runs(started)["grpo/seed0: train"].info.run_id)
    mirror.finalize(started, failed=True)
    assert runs(started)["grpo/seed1: train"].info.status == "KILLED"
    assert parent(started).info.status == "FAILED"


# --------------------------------------------------------------------------------------------------- the parent's life
def test_the_experiments_run_lasts_as_long_as_the_pipeline_and_continues(started: Config) -> None:
    Path("table2.md").write_text("| a table |\n")
    tracking.report(started, ["table2.md"], note="| a table |\n")
    assert parent(started).info.status == "RUNNING"
    mirror.finalize(started, failed=False)
    first = parent(started)
    assert (first.info.status, first.data.tags["mlflow.note.content"]) == ("FINISHED", "| a table |\n")
    assert "table2.md" in [item.path for item in client(started).list_artifacts(first.info.run_id)]
    mirror.start(started)
    again = parent(started)
    assert (again.info.status, again.info.run_id) == ("RUNNING", first.info.run_id)
    mirror.finalize(started, failed=True)
    assert parent(started).info.status == "FAILED"


@pytest.mark.parametrize("how", ["finalize", "start"])
def test_a_job_that_could_not_log_its_end_was_killed(how: str, started: Config) -> None:
    """After kill -9."""
    killed = tracking.stage(started, "train", policy="grpo/seed0")
    killed.__enter__()
    mirror.send(started)
    assert runs(started)["grpo/seed0: train"].info.status == "RUNNING"
    mirror.finalize(started, failed=True) if how == "finalize" else mirror.start(started)
    assert runs(started)["grpo/seed0: train"].info.status == "KILLED"
    train(started, reward=1.0)
    mirror.send(started)
    assert (len(runs(started)), runs(started)["grpo/seed0: train"].info.status) == (2, "FINISHED")


# ----------------------------------------------------------------------------------------------------------- the page
def test_the_experiment_has_its_note_and_views(started: Config) -> None:
    tracking.report(started, [], note="| a table |\n")
    mirror.send(started)
    where = files.read_json(started.layout.tracking)
    tags = client(started).get_experiment(where["experiment_id"]).tags
    assert tags["mlflow.note.content"] == "| a table |\n"
    state = json.loads(json.loads(tags["mlflow.sharedViewState.maxk-scores"])["state"])
    assert state["searchFilter"] == "tags.`maxk.stage` = 'score'"
    assert [(card["type"], card.get("metricKey")) for card in state["compareRunCharts"]] == [
        ("BAR", "max_at_16"),
        ("BAR", "max_at_1"),
        ("SCATTER", None),
        ("LINE", "mean/max_at_k"),
        ("LINE", "pocket-contests/max_at_k"),
        ("LINE", "pocket-short/max_at_k"),
    ]
    training = json.loads(json.loads(tags["mlflow.sharedViewState.maxk-training"])["state"])
    shown = [card["metricKey"] for card in training["compareRunCharts"]]
    assert shown[:4] == ["reward", "train_max_at_4", "kl", "entropy"]
    axes = {(card["xAxisKey"], card["selectedXAxisMetricKey"]) for card in training["compareRunCharts"]}
    assert axes == {("metric", "epoch")}
    to_old = started.model_copy(update={"training": started.training.model_copy(update={"kl_reference": "old"})})
    old = page.tags(to_old)
    training_to_old = json.loads(json.loads(old["mlflow.sharedViewState.maxk-training"])["state"])
    assert training_to_old["compareRunCharts"][3]["metricKey"] == "kl_old"
    for view in (state, training):
        ids = [card["uuid"] for card in view["compareRunCharts"]]
        assert len(set(ids)) == len(ids)
        sections = {section["uuid"] for section in view["compareRunSections"]}
        assert {card["metricSectionId"] for card in view["compareRunCharts"]} == sections


def test_a_policy_has_the_colour_that_it_has_in_figures(started: Config) -> None:
    looks = style.looks(started)
    for policy, row in {
        "base": "base",
        "grpo/seed0": "grpo",
        "bon_offpolicy_exact@1/seed0": "bon_offpolicy_exact",
    }.items():
        with tracking.stage(started, "score", policy=policy):
            pass
        mirror.send(started)
        assert runs(started)[f"{policy}: score"].data.tags["mlflow.runColor"] == looks[row].colour


def test_a_training_ends_with_its_last_values(started: Config) -> None:
    layout, name = started.layout, "grpo/seed0"
    files.write_text(layout.policy(name), "{}")
    lines = [{"step": 1, "reward": 0.1, "kl_old": 0.0}, {"step": 2, "reward": 0.2, "kl_old": 0.3}, {"step": 2, "x": 1}]
    files.write_text(layout.metrics(name), "".join(json.dumps(line) + "\n" for line in lines))
    with tracking.stage(started, "train", policy=name) as run:
        _track(SimpleNamespace(config=started, name=name), run)
    mirror.send(started)
    found = runs(started)[f"{name}: train"].data.metrics
    assert found == {"final/reward": 0.2, "final/kl_old": 0.3}


@pytest.mark.parametrize("base", ["http://127.0.0.1:5000", "https://host/mlflow/"])
def test_the_link_names_the_view(base: str) -> None:
    assert page.link(base, "3", "training").startswith(
        f"{base.rstrip('/')}/#/experiments/3/runs?viewStateShareKey=maxk-training&"
    )


def test_the_client_imports_no_pandas(tmp_path: Path) -> None:
    code = (
        "import sys; from maxk.tracking import server;"
        f"server.client('sqlite:///{tmp_path}/mlflow.db').search_experiments();"
        "print(sorted({'pandas', 'scipy', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    )
    assert printed(code) == "[]"
