"""MLflow, the mirror of what the files say (and the only place that imports it).

One parent run an experiment, one nested run a stage. `start` makes database, experiment and parent run in one serial
step, because parallel jobs must not race to migrate a fresh SQLite file; it writes `tracking.json`, which every stage
reads. A tracker that cannot start is an error before any work. A call that fails later never stops a stage: it is
reported on stderr and counted in the run's tag `lost_records`.

    with tracking.stage(config, "sample", policy="base") as run:
        run.params({...}); run.metrics({"tokens": 1.0}, step=0); run.artifact(path)
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from maxk import files
from maxk.config import Config
from maxk.errors import UserError

FLUSH_EVERY_S = 5.0
_PARENT_TAG, _JOB_TAG, _CONFIG_TAG = "mlflow.parentRunId", "maxk.job", "maxk.config"


def start(config: Config) -> None:
    """Creates (or finds) the experiment and its parent run, and writes `tracking.json`, unless it says the same."""
    root = Path(config.layout.root)
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root}/mlflow.db"
    wanted = {"enabled": True, "uri": uri} if config.tracking.enabled else {"enabled": False}
    if Path(config.layout.tracking).exists():
        current = files.read_json(config.layout.tracking)
        if {key: current.get(key) for key in wanted} == wanted:
            return
    if not config.tracking.enabled:
        files.write_json(config.layout.tracking, wanted)
        return
    root.mkdir(parents=True, exist_ok=True)
    try:
        client = _client(uri)
        experiment = client.get_experiment_by_name(f"maxk-{config.name}")
        location = (root / "mlartifacts").absolute().as_uri() if uri.startswith("sqlite") else None
        experiment_id = (
            experiment.experiment_id
            if experiment
            else client.create_experiment(f"maxk-{config.name}", artifact_location=location)
        )
        # MLflow's page opens on what such experiments log: runs and charts, not traces of conversations.
        client.set_experiment_tag(experiment_id, "mlflow.experimentKind", "custom_model_development")
        parent = client.create_run(
            experiment_id, run_name=config.name, tags={"maxk.stage": "experiment", **_git_tags()}
        )
        client.log_dict(parent.info.run_id, config.model_dump(mode="json"), "config.json")
    except Exception as error:
        raise UserError(
            f"tracking: MLflow at {uri} cannot start ({_first_line(error)}); mend MLFLOW_TRACKING_URI or set "
            "tracking.enabled: false"
        ) from error
    files.write_json(config.layout.tracking, {**wanted, "experiment_id": experiment_id, "run_id": parent.info.run_id})


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


def report(config: Config, paths: Iterable[str | Path], note: str = "") -> None:
    """Stores tables and figures with the experiment's own run; `note` (Markdown) is what its page shows first."""
    where = files.read_json(config.layout.tracking)
    if not where["enabled"]:
        return
    try:
        run = MlflowRun(_client(where["uri"]), where["run_id"])
    except Exception as error:
        print(f"tracking: tables and figures were not stored ({_first_line(error)})", file=sys.stderr)
        return
    for path in paths:
        run.artifact(path)
    if note:
        run.tag("mlflow.note.content", note)
    run.end("FINISHED")


class Run:
    """A tracked job; this base class tracks nothing."""

    def params(self, params: Mapping[str, Any]) -> None:
        """Logs parameters; nested mappings become dotted names."""

    def metrics(self, metrics: Mapping[str, float | None], step: int = 0) -> None:
        """Logs numbers at a step; None and NaN are left out."""

    def dataset(self, name: str, path: str, digest: str, context: str) -> None:
        """Logs which data the job read."""

    def tag(self, name: str, value: str) -> None:
        """Sets a tag to filter by."""

    def artifact(self, path: str | Path) -> None:
        """Stores a small file."""

    def end(self, status: str) -> None:
        """Ends the run as FINISHED, FAILED or KILLED."""


