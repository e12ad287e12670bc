"""Holes that an attack on the grader found: each program got, or nearly got, what it should not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from maxk.grading import CheckerProgram, Grader, Limits, Submission, VerdictCache
from maxk.grading.pool import CHECKER, PLAIN

EQUAL = "import sys\nprint(int(open(sys.argv[2]).read().split() == open(sys.argv[3]).read().split()))\n"


def test_no_program_is_forked_from_a_server_that_held_expected_outputs() -> None:
    """Checkers read expected outputs, and a server's freed memory is inherited by its children."""
    with Grader(workers=1) as grader:
        checked = [Submission(f"print({i})", [("", "1")], checker=CheckerProgram(EQUAL)) for i in range(3)]
        assert [verdict.reward for verdict in grader.grade(checked)] == [0.0, 1.0, 0.0]
        kinds = {process.kind: process for process in grader._servers}
        assert set(kinds) == {PLAIN, CHECKER}
        assert kinds[PLAIN].process is not kinds[CHECKER].process


def test_expected_outputs_are_not_in_a_programs_memory() -> None:
    secret = "KEY=" + " ".join(str(i * 7919 % 1000) for i in range(400)) + " =END"
    scan = """
import ctypes, os
r, w = os.pipe()
libc = ctypes.CDLL(None)
found = b"none"
for centre, span in ((id(b"x" * 3000), 8 << 20), (id(object()), 4 << 20)):
    for at in range((centre - span) & ~4095, centre + span, 4096):
        if libc.write(w, ctypes.c_void_p(at), 4096) == 4096:
            page = os.read(r, 4096)
            where = page.find(b"KEY" + b"=")
            if where >= 0 and page[where + 4 : where + 5].isdigit():
                found = page[where : where + 40]
print(found)
"""
    with Grader(Limits(cpu_s=8.0), workers=1) as grader:
        tests = [("q\n", secret)]
        grader.grade([Submission("print('nope')", tests, checker=CheckerProgram(EQUAL))])
        [verdict] = grader.grade([Submission(scan, [("q\n", "b'none'")])])
        assert verdict.statuses == ("passed",)


def test_a_slow_reader_gets_every_verdict() -> None:
    """Descriptors in flight are bounded by the kernel; a server that hit the bound once died."""
    with Grader(workers=1, mode="fork") as grader:
        submissions = [
            Submission(f"print(input())\n#{j}", [(f"{i}\n", f"{i}\n") for i in range(400 if j == 0 else 3)])
            for j in range(4)
        ]
        for _, verdict in grader.grade_iter(submissions):
            assert verdict.reward == 1.0
            time.sleep(0.5)
        assert grader.stats.restarts == 0


def test_checker_functions_are_never_mistaken_for_one_another() -> None:
    def wants(k: int) -> Any:
        return lambda stdin, expected, output: output.strip() == str(k)

    with Grader(workers=1) as grader:
        submissions = (Submission("print(0)", [("", "")], checker=wants(0 if i < 300 else 1)) for i in range(600))
        verdicts = dict(grader.grade_iter(submissions))
        assert [verdicts[i].reward for i in range(600)] == [1.0] * 300 + [0.0] * 300


def test_flags_of_stderr_do_not_pass_to_the_next_program() -> None:
    mark = "import fcntl, os\nflags = fcntl.fcntl(2, fcntl.F_GETFL)\n"
    mark += "print(bool(flags & os.O_APPEND))\nfcntl.fcntl(2, fcntl.F_SETFL, flags | os.O_APPEND)\n"
    with Grader(workers=1, mode="fork") as grader:
        for _ in range(2):
            [verdict] = grader.grade([(mark, [("", "False"), ("1", "False")])])
            assert set(verdict.statuses) == {"passed"}


def test_what_an_execution_leaves_does_not_weigh_on_the_next() -> None:
    hoard = "def keep(): return b\nb = 0\ntry:\n    b = bytes(900 << 20)\n    print('ok')\n"
    hoard += "except Exception:\n    print('full')"
    tests = [(str(i), "ok") for i in range(3)]
    verdicts = []
    for mode in ("auto", "fork"):
        with Grader(Limits(memory_mb=600), workers=1, mode=mode) as grader:
            verdicts += grader.grade([(hoard, tests)])
    assert verdicts[0] == verdicts[1]


def test_verdicts_of_one_mode_are_not_served_to_the_other(tmp_path: Path) -> None:
    with VerdictCache(tmp_path / "v.sqlite") as cache:
        for mode in ("auto", "fork"):
            with Grader(workers=1, mode=mode, cache=cache) as grader:
                grader.grade([("print(1)", [("", "1")])])
                assert grader.stats.cached == 0
        assert len(cache) == 2
