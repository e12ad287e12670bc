"""Tracking by a server that MLFLOW_TRACKING_URI names: a real `mlflow server` on loopback, which restarts."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from functools import partial
from pathlib import Path

import pytest
from mlflow import MlflowClient

from maxk import cli, tracking
from maxk.artifacts import files
from maxk.config import Config
from maxk.errors import UserError
from maxk.stages import ui
from maxk.tracking import mirror


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


@contextlib.contextmanager
def server(database: str, port: int):
    """Yields when it responds."""
    with ui.serving(database, port) as process:
        deadline = time.monotonic() + 300
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                break
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield


@pytest.mark.slow
def test_a_server_gets_every_event_also_of_the_time_when_it_was_away(
    seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    database, port = f"sqlite:///{tmp_path}/server.db", free_port()
    monkeypatch.setenv("MLFLOW_ARTIFACTS_DESTINATION", str(tmp_path / "artifacts"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    with server(database, port):
        mirror.start(seconds)
    with tracking.stage(seconds, "train", policy="grpo/seed0") as run:
        run.params({"training": {"completions": 8}})
        run.metrics({"reward": 1.0}, step=1)
        Path("note.txt").write_text("hello")
        run.artifact("note.txt")
    mirror.finalize(seconds, failed=False)
    assert "tracking: not sent" in capsys.readouterr().err
    with server(database, port):
        mirror.finalize(seconds, failed=False)
        client, where = MlflowClient(os.environ["MLFLOW_TRACKING_URI"]), files.read_json(seconds.layout.tracking)
        assert client.get_run(where["run_id"]).info.status == "FINISHED"
        [found] = client.search_runs([where["experiment_id"]], f"tags.`mlflow.parentRunId` = '{where['run_id']}'")
        assert (found.info.run_name, found.info.status) == ("grpo/seed0: train", "FINISHED")
        assert found.data.params == {"training.completions": "8"}
        assert found.data.metrics == {"reward": 1.0}
        assert [item.path for item in client.list_artifacts(found.info.run_id)] == ["note.txt"]


@pytest.mark.slow
def test_links_are_printed_when_the_page_answers(
    seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    mirror.start(seconds)
    files.write_json("config.json", seconds.model_dump(mode="json"))
    command = [sys.executable, "-m", "maxk", "ui", "--config", "config.json", "--port", str(free_port())]
    # A shell that runs the tests in the background has them ignore SIGINT, which the process would inherit.
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, preexec_fn=heeds, **pipes) as process:
        try:
            printed = [process.stdout.readline() for _ in range(3)]
            views = [re.fullmatch(r"(\w+): (http\S+viewStateShareKey=maxk-(\w+)\S+)\n", line) for line in printed[:2]]
            assert [(view[1], view[3]) for view in views] == [("scores", "scores"), ("training", "training")]
            with urllib.request.urlopen(views[0][2], timeout=60) as page:
                assert page.status == 200
        finally:
            process.send_signal(signal.SIGINT)
        assert "Uvicorn running" not in process.stderr.read()


@pytest.mark.parametrize("answers", [True, False])
def test_a_server_that_ends_is_one_line(
    answers: bool, seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before or after it has answered; it cannot be ended once more then."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    mirror.start(seconds)
    files.write_json("config.json", seconds.model_dump(mode="json"))
    ended = partial(subprocess.Popen, [sys.executable, "-c", "raise SystemExit(3)"], start_new_session=True)
    monkeypatch.setattr("maxk.stages.ui.subprocess.Popen", lambda command, **options: ended())
    if answers:
        monkeypatch.setattr(ui, "_wait_for", lambda process, address: process.wait())
    assert cli.main(["ui", "--config", "config.json", "--port", str(free_port())]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"maxk ui: MLflow's server (has )?ended .*\(above\), with exit status 3", error)


def test_a_port_is_kept_while_the_server_starts() -> None:
    """MLflow takes it only seconds later, and a second `maxk ui` would print the links of the first."""
    port = free_port()
    with ui._reserved(port):
        with (
            pytest.raises(UserError, match=rf"--port {port} cannot be used \(Address already in use\)"),
            ui._reserved(port),
        ):
            pass
        with ui._reserved(free_port()):
            pass
    with ui._reserved(port):
        pass


def test_a_port_in_use_is_refused(
    seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page of another experiment would answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    mirror.start(seconds)
    files.write_json("config.json", seconds.model_dump(mode="json"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["ui", "--config", "config.json", "--port", str(port)]) == 2
    assert f"maxk ui: --port {port} cannot be used (Address already in use); choose another" in (
        capsys.readouterr().err
    )
