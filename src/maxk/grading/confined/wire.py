"""The wire format between the grader and a fork server, declared once for both ends.

Packets on a SOCK_SEQPACKET socket:
  to the server  one byte with two memory files: the orders (marshalled, an `Order` per job) and the jobs' contents;
  to the grader  HEADER and one RESULT per run, with the memory files that hold the outputs.

A server reports the runs of a job in order, each once. It may hand a job back, that is, send a last packet with runs
left, in two cases: a run of the job has timed out, and the others may run elsewhere (`Order.divisible`); or the job
shares a process with others, and one of those has timed out before this one began. The second packet has no RESULT.

The contents of a job are its head (marshalled, a `Head`) and its inputs. The server reads only the orders, which are
numbers, and passes the contents on unread; each child reads its own. So no program, input or output is ever in memory
that later children inherit.
"""

from __future__ import annotations

from struct import Struct
from types import CodeType
from typing import NamedTuple

READY = b"ready"
HEADER = Struct("=QIIB")  # job, index of the first run, number of runs, whether the server is done with the job
RESULT = Struct("=BBbdQQ")  # outcome, doubtful?, index of the file with the output (-1: none), CPU s, its start and end

RAN, RUNTIME_ERROR, TIME_LIMIT, MEMORY_LIMIT, OUTPUT_LIMIT, VIOLATION, UNTESTED, FAULT = OUTCOMES = range(8)
"""UNTESTED: not run, because the job used up its total time. FAULT: never began, because a resource was missing."""

BATCH_RUNS = 32  # results are sent at the latest after this many runs


class Order(NamedTuple):
    """What the server needs to know about a job."""

    id: int
    shared: bool  # whether its runs may share a process, with one another and with other such jobs
    divisible: bool  # whether its runs may be handed back
    start: int  # of its contents
    head_bytes: int
    input_bytes: list[int]  # one per run
    cpu_s: float
    wall_s: float
    total_cpu_s: float
    memory_bytes: int
    output_bytes: int


Head = tuple[str, CodeType | None, dict[str, bytes], list[str]]
"""What a child needs to know about a job besides one input: the source; its code, or None if the child compiles it;
files that `open` must find; arguments."""
