"""A few real attacks tried at start-up: a tier is used only if it withstands them and still runs an honest program."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maxk.grading.planning import plan
from maxk.grading.tasks import PLAIN, Job
from maxk.grading.verdicts import Limits, Submission

_PROGRAM = """
import os, _socket  # all of `socket` would take longer than the attacks
attack = input()
if attack == "none":
    print("fine")
elif attack == "read a file":
    print("escaped", len(open({secret!r}).read()))
elif attack == "write a file":
    print("escaped", open({outside!r}, "w").write("x"))
elif attack == "start a process":
    if os.fork() == 0:
        os._exit(0)
    print("escaped")
elif attack == "connect to the network":
    print("escaped", _socket.socket().connect(("127.0.0.1", {port})))
elif attack == "signal the server":
    print("escaped", os.kill(os.getppid(), 0))
elif attack == "pass descriptors":
    left, right = _socket.socketpair()
    print("escaped", left.sendmsg([b"x"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, bytes(4))]))
"""
_ATTACKS = (
    "none",
    "read a file",
    "write a file",
    "start a process",
    "connect to the network",
    "signal the server",
    "pass descriptors",
)


class Escaped(Exception):
    """A tier did not withstand an attack, or could not run an honest program."""


class Bait:
    """The probe's job and its results."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._outputs: dict[int, bytes] = {}

    def job(self) -> Job:
        tests = [(attack + "\n", "") for attack in _ATTACKS]
        limits = Limits(cpu_s=5, memory_mb=64, output_bytes=1 << 16)
        job = Job(Submission(self._program, tests), limits, b"", [], PLAIN, plan(self._program, share=False))
        job.statuses = [""] * len(tests)
        return job

    def add(self, test: int, output: bytes) -> None:
        self._outputs[test] = output

    def judge(self) -> None:
        """Raises Escaped unless the honest program ran and no attack got through."""
        through = [attack for index, attack in enumerate(_ATTACKS) if b"escaped" in self._outputs.get(index, b"")]
        if through:
            raise Escaped(f"a program could {' and '.join(through)}")
        if self._outputs.get(0) != b"fine\n":
            raise Escaped("an honest program did not run")


@contextmanager
def bait() -> Iterator[Bait]:
    """A secret file, a writable folder and a listening port for the attacks to try."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        secret, outside = Path(folder, "secret"), Path(folder, "written")
        secret.write_text("secret")
        port = listener.getsockname()[1]
        yield Bait(_PROGRAM.format(secret=str(secret), outside=str(outside), port=port))
