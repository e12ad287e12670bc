"""MLflow, the mirror of what the files say (and the only place that imports it).

One parent run an experiment, one nested run a stage. `start`, when a run of the pipeline begins, makes database,
experiment and parent run in one serial step, because parallel jobs must not race to migrate a fresh SQLite file; it
writes `tracking.json`, which every stage reads. The parent stays RUNNING until `conclude`, when the pipeline ends. A
tracker that cannot start is an error before any work. A call that fails later never stops a stage: it is reported on
stderr and counted in the run's tag `maxk.lost_records`.

    with tracking.stage(config, "sample", policy="base") as run:
        run.params({...}); run.metrics({"tokens": 1.0}, step=0); run.artifact(path)

`run` holds what a job logs, `server` which MLflow is meant, `page` what its page shows and how it is opened.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from maxk.artifacts import files
from maxk.artifacts.digests import digest_of
from maxk.config import Config
from maxk.errors import UserError
from maxk.tracking import page, server
from maxk.tracking.run import MlflowRun, Run

__all__ = ["Run", "conclude", "report", "stage", "start"]

_PARENT_TAG, _JOB_TAG, _CONFIG_TAG = "mlflow.parentRunId", "maxk.job", "maxk.config"


# ------------------------------------------------------------------------------------------------- the experiment's run
def start(config: Config) -> None:
    """Creates the experiment and its parent run, or goes on in those that `tracking.json` names; writes that file.

    Nested runs that a killed pipeline left open end as KILLED; a job of it that starts again goes on in its own.
    """
    if not config.tracking.enabled:
        files.write_json(config.layout.tracking, {"enabled": False})
        return
    Path(config.layout.root).mkdir(parents=True, exist_ok=True)
    uri, started = server.address(config), int(time.time() * 1000)
    stored = server.without_secrets(uri)
    try:
        server.make(uri)
        client = server.client(uri)
        experiment_id = _experiment(client, config, uri)
        run_id = _running_parent(client, config, experiment_id, stored)
        client.log_dict(run_id, config.model_dump(mode="json"), "config.json")
    except Exception as error:
        raise UserError(
            f"tracking: MLflow at {stored} cannot start ({server.reason(error)}); mend MLFLOW_TRACKING_URI or set "
            "tracking.enabled: false"
        ) from error
    where = {"enabled": True, "uri": stored, "experiment_id": experiment_id, "run_id": run_id, "started": started}
    files.write_json(config.layout.tracking, where)


def _experiment(client: Any, config: Config, uri: str) -> str:
    name = f"maxk-{config.name}"
    found = client.get_experiment_by_name(name)
    experiment_id = str(
        found.experiment_id if found else client.create_experiment(name, server.artifacts_of(config, uri))
    )
    for tag, value in page.tags(config).items():
        client.set_experiment_tag(experiment_id, tag, value)
    return experiment_id


def _running_parent(client: Any, config: Config, experiment_id: str, uri: str) -> str:
    """The parent run that `tracking.json` names, open again, or a new one."""
    path = Path(config.layout.tracking)
    before = files.read_json(path) if path.exists() else {}
    if (before.get("uri"), before.get("experiment_id")) == (uri, experiment_id):
        with contextlib.suppress(Exception):  # it was deleted
            client.update_run(before["run_id"], status="RUNNING")
            _end_abandoned(client, before)
            return str(before["run_id"])
    tags = {"maxk.stage": "experiment", "maxk.experiment": config.name, **_git_tags()}
    return str(client.create_run(experiment_id, run_name=f"{config.name}: experiment", tags=tags).info.run_id)


def _end_abandoned(client: Any, where: Mapping[str, Any]) -> None:
    """Ends nested runs whose jobs were killed before they could."""
    for run in _nested(client, where, "attributes.status = 'RUNNING'"):
        client.set_terminated(run.info.run_id, "KILLED")


def conclude(config: Config, failed: bool) -> None:
    """Ends the parent run as the pipeline did: FINISHED, or FAILED, or KILLED where its jobs were."""
    where = files.read_json(config.layout.tracking)
    if not where["enabled"]:
        return
    try:
        client = server.client(server.address_of(where))
        _end_abandoned(client, where)
        ended = {
            status: bool(_nested(client, where, f"{_of(status)} and attributes.end_time >= {where['started']}"))
            for status in ("FAILED", "KILLED")
        }
        stopped = ended["KILLED"] and not ended["FAILED"]
        client.set_terminated(where["run_id"], ("KILLED" if stopped else "FAILED") if failed else "FINISHED")
    except Exception as error:
        print(f"tracking: the end of the run was not recorded ({server.reason(error)})", file=sys.stderr)


def report(config: Config, paths: Iterable[str | Path], note: str = "") -> None:
    """Stores tables and figures with the experiment's own run; `note` (Markdown) is what its page shows first."""
    where = files.read_json(config.layout.tracking)
    if not where["enabled"]:
        return
    try:
        client = server.client(server.address_of(where))
        run = MlflowRun(client, where["run_id"])
        if note:
            client.set_experiment_tag(where["experiment_id"], page.NOTE_TAG, note)
    except Exception as error:
        print(f"tracking: tables and figures were not stored ({server.reason(error)})", file=sys.stderr)
        return
    for path in paths:
        run.artifact(path)
    if note:
        run.tag(page.NOTE_TAG, note)
    run.end(None)


