"""A fork server's memory moves into large pages without changing, where the kernel can do it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from maxk.grading.confined.confinement import kernel_version
from maxk.grading.confined.large_pages import _regions

MAPS = """\
55d0c0000000-55d0c0001000 r-xp 00000000 fe:00 100                        /usr/bin/python3.11
55d0c1000000-55d0c1200000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
7f0000100000-7f0000101000 rw-p 00000000 00:00 0
7f0000200000-7f0000600000 r-xp 00000000 fe:00 101                        /usr/lib/a library.so
7f0000600000-7f0000700000 r-xp 00000000 fe:00 102                        /usr/lib/libsmall.so
7f0000700000-7f0000900000 r--p 00000000 fe:00 103                        /usr/lib/locale/C.utf8/LC_CTYPE
7f0000900000-7f0000b00000 rw-s 00000000 00:01 104                        /memfd:shared
7f0000c00000-7f0001c00000 r-xp 00000000 fe:00 105                        /usr/lib/libhuge.so
7ffc00000000-7ffc00200000 rw-p 00000000 00:00 0                          [stack]
"""

MOVED = """
import hashlib, json, os, sys
from maxk.grading.confined.large_pages import move_to_large_pages

kept = [{i: [str(i), (i, float(i))]} for i in range(20_000)]
before = hashlib.sha256(repr(kept).encode()).hexdigest()


def large_code():
    # files whose code is mapped in regions that are moved
    found = []
    for line in open("/proc/self/maps"):
        span, protection, *_, name = line.split()
        start, end = (int(address, 16) for address in span.split("-"))
        if protection == "r-xp" and name[0] == "/" and 2 << 20 <= end - start < 16 << 20:
            found.append(name)
    return found


code = large_code()
proc = os.open("/proc", os.O_RDONLY)
move_to_large_pages(proc)
assert hashlib.sha256(repr(kept).encode()).hexdigest() == before
kept += [[i] * 10 for i in range(50_000)]
assert json.loads(json.dumps(kept[-1])) == [49_999] * 10
pid = os.fork()
if not pid:
    kept.clear()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(json.dumps([code, large_code()]))
"""


def test_large_private_regions_are_chosen() -> None:
    assert list(_regions(MAPS)) == [
        (0x55D0C1000000, 0x55D0C1200000, 3),
        (0x7F0000000000, 0x7F0000100000, 3),
        (0x7F0000200000, 0x7F0000600000, 5),
    ]


def code_before_and_after(script: str) -> list[list[str]]:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(kernel_version() < (6, 1), reason="the kernel cannot make large pages on request")
def test_a_process_works_on_after_its_memory_has_moved() -> None:
    before, after = code_before_and_after(MOVED)
    assert before  # the interpreter's own code
    assert after == []  # what has moved has no file


@pytest.mark.skipif(kernel_version() < (6, 3), reason="the kernel cannot refuse it")
def test_code_stays_where_it_may_not_be_in_anonymous_memory() -> None:
    refuse = "import ctypes\nassert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0  # PR_SET_MDWE\n"
    before, after = code_before_and_after(refuse + MOVED)
    assert before == after != []


REFUSED = """
import pyseccomp
filter = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
filter.add_rule(pyseccomp.ERRNO(1), {call!r})
filter.load()
"""
REFUSED_EXECUTION = """
import pyseccomp
filter = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
filter.add_rule(pyseccomp.ERRNO(1), "mprotect", pyseccomp.Arg(2, pyseccomp.MASKED_EQ, 4, 4))  # PROT_EXEC
filter.load()
"""
REFUSALS = {call: REFUSED.format(call=call) for call in ("mremap", "madvise", "munmap", "mincore")}
REFUSALS["mprotect"] = REFUSED_EXECUTION
LEAVES_CODE = {"mremap", "madvise", "mprotect"}
WITHOUT_CONTEXTS = """
import ctypes
class Library(ctypes.PyDLL):
    def __getattr__(self, name):
        if name.endswith("context"):
            raise AttributeError(name)
        return super().__getattr__(name)
ctypes.PyDLL = Library
"""
GRADED = r"""
from maxk.grading import Grader
programs = ["print(int(input()) + 1)", "class A: pass\nprint(int(input()) + 1)"]
with Grader(workers=1, sandbox="landlock") as grader:
    print([verdict.reward for verdict in grader.grade([(program, [("1", "2")] * 3) for program in programs])])
"""


@pytest.mark.skipif(kernel_version() < (6, 1), reason="the kernel cannot make large pages on request")
@pytest.mark.parametrize("call", REFUSALS)
def test_a_refused_call_leaves_the_memory_as_it_was(call: str) -> None:
    before, after = code_before_and_after(REFUSALS[call] + MOVED)
    assert before
    assert after == (before if call in LEAVES_CODE else [])


def test_a_library_without_contexts_leaves_the_memory_as_it_was() -> None:
    """As musl is."""
    before, after = code_before_and_after(WITHOUT_CONTEXTS + MOVED)
    assert before == after != []


@pytest.mark.parametrize("call", REFUSALS)
def test_a_server_works_where_a_call_is_refused(call: str) -> None:
    """A container's own filter holds for the server, too."""
    script = REFUSALS[call] + GRADED
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "[1.0, 1.0]\n", done.stderr[-2000:]