class MlflowRun(Run):
    def __init__(self, client: Any, run_id: str) -> None:
        self._client, self._run_id = client, run_id
        self._pending: list[Any] = []
        self._flushed = time.monotonic()
        self._lost = 0

    def params(self, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        flat = {name: str(value)[:500] for name, value in _flatten(params)}
        self._try(lambda: self._client.log_batch(self._run_id, params=[Param(*item) for item in flat.items()]))

    def metrics(self, metrics: Mapping[str, float | None], step: int = 0) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        # MLflow's names admit no `@`: max@k becomes max_at_k.
        finite = {
            name.replace("@", "_at_"): value
            for name, value in metrics.items()
            if value is not None and math.isfinite(value)
        }
        self._pending += [Metric(name, float(value), now, step) for name, value in finite.items()]
        if time.monotonic() - self._flushed >= FLUSH_EVERY_S:
            self._flush()

    def dataset(self, name: str, path: str, digest: str, context: str) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        data = Dataset(name=name, digest=digest, source_type="local", source=files.canonical({"uri": path}))
        entry = DatasetInput(dataset=data, tags=[InputTag("mlflow.data.context", context)])
        self._try(lambda: self._client.log_inputs(self._run_id, [entry]))

    def tag(self, name: str, value: str) -> None:
        self._try(lambda: self._client.set_tag(self._run_id, name, value))

    def artifact(self, path: str | Path) -> None:
        self._try(lambda: self._client.log_artifact(self._run_id, str(path)))

    def end(self, status: str) -> None:
        self._flush()
        if self._lost:
            self.tag("lost_records", str(self._lost))
        self._try(lambda: self._client.set_terminated(self._run_id, status))

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        while self._pending:
            batch, self._pending = self._pending[:1000], self._pending[1000:]
            self._try(partial(self._client.log_batch, self._run_id, metrics=batch), weight=len(batch))

    def _try(self, call: Callable[[], Any], weight: int = 1) -> None:
        """A lost record is a pity, a lost training run a disaster: failures are counted and told, never raised."""
        try:
            call()
        except Exception as error:
            if not self._lost:
                print(f"tracking: a record was not kept ({_first_line(error)}); work goes on", file=sys.stderr)
            self._lost += weight


def _open(config: Config, stage: str, of: Mapping[str, str]) -> Run:
    where = files.read_json(config.layout.tracking)
    if not where["enabled"]:
        return Run()
    job, digest = "/".join([stage, *of.values()]), files.digest_of(config.model_dump(mode="json"))
    try:
        client = _client(where["uri"])
        run_id = _unfinished(client, where, job, digest)
        if run_id is None:
            tags = {_PARENT_TAG: where["run_id"], _JOB_TAG: job, _CONFIG_TAG: digest, "maxk.stage": stage}
            tags |= _git_tags()
            tags |= {f"maxk.{key}": value for key, value in of.items()}
            run_id = client.create_run(where["experiment_id"], run_name=job, tags=tags).info.run_id
        else:
            client.update_run(run_id, status="RUNNING")
    except Exception as error:
        raise UserError(
            f"tracking: MLflow at {where['uri']} does not answer ({_first_line(error)}); delete "
            f"{config.layout.tracking} to start it anew, or set tracking.enabled: false"
        ) from error
    return MlflowRun(client, run_id)


def _unfinished(client: Any, where: Mapping[str, str], job: str, digest: str) -> str | None:
    """The run that a killed earlier try of this job left open."""
    wanted = {_JOB_TAG: job, _CONFIG_TAG: digest, _PARENT_TAG: where["run_id"]}
    query = " and ".join(f"tags.`{name}` = '{value}'" for name, value in wanted.items())
    runs = client.search_runs([where["experiment_id"]], f"{query} and attributes.status != 'FINISHED'", max_results=1)
    return runs[0].info.run_id if runs else None


def _client(uri: str) -> Any:
    """A client, with MLflow's and Alembic's chatter about migrations kept from the terminal."""
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):  # after the import, which sets them up
        logging.getLogger(name).setLevel(logging.WARNING)

    return MlflowClient(uri)


def _flatten(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in params.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _git_tags() -> dict[str, str]:
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {"mlflow.source.git.commit": done.stdout.strip()} if done.returncode == 0 else {}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
