"""`python -m maxk`: the command line, also where the package is not installed."""

import gc
import sys

from maxk.cli import main

status = main()
gc.freeze()  # otherwise the interpreter searches all objects of torch, TRL or matplotlib for cycles before it ends
sys.exit(status)
