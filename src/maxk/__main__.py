"""`python -m maxk`: the command line, also where the package is not installed."""

import gc
import signal
import sys

heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not in a shell's background
if heeded:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C within this import would end in a traceback
from maxk.cli import main  # noqa: E402

if heeded:
    signal.signal(signal.SIGINT, signal.default_int_handler)
status = main()
gc.freeze()  # otherwise the interpreter searches all objects of torch, TRL or matplotlib for cycles before it ends
sys.exit(status)
