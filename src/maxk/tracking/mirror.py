"""Sends the events of jobs to MLflow: one run per job, nested in one run of the experiment.

    mirror.start(config)       # when a pipeline run starts: MLflow must respond, or no job starts
    mirror.send(config)        # new events of all jobs
    mirror.finalize(config, failed=False)

`tracking.json` holds where MLflow is and, for each job, its run and how many bytes of its events were sent. Sending an
event twice changes nothing, so a process that is killed while sending loses nothing.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from maxk.artifacts import files
from maxk.config import Config
from maxk.errors import UserError, counted
from maxk.tracking import jobs, page, server


def start(config: Config) -> None:
    """Creates the experiment and its run, or continues those of `tracking.json`. Raises UserError if MLflow fails."""
    if not config.tracking.enabled:
        return
    with files.lock(config.layout.events_folder):
        _start(config)
    _send_and_end(config, None)  # events that an earlier run left


def _start(config: Config) -> None:
    path, uri = config.layout.tracking, server.address(config)
    where = {"uri": server.without_secrets(uri), "folder": _folder(config, uri)}
    try:
        server.make(uri)
        server.relocate(config, uri)
        client = server.client(uri)
        where["experiment_id"] = _experiment(client, config, uri)
        before = files.read_json(path) if Path(path).exists() else {}
        files.write_json(path, where | _run_and_sent(client, config, where, before))
    except Exception as error:
        raise UserError(
            f"tracking: MLflow at {where['uri']} cannot start ({server.reason(error)}); fix MLFLOW_TRACKING_URI or set "
            "tracking.enabled: false"
        ) from error


def _folder(config: Config, uri: str) -> str | None:
    """The experiment's folder, which distinguishes a copy from its original; None for a database that is copied too."""
    return None if uri == server.own(config) else str(Path(config.layout.root).absolute())


def _experiment(client: Any, config: Config, uri: str) -> str:
    """Finds, restores or creates the experiment: MLflow keeps the name of a deleted one taken."""
    name, artifacts = server.experiment_name(config), server.artifacts_of(config, uri)
    found = client.get_experiment_by_name(name)
    if found and artifacts not in (None, found.artifact_location):  # another folder's: its files would go there
        name = f"{name} in {_folder(config, uri)}"
        found = client.get_experiment_by_name(name)
    if found and found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
        print(f"tracking: the experiment {name!r} was deleted in MLflow; it and its runs are restored", file=sys.stderr)
    experiment_id = str(found.experiment_id if found else client.create_experiment(name, artifacts))
    for tag, value in page.tags(config).items():
        client.set_experiment_tag(experiment_id, tag, value)
    return experiment_id