# ----------------------------------------------------------------------------------------------------- the jobs' runs
@contextlib.contextmanager
def stage(config: Config, stage: str, **of: str) -> Iterator[Run]:
    """The nested run of one job, such as `stage(config, "train", policy="grpo/seed0")`.

    A job that was killed and starts again, under the same configuration, goes on in its old run. The run ends FINISHED,
    or FAILED on an error, or KILLED on a signal.
    """
    run = _open(config, stage, of)
    status = "FAILED"
    try:
        yield run
        status = "FINISHED"
    except (KeyboardInterrupt, SystemExit):
        status = "KILLED"
        raise
    finally:
        run.end(status)


def _open(config: Config, stage: str, of: Mapping[str, str]) -> Run:
    where = files.read_json(config.layout.tracking)
    if not where["enabled"]:
        return Run()
    identity = {
        _PARENT_TAG: where["run_id"],
        _JOB_TAG: "/".join([stage, *of.values()]),
        _CONFIG_TAG: digest_of(config.model_dump(mode="json")),
    }
    tags = {**identity, **_tags(config, stage, of), **_git_tags()}
    try:
        client = server.client(server.address_of(where))
        run_id = _unfinished(client, where, identity)
        if run_id is None:
            run_id = client.create_run(where["experiment_id"], run_name=_title(stage, of), tags=tags).info.run_id
        else:
            client.update_run(run_id, status="RUNNING")
    except Exception as error:
        print(
            f"tracking: MLflow at {where['uri']} does not answer ({server.reason(error)}); this job is not tracked, "
            "its work goes on",
            file=sys.stderr,
        )
        return Run()
    return MlflowRun(client, run_id)


def _unfinished(client: Any, where: Mapping[str, Any], identity: Mapping[str, str]) -> str | None:
    """The run that a stopped earlier try of this job left."""
    query = " and ".join(f"tags.`{name}` = '{value}'" for name, value in identity.items())
    found = _search(client, where, f"{query} and attributes.status != 'FINISHED'")
    return found[0].info.run_id if found else None


def _title(stage: str, of: Mapping[str, str]) -> str:
    """What a run is called: `grpo/seed0: verify, shard 3`. What it is of comes first, since charts cut long names."""
    shard = f", shard {of['shard']}" if "shard" in of else ""
    return f"{of.get('policy') or of.get('dataset')}: {stage}{shard}"


def _tags(config: Config, stage: str, of: Mapping[str, str]) -> dict[str, str]:
    """What runs are filtered by."""
    tags = {"maxk.stage": stage, "maxk.experiment": config.name, **{f"maxk.{key}": value for key, value in of.items()}}
    objective, _, seed = of.get("policy", "").partition("/seed")
    tags |= {"maxk.objective": objective} if objective else {}
    tags |= {"maxk.seed": seed} if seed else {}
    if stage in ("sample", "verify", "score"):
        tags["maxk.dataset"] = ", ".join(config.evaluated)
    elif stage == "train":
        tags["maxk.dataset"] = ", ".join(config.training_of(objective).datasets)
    return tags


def _git_tags() -> dict[str, str]:
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {"mlflow.source.git.commit": done.stdout.strip()} if done.returncode == 0 else {}


# -------------------------------------------------------------------------------------------------------------- search
def _of(status: str) -> str:
    return f"attributes.status = '{status}'"


def _nested(client: Any, where: Mapping[str, Any], query: str) -> list[Any]:
    return _search(client, where, f"tags.`{_PARENT_TAG}` = '{where['run_id']}' and {query}")


def _search(client: Any, where: Mapping[str, Any], query: str) -> list[Any]:
    found: list[Any] = []
    token = None
    while True:
        some = client.search_runs([where["experiment_id"]], query, page_token=token)
        found += some
        token = some.token
        if not token:
            return found
