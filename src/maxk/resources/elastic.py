"""A launcher of several processes that reports the end of one of them in one line.

    python -m maxk.resources.elastic torch.distributed.run --nproc-per-node 2 --module maxk train grpo --seed 0

`torchrun` and `accelerate launch` print a page after a process that has failed, although it has printed its own error,
unless a signal killed it. All processes end with it: at once, or after 30 s if they wait for it in a collective.
"""

from __future__ import annotations

import logging
import runpy
import signal
import sys

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError


def main() -> int:
    """Runs the module named by the first argument with the others; returns the exit status of the job."""
    sys.argv = sys.argv[1:]
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SignalException as error:
        return 128 + error.sigval
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode >= 0:
            return failure.exitcode
        name = signal.Signals(-failure.exitcode).name
        print(
            f"maxk train: process {rank} was killed ({name}), which ended the training; run it again, and it continues "
            "from its last checkpoint",
            file=sys.stderr,
        )
        return 128 - failure.exitcode
    return 0


if __name__ == "__main__":
    sys.exit(main())
