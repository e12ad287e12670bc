"""`maxk ui`: the MLflow page of an experiment; sends new events to it until stopped.

If `MLFLOW_TRACKING_URI` names a server, prints the link of its page; for a database, serves the page on this machine.

    maxk ui                                        # the default experiment
    maxk ui --config config/mini.yaml
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from maxk import config as configuration
from maxk.artifacts import files
from maxk.errors import UserError

SEND_EVERY_S = 10.0
# Every user of the machine can open the page on 127.0.0.1. MLflow's assistant can run shell commands, so it is allowed
# in a container only, and the server does nothing but show what was tracked.
_CLOSED = {
    "MLFLOW_ENABLE_ASSISTANT_SANDBOX": "true",
    "MLFLOW_ENABLE_AI_GATEWAY": "false",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=5000, help="port of the page (default: 5000)")


def run(args: argparse.Namespace) -> None:
    from maxk.tracking import mirror, page, server

    config = configuration.load(args.config)
    if not config.tracking.enabled:
        raise UserError("tracking.enabled is false: nothing was tracked; set it to true and run again")
    where = files.read_json(config.layout.tracking)
    uri, local = server.address_of(where), f"http://127.0.0.1:{args.port}"
    server.relocate(config, uri)
    remote = server.is_server(uri)
    print(f"{page.link(where['uri'] if remote else local, where['experiment_id'])}  (Ctrl-C stops)", flush=True)
    with contextlib.nullcontext() if remote else serving(uri, args.port) as process:
        while process is None or process.poll() is None:
            try:
                mirror.send(config)
            except Exception as error:  # tried again
                print(f"tracking: not sent ({server.reason(error)})", file=sys.stderr)
            time.sleep(SEND_EVERY_S)


@contextlib.contextmanager
def serving(uri: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """MLflow's server for a database, for this machine only. The URI goes by the environment: `ps` shows arguments."""
    from maxk.tracking import server

    environment = {**os.environ, **server.SETTINGS, **_CLOSED, "MLFLOW_BACKEND_STORE_URI": uri}
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # with its workers
        process.wait()
