"""Ctrl-C in a process that heeds it as a run does."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROCESS = """
import atexit, logging, os, signal, sys, threading, time, weakref
from maxk.reporting.interruption import Interruption

class Logs:
    logger = logging.getLogger("run")
    def stop(self): print("logs end")

class Module: pass

def press(*_): signal.raise_signal(signal.SIGINT)
def kill(): os.kill(os.getpid(), signal.SIGINT)

Interruption(Logs()).heed()
"""


def ended(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROCESS + code],
        **{"capture_output": True, "text": True, "check": False},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run in a shell's background
    )


LINE = "maxk: interrupted; finished work is kept, the same command continues where it stopped\n"


@pytest.mark.parametrize(
    "code",
    [
        "try: press()\nexcept SystemExit: press(); print('cleaned up'); raise",
        "try: press()\nexcept SystemExit:\n  try: {}['a']\n  except KeyError: press(); print('cleaned up')\n  raise",
        "try: press()\nexcept SystemExit: pass\npress(); print('cleaned up'); sys.exit(130)",
        "atexit.register(lambda: (press(), print('cleaned up')))\npress()",
        "threading.Thread(target=lambda: (time.sleep(0.2), kill(), print('cleaned up'))).start()\npress()",
    ],
    ids=["handler", "nested", "caught", "atexit", "threads"],
)
def test_a_second_ctrl_c_does_not_disturb_the_end(code: str) -> None:
    done = ended(code)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (130, ["cleaned up", "logs end"])
    assert done.stderr == LINE


def test_ctrl_c_counts_while_another_exit_is_handled() -> None:
    done = ended("try: sys.exit(1)\nexcept SystemExit: press()")
    assert (done.returncode, done.stderr) == (130, LINE)


def test_ctrl_c_that_python_loses_ends_the_run() -> None:
    """Python drops what is raised in a callback, such as it runs after every import."""
    done = ended("gone = weakref.ref(Module(), press)\ntime.sleep(60)\nprint('goes on')")
    assert (done.returncode, done.stdout, done.stderr) == (130, "logs end\n", LINE)


def test_other_dropped_exceptions_are_reported() -> None:
    done = ended("gone = weakref.ref(Module(), lambda _: {}['a'])")
    assert done.returncode == 0
    assert "KeyError" in done.stderr
