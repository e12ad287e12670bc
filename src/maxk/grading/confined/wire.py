"""The wire format between the grader and a fork server, declared once for both ends.

Packets on a SOCK_SEQPACKET socket:
  to the server  one byte with two memory files: the orders (marshalled, an `Order` per job) and the jobs' contents;
  to the grader  HEADER and one RESULT per run, with the memory files that hold the outputs.

The contents of a job are its head (marshalled, a `Head`) and its inputs. The server only ever sees orders, which are
numbers; it passes the contents on unread, and each child reads its own. So no program, input or output is ever in the
memory that later children inherit.
"""

from __future__ import annotations

from struct import Struct
from types import CodeType
from typing import NamedTuple

READY = b"ready"
HEADER = Struct("=QIIB")  # job, first of these runs, number of runs, whether the job ends with them
RESULT = Struct("=BBbdQQ")  # outcome, doubtful?, index of the file with the output (-1: none), CPU s, its start and end

RAN, RUNTIME_ERROR, TIME_LIMIT, MEMORY_LIMIT, OUTPUT_LIMIT, VIOLATION, UNTESTED, FAULT = OUTCOMES = range(8)
"""UNTESTED: not run, for the job used up its total time. FAULT: the program never began, for want of a resource."""

BATCH_RUNS = 32  # results are passed on no later than after so many runs


class Order(NamedTuple):
    """What the server has to know of a job."""

    id: int
    shared: bool  # whether its runs may share a process, with one another and with other such jobs
    start: int  # of its contents
    head_bytes: int
    input_bytes: list[int]  # one per run
    cpu_s: float
    wall_s: float
    total_cpu_s: float
    memory_bytes: int
    output_bytes: int


Head = tuple[str, CodeType | None, dict[str, bytes], list[str]]
"""What a child has to know of a job, besides one input: the source; its code, or None where the child compiles it;
files that `open` shall find; arguments."""
