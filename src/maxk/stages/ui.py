"""`maxk ui`: the MLflow page of an experiment; sends new events to it until stopped.

If `MLFLOW_TRACKING_URI` names a server, prints the links of its page; for a database, serves the page on this machine
and prints them when it answers.

    maxk ui                                        # the default experiment
    maxk ui --config config/mini.yaml
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

from maxk import config as configuration
from maxk.artifacts import files
from maxk.errors import UserError
from maxk.stages.grade import up_to

SEND_EVERY_S = 10.0
# Every user of the machine can open the page on 127.0.0.1. MLflow's assistant can run shell commands, so it is allowed
# in a container only, and the server does nothing but show what was tracked.
_CLOSED = {
    "MLFLOW_ENABLE_ASSISTANT_SANDBOX": "true",
    "MLFLOW_ENABLE_AI_GATEWAY": "false",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
_QUIET = {"PYTHONWARNINGS": "ignore"}  # of MLflow's libraries about one another


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=up_to(65535, int), default=5000, help="port of the page (default: 5000)")


def run(args: argparse.Namespace) -> None:
    from maxk.tracking import mirror, page, server

    config = configuration.load(args.config)
    if not config.tracking.enabled:
        raise UserError("tracking.enabled is false: nothing was tracked; set it to true and run again")
    where = files.read_json(config.layout.tracking)
    uri, local = server.address_of(where), f"http://127.0.0.1:{args.port}"
    server.relocate(config, uri)
    remote = server.is_server(uri)
    with contextlib.nullcontext() if remote else serving(uri, args.port) as process:
        if process is not None:
            _wait_for(process, local)
        for view in page.VIEWS:
            print(f"{view}: {page.link(where['uri'] if remote else local, where['experiment_id'], view)}")
        print("(Ctrl-C stops)", flush=True)
        while process is None or process.poll() is None:
            try:
                mirror.send(config)
            except Exception as error:  # tried again
                print(f"tracking: not sent ({server.reason(error)})", file=sys.stderr)
            time.sleep(SEND_EVERY_S)
        raise UserError(f"MLflow's server has ended (above), with exit status {process.returncode}")


def _wait_for(process: subprocess.Popen[bytes], address: str) -> None:
    """Returns when the server answers. Raises UserError if it ends before."""
    print("MLflow starts, which takes some seconds …", file=sys.stderr, flush=True)
    while process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5):
            return
        time.sleep(0.2)
    raise UserError(f"MLflow's server ended before it answered (above), with exit status {process.returncode}")


@contextlib.contextmanager
def _reserved(port: int) -> Iterator[None]:
    """Raises UserError if a server has the port: its page would be taken for ours.

    An abstract socket keeps other `maxk ui` from the port, which MLflow takes only after seconds.
    """
    with socket.socket(socket.AF_UNIX) as held:
        try:
            held.bind(f"\0maxk-ui-{port}")
            socket.create_server(("127.0.0.1", port)).close()
        except OSError as error:
            raise UserError(f"--port {port} cannot be used ({os.strerror(error.errno or 0)}); choose another") from None
        yield


@contextlib.contextmanager
def serving(uri: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """MLflow's server for a database, for this machine only. The URI goes by the environment: `ps` shows arguments."""
    from maxk.tracking import server

    environment = {**os.environ, **server.SETTINGS, **_CLOSED, **_QUIET, "MLFLOW_BACKEND_STORE_URI": uri}
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--uvicorn-opts", "--log-level warning"]
    with _reserved(port):
        process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=2)  # stdout: links only
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended itself
                os.killpg(process.pid, signal.SIGTERM)  # with its workers
            process.wait()
