"""Ctrl-C during a run of the pipeline. The Snakefile imports it before anything that takes time."""

from __future__ import annotations

import atexit
import signal
import sys
import threading
from typing import Any

STATUS = 128 + signal.SIGINT  # of a run that Ctrl-C has ended
_CALLBACK_S = 0.05  # by then a callback has ended


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
            sys.unraisablehook = self._once_more

    def _end(self, *_: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # ending takes some seconds, which another one would not shorten
        if not self.came:
            atexit.register(self.tell)
        self.came = self._logs.logger.disabled = True
        raise SystemExit(STATUS)  # Snakemake takes it for Ctrl-C, and has no traceback for it

    def _once_more(self, lost: Any) -> None:
        """Repeats Ctrl-C where Python has dropped its exception: in a callback, such as runs after every import."""
        if not (self.came and lost.exc_type is SystemExit):
            sys.__unraisablehook__(lost)
            return
        signal.signal(signal.SIGINT, self._end)
        main = threading.main_thread().ident
        timer = threading.Timer(_CALLBACK_S, signal.pthread_kill, [main, signal.SIGINT])
        timer.daemon = True
        timer.start()

    def tell(self) -> None:
        """Prints the line, once; the progress bars, which would overwrite it, are ended before."""
        if not self._told:
            self._told = True
            self._logs.stop()
            print(
                "maxk: interrupted; finished work is kept, the same command continues where it stopped", file=sys.stderr
            )
