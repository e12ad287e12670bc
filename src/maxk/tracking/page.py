"""The experiment's page in MLflow: what it shows as it opens, and how it is opened.

MLflow keeps named views (filter, order, columns, charts) as tags of the experiment, in the form that its page saves
them in; they stand in the page's menu "Views", and a link may name one. There are two: *Scores*, the runs with max@k
against k, and *Training*, the runs with their curves. The form is MLflow's own and no promise of it: it is that of the
pinned version, and an older or newer page says that it cannot read a view and shows its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import webbrowser
from collections.abc import Iterator, Sequence
from typing import IO, Any

from maxk.artifacts import files
from maxk.config import Config
from maxk.errors import UserError
from maxk.tracking import server

# A page on 127.0.0.1 is open to every user of the machine. MLflow's assistant would run shell commands for them: it may
# in a container alone. Nor is anything served but what was tracked.
_CLOSED = {
    "MLFLOW_ENABLE_ASSISTANT_SANDBOX": "true",
    "MLFLOW_ENABLE_AI_GATEWAY": "false",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
NOTE_TAG = "mlflow.note.content"
START_TIMEOUT_S = 600.0  # PostgreSQL on a machine under load took more than two minutes
CURVES = ("reward", "kl", "entropy", "frac_reward_zero_std", "completions/mean_length", "grad_norm")
FINALS = ("reward", "kl", "entropy")  # of the last step, as the train stage logs them


def tags(config: Config) -> dict[str, str]:
    """Tags of the experiment: its kind and its views."""
    now = int(time.time() * 1000)
    views = {
        "maxk-scores": ("Scores: max@k of every policy", _scores(config)),
        "maxk-training": ("Training: curves of every policy", _training()),
    }
    return {
        # MLflow's page opens on what such experiments log: runs and charts, not traces of conversations.
        "mlflow.experimentKind": "custom_model_development",
        **{
            f"mlflow.sharedViewState.{key}": json.dumps({"name": name, "createdAt": now, "state": json.dumps(state)})
            for key, (name, state) in views.items()
        },
    }


def link(base: str, experiment_id: str) -> str:
    """The page of an experiment on the server at `base`, with the scores and their charts."""
    options = "viewStateShareKey=maxk-scores&workflowType=machine_learning&compareRunsMode=CHART"
    return f"{base.rstrip('/')}/#/experiments/{experiment_id}/runs?{options}"


def _scores(config: Config) -> dict[str, Any]:
    headline = f"max_at_{config.report.headline_k}"
    curves = [f"{place}/max_at_k" for place in ("mean", *config.evaluated)]
    columns = ["tags.`maxk.objective`", "tags.`maxk.seed`", "metrics.`max_at_1`", f"metrics.`{headline}`"]
    return {
        "searchFilter": "tags.`maxk.stage` = 'score'",
        "orderByKey": f"metrics.`{headline}`",
        "orderByAsc": False,
        "selectedColumns": [*columns, "tags.`maxk.sandbox`"],
        **_charts("max@k against k", curves, log=True),
    }


def _training() -> dict[str, Any]:
    columns = ["tags.`maxk.objective`", "tags.`maxk.seed`", *(f"metrics.`final/{key}`" for key in FINALS)]
    return {
        "searchFilter": "tags.`maxk.stage` = 'train'",
        "orderByKey": "tags.`maxk.objective`",
        "orderByAsc": True,
        "selectedColumns": columns,
        **_charts("Training", CURVES, log=False),
    }


def _charts(title: str, metrics: Sequence[str], log: bool) -> dict[str, Any]:
    """One section of line charts, a metric each, against the step."""
    section = f"maxk {title}"
    cards: list[dict[str, Any]] = [
        {
            "uuid": f"{section} {metric}",
            "type": "LINE",
            "runsCountToCompare": 20,
            "metricSectionId": section,
            "deleted": False,
            "isGenerated": True,
            "displayName": metric.removesuffix("/max_at_k"),
            "metricKey": metric,
            "selectedMetricKeys": [metric],
            "xAxisKey": "step",
            "xAxisScaleType": "log" if log else "linear",
            "scaleType": "linear",
            "lineSmoothness": 0,
            "useGlobalXaxisKey": False,
            "useGlobalLineSmoothing": True,
            "displayPoints": log,
            "range": {},
        }
        for metric in metrics
    ]
    return {
        "compareRunCharts": cards,
        "compareRunSections": [{"uuid": section, "name": title, "display": True, "isReordered": True}],
        "isAccordionReordered": True,  # or sections that MLflow adds would stand before ours
        "runsHiddenMode": "FIRST_20_RUNS",
    }


# ------------------------------------------------------------------------------------------------------- opening it
def show(config: Config, port: int) -> None:
    """Prints the page's link and opens a browser, where there is a display; serves a database's page until stopped.

    Raises UserError where nothing was tracked or the page does not come up.
    """
    where = files.read_json(config.layout.tracking)
    if not where["enabled"]:
        raise UserError("tracking.enabled is false: nothing was tracked; set it to true and run again")
    uri = server.address_of(where)
    if server.is_server(uri):
        _present(link(where["uri"], where["experiment_id"]))
        return
    with serving(uri, _free(port)) as base:
        _present(link(base, where["experiment_id"]))
        print("stop it by Ctrl-C", file=sys.stderr)
        signal.pause()


def _present(url: str) -> None:
    print(url, flush=True)
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)


def _free(port: int) -> int:
    """The port, or another where it is taken."""
    for wanted in (port, 0):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", wanted)) as one:
            return int(one.getsockname()[1])
    raise UserError("no port of 127.0.0.1 can be had")


@contextlib.contextmanager
def serving(uri: str, port: int) -> Iterator[str]:
    """MLflow's server for a database, on this machine alone; the address goes by the environment, not by `ps`."""
    base = f"http://127.0.0.1:{port}"
    environment = {**os.environ, **server.SETTINGS, **_CLOSED, "MLFLOW_BACKEND_STORE_URI": uri}
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(command, env=environment, stdout=words, stderr=words, start_new_session=True)
        try:
            _await(base, process, words)
            yield base
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # its workers, too
            process.wait()


def _await(base: str, process: subprocess.Popen[bytes], words: IO[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{base}/health", timeout=5):
            return
        time.sleep(0.2)
    words.seek(0)
    said = words.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
    raise UserError(f"MLflow's page did not come up ({server.without_secrets(said[-1])})")
