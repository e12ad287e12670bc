"""Ctrl-C in a process that heeds it as a run does."""

from __future__ import annotations

import signal
import subprocess
import sys

PROCESS = """
import logging, signal, sys, weakref
from maxk.reporting.interruption import Interruption

class Logs:
    logger = logging.getLogger("run")
    def stop(self): print("logs end")

class Module: pass

def press(*_): signal.raise_signal(signal.SIGINT)

Interruption(Logs()).heed()
"""


def ended(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROCESS + code],
        **{"capture_output": True, "text": True, "check": False},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run in a shell's background
    )


def test_a_second_ctrl_c_does_not_disturb_the_end() -> None:
    done = ended("try: press()\nexcept SystemExit: press(); print('cleaned up'); raise\nprint('goes on')")
    assert (done.returncode, done.stdout) == (130, "cleaned up\nlogs end\n")
    assert done.stderr == "maxk: interrupted; finished work is kept, the same command continues where it stopped\n"


def test_a_second_ctrl_c_ends_a_run_that_lost_the_first() -> None:
    """Python drops what is raised in a callback, such as it runs after every import."""
    done = ended("gone = weakref.ref(Module(), press)\nprint('goes on')\npress()\nprint('goes on again')")
    assert (done.returncode, done.stdout) == (130, "goes on\nlogs end\n")
    assert done.stderr.count("maxk: interrupted") == 1
