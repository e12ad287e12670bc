"""Which MLflow an experiment uses, and how to reach it.

`MLFLOW_TRACKING_URI` names a server or a database; without it, SQLite in the experiment's folder is used. A password in
the URI stays in the environment: stored and printed addresses come without it. MLflow itself reads a server's user name
and password from `MLFLOW_TRACKING_USERNAME` and `MLFLOW_TRACKING_PASSWORD`, or a token from `MLFLOW_TRACKING_TOKEN`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maxk.artifacts import environment, files
from maxk.config import Config

# The end of a run must not wait for minutes for a server that is gone (MLflow: 120 s per call, seven retries), and no
# usage data is sent to third parties.
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_OPTIONAL = ("matplotlib", "pandas", "scipy", "sklearn")  # mlflow-skinny, which is the client, runs without them
_SECRETS = (
    (re.compile(r"(https?://)[^/\s]*@"), r"\1"),
    (re.compile(r"(://[^:/?#\s]*):\S*@"), r"\1@"),
    (re.compile(r"([?&](?:\w*password|\w*token)=)[^&\s]*", re.IGNORECASE), r"\1…"),
)


def address(config: Config) -> str:
    """The URI with its password, for MLflow only."""
    return os.environ.get("MLFLOW_TRACKING_URI") or own(config)


def own(config: Config) -> str:
    """The URI of the database in the experiment's folder."""
    return f"sqlite:///{config.layout.root}/mlflow.db"


def address_of(where: Mapping[str, Any]) -> str:
    """The URI in `tracking.json`, with the password of the environment's URI if that is the same address."""
    given = os.environ.get("MLFLOW_TRACKING_URI", "")
    return given if without_secrets(given) == where["uri"] else str(where["uri"])


def without_secrets(text: str) -> str:
    """The text without the credentials of URIs in it; the user name of a database stays."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def is_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def artifacts_of(config: Config, uri: str) -> str | None:
    """Artifact location: for a server its own (None), for a database the experiment's folder."""
    return None if is_server(uri) else (Path(config.layout.root) / "mlartifacts").absolute().as_uri()


def relocate(config: Config, uri: str) -> None:
    """Sends artifacts of the folder's own database to this folder: MLflow stores absolute paths, which a copied or
    moved folder takes along.
    """
    if uri != own(config) or _missing_database(uri):
        return
    here = artifacts_of(config, uri)
    with contextlib.closing(sqlite3.connect(uri.removeprefix("sqlite:///"), timeout=30)) as database, database:
        stored = "SELECT artifact_location FROM experiments WHERE name = ? AND artifact_location <> ?"
        for (there,) in database.execute(stored, (experiment_name(config), here)).fetchall():
            database.execute(
                "UPDATE experiments SET artifact_location = ?1 WHERE artifact_location = ?2", (here, there)
            )
            runs = "UPDATE runs SET artifact_uri = ?1 || substr(artifact_uri, length(?2) + 1)"
            database.execute(f"{runs} WHERE substr(artifact_uri, 1, length(?2)) = ?2", (here, there))


def experiment_name(config: Config) -> str:
    """The name of the experiment in MLflow."""
    return f"maxk-{config.name}"


def client(uri: str) -> Any:
    """An MLflow client. It raises its errors, so the log messages of MLflow and Alembic are silenced."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    with environment.importing(without=_OPTIONAL):
        from mlflow import MlflowClient

        for name in ("mlflow", "alembic"):  # after the import, which sets them up
            logging.getLogger(name).setLevel(logging.CRITICAL)
        return MlflowClient(uri)  # imports the modules of the kind of store that the URI names


def _missing_database(uri: str) -> Path | None:
    """The file of an SQLite database that does not exist yet."""
    path = Path(uri.removeprefix("sqlite:///"))
    return path if uri.startswith("sqlite:///") and not path.exists() else None


def make(uri: str) -> None:
    """Creates a missing SQLite database atomically: a half-created schema would be unusable."""
    if (path := _missing_database(uri)) is not None:
        with files.atomic(path) as temporary:
            client(f"sqlite:///{temporary}").search_experiments(max_results=1)


def ask(uri: str) -> None:
    """Raises MLflow's error unless it responds; an SQLite database may be missing."""
    if _missing_database(uri) is None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        client(uri).search_experiments(max_results=1)


def reason(error: Exception) -> str:
    """The first line of an error message, without secrets."""
    return without_secrets((str(error).strip().splitlines() or [type(error).__name__])[0])
