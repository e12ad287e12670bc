"""`maxk`, and `python -m maxk` where the package is not installed: imports and runs the command line."""

import gc
import signal
import sys


def main() -> int:
    """Runs a subcommand; returns the exit status. Ctrl-C within the import of the command line ends it silently."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not in a shell's background
    if heeded:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C within this import would end in a traceback
    from maxk import cli

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    status = cli.main()
    gc.freeze()  # otherwise the interpreter searches all objects of torch, TRL or matplotlib for cycles before it ends
    return status


if __name__ == "__main__":
    sys.exit(main())