def _run_and_sent(client: Any, config: Config, where: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The experiment's run, and what was sent: nothing yet, if MLflow does not know the earlier run or this folder is a
    copy of the one in which it was made.
    """
    found: dict[str, Any] = {}
    if all(before.get(key) == where[key] for key in ("uri", "experiment_id", "folder")):
        with contextlib.suppress(Exception):  # the run was deleted
            client.update_run(before["run_id"], status="RUNNING")
            found = {"run_id": before["run_id"], "sent": before["sent"]}
    if not found:
        tags = {"maxk.stage": "experiment", "maxk.experiment": config.name, **jobs.git_tags()}
        run = client.create_run(where["experiment_id"], run_name=f"{config.name}: experiment", tags=tags)
        found = {"run_id": run.info.run_id, "sent": {}}
    client.log_dict(found["run_id"], config.model_dump(mode="json"), "config.json")
    return found


def finalize(config: Config, failed: bool) -> None:
    """Sends all events and ends the experiment's run; jobs that were killed before they could end are KILLED."""
    if config.tracking.enabled:
        _send_and_end(config, "FAILED" if failed else "FINISHED")


def _send_and_end(config: Config, status: str | None) -> None:
    """Sends all events when no job is running; `status` ends the experiment's run. Reports a failure on stderr."""
    try:
        send(config)
        with _state(config) as where:
            client = server.client(server.address_of(where))
            for entry in where["sent"].values():
                if entry.get("status") == "RUNNING":
                    _refused(client, where, partial(client.set_terminated, entry["run_id"], "KILLED"))  # it was deleted
                    entry["status"] = "KILLED"
            if status is not None:
                client.set_terminated(where["run_id"], status)
    except Exception as error:
        print(f"tracking: not sent ({server.reason(error)}); the next run or `maxk ui` sends it", file=sys.stderr)


@contextlib.contextmanager
def _state(config: Config) -> Iterator[dict[str, Any]]:
    """The content of `tracking.json`, for one process at a time; changes are stored, also after an error."""
    with files.lock(config.layout.events_folder):
        where = files.read_json(config.layout.tracking)
        try:
            yield where
        finally:
            files.write_json(config.layout.tracking, where)


def send(config: Config) -> None:
    """Sends the new events of all jobs. Raises MLflow's error if it does not respond."""
    folder = Path(config.layout.events_folder)
    with _state(config) as where:
        client = server.client(server.address_of(where))
        for path in sorted(folder.rglob("*.jsonl"), key=lambda path: path.stat().st_mtime):
            job = path.relative_to(folder).with_suffix("").as_posix()
            own = {"run_id": where["run_id"]} if job == "experiment" else {}
            refused = _send_job(client, where, where["sent"].setdefault(job, {"bytes": 0, **own}), path)
            if refused:
                print(
                    f"tracking: {job}: MLflow refused {counted(len(refused), 'event')} ({refused[0]})", file=sys.stderr
                )


def _send_job(client: Any, where: Mapping[str, Any], entry: dict[str, Any], path: Path) -> list[str]:
    """Sends the lines of a job after those already sent; returns why events were refused.

    `entry` is the job's part of `tracking.json`.
    """
    with path.open("rb") as handle:
        handle.seek(entry["bytes"])
        lines = handle.read()
    lines = lines[: lines.rfind(b"\n") + 1]
    metrics: dict[str, list[Any]] = defaultdict(list)
    refused: list[str] = []
    for event in _parsed(lines):
        if event["kind"] == "metrics":
            metrics[entry["run_id"]] += _metrics(event)
        else:
            refused += _refused(client, where, partial(_send_event, client, where, entry, event))
    for run_id, points in metrics.items():
        refused += _refused(client, where, partial(client.log_batch, run_id, metrics=points))
    entry["bytes"] += len(lines)
    return refused


def _refused(client: Any, where: Mapping[str, Any], call: Callable[[], None]) -> list[str]:
    """Why MLflow refuses a call; empty if it does not. Raises if it does not respond."""
    try:
        call()
    except Exception as error:
        client.get_run(where["run_id"])
        return [server.reason(error)]
    return []


def _parsed(lines: bytes) -> Iterator[dict[str, Any]]:
    for line in lines.splitlines():
        with contextlib.suppress(ValueError):  # an empty line, or half a line of a killed job
            yield json.loads(line)


def _metrics(event: Mapping[str, Any]) -> Iterator[Any]:
    from mlflow.entities import Metric

    for name, value in event["metrics"].items():
        yield Metric(name.replace("@", "_at_"), value, event["time"], event["step"])  # MLflow's names admit no `@`


def _send_event(client: Any, where: Mapping[str, Any], entry: dict[str, Any], event: Mapping[str, Any]) -> None:
    """Sends any event but metrics."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Param

    match event["kind"]:
        case "start":
            _open_run(client, where, entry, event)
        case "params":
            client.log_batch(entry["run_id"], params=[Param(k, str(v)[:500]) for k, v in event["params"].items()])
        case "dataset":
            source = json.dumps({"uri": event["path"]})
            data = Dataset(name=event["name"], digest=event["digest"], source_type="local", source=source)
            tag = InputTag("mlflow.data.context", event["context"])
            client.log_inputs(entry["run_id"], [DatasetInput(dataset=data, tags=[tag])])
        case "tag":
            client.set_tag(entry["run_id"], event["name"], event["value"])
        case "artifact":
            client.log_artifact(entry["run_id"], event["path"])
        case "note":
            client.set_tag(entry["run_id"], page.NOTE_TAG, event["text"])
            client.set_experiment_tag(where["experiment_id"], page.NOTE_TAG, event["text"])
        case "end":
            client.set_terminated(entry["run_id"], event["status"], end_time=event["time"])
            entry["status"] = event["status"]


def _open_run(client: Any, where: Mapping[str, Any], entry: dict[str, Any], event: Mapping[str, Any]) -> None:
    """Continues the unfinished run of an earlier try under the same configuration, or creates a run."""
    if entry.get("config") == event["config"] and entry["status"] != "FINISHED":
        with contextlib.suppress(Exception):  # the run was deleted
            client.update_run(entry["run_id"], status="RUNNING")
            entry["status"] = "RUNNING"
            return
    tags = {"mlflow.parentRunId": where["run_id"], **event["tags"]}
    created = client.create_run(where["experiment_id"], event["time"], tags, event["title"])
    entry |= {"run_id": created.info.run_id, "config": event["config"], "status": "RUNNING"}
