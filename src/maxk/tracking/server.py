"""Which MLflow an experiment uses, and how it is spoken to.

`MLFLOW_TRACKING_URI` names a server or a database; without it there is SQLite in the experiment's folder. A password in
it stays in the environment: what is stored or printed is the address without it, and jobs find the whole one where they
were started. User name and password of a server can also be given as `MLFLOW_TRACKING_USERNAME` and
`MLFLOW_TRACKING_PASSWORD`, or as `MLFLOW_TRACKING_TOKEN`, which MLflow itself reads.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maxk.artifacts import files
from maxk.config import Config

# A job that logs to a server that is gone must not wait for minutes (MLflow: 120 s a call, seven tries); and nothing is
# told to third parties.
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_SECRETS = (
    (re.compile(r"(https?://)[^/\s]*@"), r"\1"),
    (re.compile(r"(://[^:/?#\s]*):\S*@"), r"\1@"),
    (re.compile(r"([?&](?:\w*password|\w*token)=)[^&\s]*", re.IGNORECASE), r"\1…"),
)


def address(config: Config) -> str:
    """The whole URI, password included: for MLflow alone."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{config.layout.root}/mlflow.db"


def address_of(where: Mapping[str, Any]) -> str:
    """The URI that `tracking.json` names, with the environment's password where it is the same."""
    given = os.environ.get("MLFLOW_TRACKING_URI", "")
    return given if without_secrets(given) == where["uri"] else str(where["uri"])


def without_secrets(text: str) -> str:
    """The text with credentials of the URIs in it left out; a database's user name stays."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def is_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def artifacts_of(config: Config, uri: str) -> str | None:
    """Where artifacts go: a server says so itself (None), beside a database they stand in the experiment's folder."""
    return None if is_server(uri) else (Path(config.layout.root) / "mlartifacts").absolute().as_uri()


def client(uri: str) -> Any:
    """A client. Its errors are raised, so what MLflow and Alembic log of them is kept from the terminal."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):  # after the import, which sets them up
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return MlflowClient(uri)


def database_of(uri: str) -> Path | None:
    """The file of an SQLite database; None for anything else."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def make(uri: str) -> None:
    """Makes an SQLite database that is not there, whole or not at all: half a schema would be of no use to anyone."""
    path = database_of(uri)
    if path is not None and not path.exists():
        with files.atomic(path) as temporary:
            client(f"sqlite:///{temporary}").search_experiments(max_results=1)


def ask(uri: str) -> None:
    """Asks whether MLflow is there, or an SQLite database could be made. Raises what it raises."""
    path = database_of(uri)
    if path is not None and not path.exists():
        above = next(parent for parent in path.absolute().parents if parent.exists())
        tempfile.TemporaryFile(dir=above).close()
        return
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    client(uri).search_experiments(max_results=1)


def reason(error: Exception) -> str:
    """An error's first line, without secrets."""
    return without_secrets((str(error).strip().splitlines() or [type(error).__name__])[0])
