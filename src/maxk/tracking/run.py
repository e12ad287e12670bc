"""A tracked job: what it logs is queued, sent in order, and sent again where the tracker was away.

A lost record is a pity, a lost training run a disaster: nothing here ever raises. What the tracker refuses (a changed
parameter) is lost at once; what fails because it does not answer waits for the next time, until the run ends.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from maxk.artifacts.digests import canonical
from maxk.tracking.server import reason

FLUSH_EVERY_S = 5.0
LONGEST_PAUSE_S = 300.0
_BATCH = 1000  # metrics that MLflow takes at once
_TRIES = 3
_AWAY = ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")


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

    def end(self, status: str | None) -> None:
        """Sends what waits, and ends the run as FINISHED, FAILED or KILLED; None leaves it as it is."""


class MlflowRun(Run):
    def __init__(self, client: Any, run_id: str) -> None:
        self._client, self._run_id = client, run_id
        self._metrics: list[Any] = []
        self._waiting: list[tuple[Callable[[], Any], int]] = []  # what to call, and how many records it is
        self._pause, self._next = FLUSH_EVERY_S, time.monotonic() + FLUSH_EVERY_S
        self._lost, self._complained = 0, False

    def params(self, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        entries = [Param(name, str(value)[:500]) for name, value in _flatten(params)]
        self._send(lambda: self._client.log_batch(self._run_id, params=entries))

    def metrics(self, metrics: Mapping[str, float | None], step: int = 0) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._metrics += [
            # MLflow's names admit no `@`: max@k becomes max_at_k.
            Metric(name.replace("@", "_at_"), float(value), now, step)
            for name, value in metrics.items()
            if value is not None and math.isfinite(value)
        ]
        if time.monotonic() >= self._next:
            self._flush()

    def dataset(self, name: str, path: str, digest: str, context: str) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        data = Dataset(name=name, digest=digest, source_type="local", source=canonical({"uri": path}))
        entry = DatasetInput(dataset=data, tags=[InputTag("mlflow.data.context", context)])

        def record() -> None:
            # Several jobs store the same dataset at once: a database refuses all but one, each in words of its own,
            # and the next try finds it stored. Logging an input twice is logging it once.
            for left in reversed(range(_TRIES)):
                try:
                    self._client.log_inputs(self._run_id, [entry])
                except Exception:
                    if not left:
                        raise
                else:
                    return

        self._send(record)

    def tag(self, name: str, value: str) -> None:
        self._send(lambda: self._client.set_tag(self._run_id, name, value))

    def artifact(self, path: str | Path) -> None:
        self._send(lambda: self._client.log_artifact(self._run_id, str(path)))

    def end(self, status: str | None) -> None:
        self._flush()
        self._lost += sum(weight for _, weight in self._waiting)
        self._waiting.clear()
        if self._lost:
            print(f"tracking: {self._lost} records were not kept; the results are whole", file=sys.stderr)
            self._try(lambda: self._client.set_tag(self._run_id, "maxk.lost_records", str(self._lost)))
        if status is not None:
            self._try(lambda: self._client.set_terminated(self._run_id, status))

    def _send(self, call: Callable[[], Any]) -> None:
        self._waiting.append((call, 1))
        if len(self._waiting) == 1 or time.monotonic() >= self._next:
            self._flush()

    def _flush(self) -> None:
        """Sends what waits; stops where the tracker is away, and then pauses for longer."""
        while self._metrics:
            batch, self._metrics = self._metrics[:_BATCH], self._metrics[_BATCH:]
            self._waiting.append((partial(self._client.log_batch, self._run_id, metrics=batch), len(batch)))
        while self._waiting:
            call, weight = self._waiting[0]
            error = self._try(call)
            if getattr(error, "error_code", None) in _AWAY:
                self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
                break
            del self._waiting[0]
            self._lost += weight if error is not None else 0
        else:
            self._pause = FLUSH_EVERY_S
        self._next = time.monotonic() + self._pause

    def _try(self, call: Callable[[], Any]) -> Exception | None:
        """What went wrong; the first time is told."""
        try:
            call()
        except Exception as error:
            if not self._complained:
                print(f"tracking: a record was not taken ({reason(error)}); work goes on", file=sys.stderr)
                self._complained = True
            return error
        return None


def _flatten(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in params.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
