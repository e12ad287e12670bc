"""Tracking by a server that MLFLOW_TRACKING_URI names: a real `mlflow server` on loopback, on SQLite and on PostgreSQL.

make test-tracking      # both; the suite leaves PostgreSQL out where it is not installed
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow import MlflowClient

from maxk import tracking
from maxk.artifacts import files
from maxk.config import Config
from maxk.tracking import page
from maxk.tracking import run as tracked

JOBS, STEPS = 8, 40
PASSWORD = "a-password-of-the-test"


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """The URI of a PostgreSQL server of the test's own."""
    found = [shutil.which("initdb"), *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")))]
    if not any(found):
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    binaries = Path(os.path.realpath(next(filter(None, found)))).parent
    user = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder, port = Path(name), free_port()
        (folder / "password").write_text(PASSWORD)
        if user is not None:
            for path in (folder, folder / "password"):
                shutil.chown(path, user)
        settings = ["-D", str(folder / "data")]
        make = [
            str(binaries / "initdb"),
            *settings,
            "-U",
            "maxk",
            "-A",
            "scram-sha-256",
            "--pwfile",
            f"{name}/password",
        ]
        subprocess.run(make, user=user, check=True, capture_output=True, cwd=name)
        serve = [
            str(binaries / "postgres"),
            *settings,
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
            "-k",
            name,
            "-c",
            "fsync=off",
        ]
        process = subprocess.Popen(serve, user=user, cwd=name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        ready = [str(binaries / "pg_isready"), "-h", "127.0.0.1", "-p", str(port)]
        wait_until(lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0)
        yield f"postgresql://maxk:{PASSWORD}@127.0.0.1:{port}/postgres"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def wait_until(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not come up"
        time.sleep(0.1)


@dataclass
class Server:
    """An `mlflow server` that can be stopped and started again at the same place."""

    database: str
    port: int
    running: contextlib.ExitStack

    def start(self) -> str:
        return self.running.enter_context(page.serving(self.database, self.port))

    def stop(self) -> None:
        self.running.close()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with contextlib.ExitStack() as stack:
        sqlite = f"sqlite:///{folder}/server.db"
        database = stack.enter_context(postgresql()) if request.param == "postgresql" else sqlite
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setenv("MLFLOW_ARTIFACTS_DESTINATION", str(folder / "artifacts"))
        one = Server(database, free_port(), contextlib.ExitStack())
        environment.setenv("MLFLOW_TRACKING_URI", one.start())
        stack.callback(one.stop)
        yield one


@pytest.fixture
def started(server: Server, seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.chdir(tmp_path)
    tracking.start(seconds)
    return seconds


def job(config: Config, name: str) -> None:
    """What a job logs, in a process of its own."""
    with tracking.stage(config, "train", policy=name) as run:
        run.params({"name": name, "training": {"completions": 8}})
        run.dataset("pocket-short", "results/x", "abc", context="training")
        for step in range(STEPS):
            run.metrics({"reward": float(step), "kl": 0.5, "entropy": 0.1}, step=step)
        path = Path(f"{Path(name).name}.txt")
        path.write_text(name)
        run.artifact(path)


def test_eight_parallel_jobs_lose_no_record(started: Config) -> None:
    names = [f"grpo/seed{number}" for number in range(JOBS)]
    with ProcessPoolExecutor(JOBS, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(job, [started] * JOBS, names))
    tracking.conclude(started, failed=False)
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    where = files.read_json(started.layout.tracking)
    parent = client.get_run(where["run_id"])
    assert parent.info.status == "FINISHED"
    query = f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'"
    found = {run.info.run_name: run for run in client.search_runs([where["experiment_id"]], query)}
    assert set(found) == {f"{name}: train" for name in names}
    for name in names:
        run = found[f"{name}: train"]
        assert run.info.status == "FINISHED"
        assert "maxk.lost_records" not in run.data.tags
        assert run.data.params == {"name": name, "training.completions": "8"}
        for metric in ("reward", "kl", "entropy"):
            history = client.get_metric_history(run.info.run_id, metric)
            assert sorted(point.step for point in history) == list(range(STEPS))
        assert run.inputs.dataset_inputs[0].dataset.digest == "abc"
        assert [item.path for item in client.list_artifacts(run.info.run_id)] == [f"{Path(name).name}.txt"]


def test_a_server_that_restarts_loses_nothing(
    server: Server, started: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(tracked, "FLUSH_EVERY_S", 0.0)
    with tracking.stage(started, "train", policy="grpo/seed0") as run:
        run.metrics({"reward": 0.0}, step=0)
        server.stop()
        run.metrics({"reward": 1.0}, step=1)
        run.params({"told": "while it was away"})
        server.start()
        run.metrics({"reward": 2.0}, step=2)
    told = capsys.readouterr().err
    assert told.count("a record was not taken") == 1
    assert "not kept" not in told
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    where = files.read_json(started.layout.tracking)
    query = f"tags.`mlflow.parentRunId` = '{where['run_id']}'"
    [found] = client.search_runs([where["experiment_id"]], query)
    assert found.info.status == "FINISHED"
    assert found.data.params == {"told": "while it was away"}
    assert [point.step for point in client.get_metric_history(found.info.run_id, "reward")] == [0, 1, 2]


def test_a_server_that_goes_for_good_stops_no_job_and_no_report(
    server: Server, started: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    try:
        with tracking.stage(started, "train", policy="grpo/seed1") as run:
            server.stop()
            run.metrics({"reward": 1.0}, step=1)
        assert "1 records were not kept" in capsys.readouterr().err
        with tracking.stage(started, "train", policy="grpo/seed2") as run:
            run.metrics({"reward": 1.0}, step=1)
        assert "this job is not tracked" in capsys.readouterr().err
        Path("table2.md").write_text("| a |\n")
        tracking.report(started, ["table2.md"], note="| a |\n")
        assert "not stored" in capsys.readouterr().err
        tracking.conclude(started, failed=False)
        assert "was not recorded" in capsys.readouterr().err
    finally:
        server.start()
