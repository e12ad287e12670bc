"""Ctrl-C during a run of the pipeline. The Snakefile imports it before anything that takes time."""

from __future__ import annotations

import atexit
import signal
import sys
import threading
from typing import Any

STATUS = 128 + signal.SIGINT  # of a run that Ctrl-C has ended


class Interruption:
    """Ctrl-C ends a run with one line, and with `STATUS`.

    The jobs are interrupted as well, and Snakemake would report each of them as failed. `logs` is its logger manager.
    """

    def __init__(self, logs: Any) -> None:
        self._logs = logs
        self.came = self._told = False

    def heed(self) -> None:
        """Takes Ctrl-C over from Python."""
        heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not in a shell's background
        if heeded and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._end)

    def _end(self, *_: Any) -> None:
        if isinstance(sys.exception(), SystemExit):
            return  # it is ending, which takes some seconds; another one would not shorten them
        self.came = self._logs.logger.disabled = True
        atexit.register(self.tell)
        # Snakemake takes it for Ctrl-C, and has no traceback for it. It is lost where it comes while Python runs a
        # callback, as after every import; then the next Ctrl-C ends the run.
        raise SystemExit(STATUS)

    def tell(self) -> None:
        """Prints the line, once; the progress bars, which would overwrite it, are ended before."""
        if not self._told:
            self._told = True
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # also for the commands that end the run
            self._logs.stop()
            print(
                "maxk: interrupted; finished work is kept, the same command continues where it stopped", file=sys.stderr
            )
