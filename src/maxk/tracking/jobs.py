"""The events of a job: parameters, metrics, datasets, tags and artifacts, as one JSON object per line."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from maxk.artifacts import environment
from maxk.artifacts.digests import digest_of
from maxk.artifacts.paths import trained
from maxk.config.colours import colours

if TYPE_CHECKING:
    from maxk.config import Config


class Run:
    """Logs the events of one job; without a file, nothing."""

    def __init__(self, file: BinaryIO | None = None) -> None:
        self._file = file

    def event(self, kind: str, **content: Any) -> None:
        """Appends an event in one write, so that jobs can share a file; `time` is in milliseconds."""
        if self._file is not None:
            entry = {"kind": kind, "time": int(time.time() * 1000), **content}
            self._file.write(json.dumps(entry, ensure_ascii=False, default=str).encode() + b"\n")

    def params(self, params: Mapping[str, Any]) -> None:
        """Parameters; keys of nested mappings are joined by dots."""
        self.event("params", params=dict(_flatten(params)))

    def metrics(self, metrics: Mapping[str, float | None], step: int = 0) -> None:
        """Numbers at a step; None, NaN and infinities are left out."""
        finite = {name: float(value) for name, value in metrics.items() if value is not None and math.isfinite(value)}
        self.event("metrics", metrics=finite, step=step)

    def dataset(self, name: str, path: str, digest: str, context: str) -> None:
        """A dataset that the job reads."""
        self.event("dataset", name=name, path=path, digest=digest, context=context)

    def tag(self, name: str, value: str) -> None:
        self.event("tag", name=name, value=value)

    def artifact(self, path: str | Path) -> None:
        """A small file; it is read when the events are sent."""
        self.event("artifact", path=str(path))


@contextlib.contextmanager
def stage(config: Config, stage: str, **of: str) -> Iterator[Run]:
    """Logs a job, such as `stage(config, "train", policy="grpo/seed0")`.

    Its run ends as FINISHED, FAILED (on an error) or KILLED (on a signal).
    """
    job = "/".join([stage, *of.values()])
    with _opened(config, job) as run:
        tags = {"maxk.job": job, **_tags(config, stage, of), **git_tags()}
        digest = digest_of(config.model_dump(mode="json"))
        run.event("start", title=_title(stage, of), tags=tags, config=digest)
        status = "FAILED"
        try:
            yield run
            status = "FINISHED"
        except (KeyboardInterrupt, SystemExit):
            status = "KILLED"
            raise
        finally:
            run.event("end", status=status)


def report(config: Config, paths: Iterable[str | Path], note: str = "") -> None:
    """Logs tables and figures of the experiment's own run; `note` (Markdown) heads its page."""
    with _opened(config, "experiment") as run:
        for path in paths:
            run.artifact(path)
        if note:
            run.event("note", text=note)


@contextlib.contextmanager
def _opened(config: Config, job: str) -> Iterator[Run]:
    if not config.tracking.enabled:
        yield Run()
        return
    path = Path(config.layout.events(job))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        file.write(b"\n")  # a killed job may have left half a line
        yield Run(file)


def _flatten(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in params.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _title(stage: str, of: Mapping[str, str]) -> str:
    """Name of a run, such as `grpo/seed0: verify, shard 3`; the policy comes first, since charts cut long names."""
    shard = f", shard {of['shard']}" if "shard" in of else ""
    return f"{of.get('policy') or of.get('dataset')}: {stage}{shard}"


def _tags(config: Config, stage: str, of: Mapping[str, str]) -> dict[str, str]:
    """Tags to filter runs by."""
    tags = {"maxk.stage": stage, "maxk.experiment": config.name, **{f"maxk.{key}": value for key, value in of.items()}}
    objective, _, seed = of.get("policy", "").partition("/seed")
    if objective:
        tags |= {"maxk.objective": objective, "mlflow.runColor": colours(config)[trained(objective)]}
    tags |= {"maxk.seed": seed} if seed else {}
    if stage in ("sample", "verify", "score"):
        tags["maxk.dataset"] = ", ".join(config.evaluated)
    elif stage == "train":
        tags["maxk.dataset"] = ", ".join(config.training_of(objective).datasets)
    return tags


def git_tags() -> dict[str, str]:
    commit = environment.revision()
    return {"mlflow.source.git.commit": commit} if commit else {}
