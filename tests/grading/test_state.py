"""No program carries anything from one test to the next: it gets no shared process or cannot tell that it has one."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from state_programs import PROGRAMS

from maxk.grading import Grader, Limits, Submission
from maxk.grading.confined import wire
from maxk.grading.connection import Report, Server
from maxk.grading.sharing.language import refusal

INPUTS = ("1\n", "2\n", "3\n", "1\n")
NAMES = [name for name, _ in PROGRAMS]
ADMITTED = {name for name, source in PROGRAMS if refusal(ast.parse(source)) is None}


@pytest.fixture(scope="module")
def happened() -> dict[str, Any]:
    """By mode: statuses and outputs of every program; and who got a result from a process that ran several tests."""
    found: dict[str, Any] = {"shared": set()}
    receive = Server.receive

    def watched(self: Server) -> Report:
        report = receive(self)
        for run in report.runs:
            if run.start > 0 and run.outcome == wire.RAN:  # its output follows that of an earlier run
                found["shared"].add(report.task.submission.program)
        return report

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Server, "receive", watched)
        for mode in ("auto", "fork"):
            outputs: dict[str, list[str]] = {name: [] for name in NAMES}
            submissions = []
            for name, source in PROGRAMS:

                def keep(stdin: str, expected: str, output: str, kept: list[str] = outputs[name]) -> bool:
                    kept.append(output)
                    return True

                submissions.append(Submission(source, [(stdin, "") for stdin in INPUTS], checker=keep))
            with Grader(Limits(cpu_s=5, memory_mb=900), workers=2, mode=mode) as grader:
                verdicts = grader.grade(submissions)
            found[mode] = {
                name: (verdict.statuses, outputs[name]) for name, verdict in zip(NAMES, verdicts, strict=True)
            }
    return found


def test_there_are_many_of_both_kinds() -> None:
    assert len(set(NAMES)) == len(PROGRAMS) >= 100
    assert len(ADMITTED) >= 15


@pytest.mark.parametrize("name", NAMES)
def test_no_test_sees_another(name: str, happened: dict[str, Any]) -> None:
    assert happened["auto"][name] == happened["fork"][name]


@pytest.mark.parametrize("name", NAMES)
def test_the_last_test_ends_as_the_first_with_the_same_input(name: str, happened: dict[str, Any]) -> None:
    statuses, outputs = happened["auto"][name]
    assert statuses[0] == statuses[3]
    if len(outputs) == len(INPUTS):
        assert outputs[0] == outputs[3]


def test_what_is_admitted_shares_a_process_unless_it_ends_out_of_order(happened: dict[str, Any]) -> None:
    fails = {"memory_error_uncaught", "chosen_exit_status", "lowered_recursion_limit"}  # so run again alone
    shared = {name for name, source in PROGRAMS if source in happened["shared"]}
    assert shared == {name for name in ADMITTED - fails if happened["auto"][name][0][0] == "passed"}


CLOCKS = ["time()", "monotonic()", "perf_counter()", "process_time()", "time_ns()", "sleep(1)", "ctime()"]


@pytest.mark.parametrize("call", CLOCKS)
def test_there_is_no_clock(call: str) -> None:
    """How long something takes tells whether memory is fresh and code is warm."""
    for source in (f"import time\ntime.{call}", f"from time import *\n{call}"):
        assert refusal(ast.parse(source))
