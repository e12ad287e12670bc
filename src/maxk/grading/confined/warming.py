"""Runs a small program in the server itself, before any other, in the way that children run programs.

Children then inherit the interpreter's caches (method look-ups, adapted bytecode). Otherwise each child would build
them again, on memory pages that must be copied for it.
"""

from __future__ import annotations

import marshal
import os
import sys

from maxk.grading.confined.confinement import SystemCall
from maxk.grading.confined.execution import SingleRun, finish
from maxk.grading.confined.jobs import Job, memory_file
from maxk.grading.confined.wire import Head, Order

_TIMES = 20  # bytecode adapts after a few
_INPUT = b"3 4\n1 2 3\nword other\n5\n"
_PROGRAM = """
import sys
from collections import defaultdict, deque

def solve(values, k):
    counts, seen = defaultdict(int), set()
    for index, value in enumerate(values):
        counts[value] += index
        seen.add(value)
    queue = deque(values)
    while queue and queue.popleft() < k:
        pass
    return sorted(seen, key=lambda value: -value), dict(counts), [[0] * k for _ in range(2)]

n, k = map(int, input().split())
values = list(map(int, input().split()))
ordered, counts, table = solve(values, k)
print(*ordered)
print(sum(values), max(values), min(values), len(table), abs(-1), " ".join(map(str, values)))
word = input().strip()
print(f"{word} {n}", "YES" if word[::-1] == word else "NO", sep=" ", end="\\n")
data = sys.stdin.read().split()
sys.stdout.write("\\n".join(str(int(x) % 7) for x in data) + "\\n")
"""


def warm_up() -> None:
    """Runs the program. Leaves standard input and output changed; the caller must restore them."""
    main = sys.modules["__main__"]
    head: Head = _PROGRAM, compile(_PROGRAM, "main.py", "exec"), {}, []
    packed = marshal.dumps(head)
    contents = memory_file()
    os.write(contents, packed + _INPUT)
    order = Order(0, False, False, 0, len(packed), [len(_INPUT)], 1.0, 1.0, 1.0, 1, 1)
    job = Job(order, contents)
    run = SingleRun(job, [SystemCall.nothing()] * 8)
    stdin = job.stdin(0)
    os.dup2(stdin, 0)
    for _ in range(_TIMES):
        sys.stdin.seek(0)
        attempt = next(run.attempts())
        exec(attempt.code, attempt.namespace)
        finish(attempt)
    for fd in (stdin, contents):
        os.close(fd)
    sys.modules["__main__"] = main
