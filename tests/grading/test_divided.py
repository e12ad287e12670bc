"""After a test has timed out, what waits behind it runs on other servers, with the verdicts of one after another."""

from __future__ import annotations

import math
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from maxk.grading import CheckerProgram, Grader, Limits, Submission, VerdictCache
from maxk.grading.confined.wire import FAULT, HEADER, RESULT, RUNTIME_ERROR, TIME_LIMIT
from maxk.grading.connection import Report, Server, _Pack, _Progress
from maxk.grading.event_loop import EventLoop
from maxk.grading.planning import plan
from maxk.grading.tasks import PLAIN, Job, Part, Task

# Four tests may time out; what is not run is told from what timed out. A loop that waits for a core, however long, is
# still stopped by its CPU time.
LIMITS = Limits(cpu_s=0.2, wall_s=20.0, untested="output_limit")
# For sleepers, which take all of it. So does a loop that gets less than a twelfth of a core.
SLEEPERS = Limits(cpu_s=0.2, wall_s=2.5, untested="output_limit")
SHARED = "n = input()\nwhile n == 'loop': pass\nprint(n)"  # in the shared language
FORKED = """
import os, signal, time
n = input()
if n == 'evade': signal.signal(signal.SIGPROF, signal.SIG_IGN), signal.signal(signal.SIGXCPU, signal.SIG_IGN)
while n in ('loop', 'evade'): pass
if n == 'sleep': time.sleep(60)
if n == 'kill': os.kill(os.getpid(), 9)
print(n)
"""
ENDS = {"loop": "time_limit", "evade": "time_limit", "sleep": "time_limit", "untested": "output_limit"}


def submission(program: str, *inputs: str, limits: Limits = LIMITS) -> Submission:
    return Submission(program, [(stdin, stdin) for stdin in inputs], limits)


class Watch:
    """What is sent to servers, and what each of them is doing then."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[Server, list[Task]]] = []
        self.side_by_side: list[int] = []  # servers with a part, after each part that is sent
        send = Server.send

        def watched(server: Server, pack: list[Task]) -> None:
            send(server, pack)
            self.sent.append((server, list(pack)))
            if isinstance(pack[0], Part):
                servers = {id(one): one for one, _ in self.sent}.values()
                self.side_by_side.append(sum(any(isinstance(t, Part) for t in one.jobs.values()) for one in servers))

        patch.setattr(Server, "send", watched)

    @property
    def parts(self) -> list[int]:
        return [task.first for _, pack in self.sent for task in pack if isinstance(task, Part)]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.mark.parametrize("program", [SHARED, FORKED])
@pytest.mark.parametrize("mode", ["auto", "fork"])
def test_a_program_that_loops_in_all_tests_takes_two_limits(watch: Watch, program: str, mode: str) -> None:
    with Grader(workers=4, mode=mode) as grader:
        watch.sent.clear()
        [verdict] = grader.grade([submission(program, *["loop"] * 4)])
        assert verdict.statuses == ("time_limit",) * 4
        assert min(verdict.cpu_s) > 0.2
        assert (grader.stats.programs, grader.stats.tests, grader.stats.reruns) == (1, 4, 0)
    assert watch.parts == [1, 2, 3]
    assert watch.side_by_side == [1, 2, 3]


@pytest.mark.parametrize(
    ("inputs", "untested", "parts"),
    [
        ("loop a b", 0, [1, 2]),
        ("a loop b", 0, [2]),
        ("a b loop", 0, []),
        ("loop loop loop loop loop", 1, []),  # the last one is untested, which the fourth decides
        ("loop loop a loop loop loop", 1, []),
        ("loop a b c d", 0, [2, 3, 4]),  # the second could be one of five that time out
        ("loop loop a b c", 0, [3, 4]),
        ("loop loop loop a b loop c d", 2, []),
    ],
)
@pytest.mark.parametrize("program", [SHARED, FORKED])
def test_the_total_time_bounds_as_many_tests_as_one_after_another(
    watch: Watch, program: str, inputs: str, untested: int, parts: list[int]
) -> None:
    tests = inputs.split()
    ran = tests[: len(tests) - untested]
    with Grader(workers=3) as grader:
        [verdict] = grader.grade([submission(program, *tests)])
    expected = [ENDS.get(stdin, "passed") for stdin in [*ran, *["untested"] * untested]]
    assert list(verdict.statuses) == expected
    assert watch.parts == parts


@pytest.mark.parametrize(
    ("inputs", "untested", "parts"),
    [
        ("loop evade a", 1, [1, 2]),
        ("loop evade kill", 1, [1, 2]),  # a doubtful run that should not have been one
        ("loop kill evade a", 1, [1, 2, 3]),  # repeated from the second on
    ],
)
@pytest.mark.parametrize("divided", [True, False])
def test_a_run_that_evades_the_timer_uses_up_the_total_time(
    monkeypatch: pytest.MonkeyPatch, watch: Watch, inputs: str, untested: int, parts: list[int], divided: bool
) -> None:
    """It uses several times its limit, so the tests behind it count as not run even if they were."""
    if not divided:
        monkeypatch.setattr(Job, "divisible", False)
    tests = inputs.split()
    checker = CheckerProgram("print(1)")
    with Grader(workers=3) as grader:
        [verdict] = grader.grade([Submission(FORKED, [(stdin, stdin) for stdin in tests], LIMITS, checker)])
        assert grader.stats.restarts == 0
    ends = {**ENDS, "kill": "runtime_error"}
    ran = len(tests) - untested
    assert list(verdict.statuses) == [ends.get(stdin, "passed") for stdin in tests[:ran]] + ["output_limit"] * untested
    assert verdict.cpu_s[ran:] == (0.0,) * untested
    assert verdict.outputs[ran:] == ("",) * untested
    assert watch.parts == (parts if divided else [])


@pytest.mark.parametrize("program", [SHARED, FORKED])
def test_with_one_worker_and_with_a_checker(watch: Watch, program: str) -> None:
    equal = CheckerProgram("import sys\n_, expected, output = (open(path).read() for path in sys.argv[1:])\n"
                           "print(int(expected.split() == output.split()))")  # fmt: skip
    tests = [("a", "a"), ("loop", "loop"), ("b", "b"), ("c", "d")]
    with Grader(workers=1) as grader:
        [verdict] = grader.grade([Submission(program, tests, LIMITS, equal)])
    assert verdict.statuses == ("passed", "time_limit", "passed", "wrong_answer")
    assert watch.parts == [2, 3]


def test_neighbours_of_a_looping_program_go_to_other_servers(watch: Watch) -> None:
    """Each of them by itself, so that no server can hand it back for ever."""
    programs = [submission(SHARED, "a", f"{number}") for number in range(32)]  # four packs of eight
    programs[2] = submission(SHARED, "loop", "loop")
    with Grader(workers=4) as grader:
        watch.sent.clear()
        verdicts = grader.grade(programs)
        assert grader.stats.restarts == grader.stats.reruns == 0
        assert grader.stats.programs == 32  # those handed back, too, count once
    assert verdicts[2].statuses == ("time_limit",) * 2
    assert [verdict.reward for verdict in verdicts[:2] + verdicts[3:]] == [1.0] * 31
    first, *_ = (pack for _, pack in watch.sent)
    assert len(first) == 8
    again = [(server, pack) for server, pack in watch.sent[1:] if set(pack) & set(first)]
    assert [pack for _, pack in again] == [[job] for job in first[3:]]
    assert len({id(server) for server, _ in again}) > 1
    assert watch.parts == [1]


def test_a_pack_in_which_all_loop(watch: Watch) -> None:
    with Grader(workers=2) as grader:
        verdicts = grader.grade([submission(SHARED, "a", "loop", f"{number}", "b") for number in range(16)])
    assert {verdict.statuses for verdict in verdicts} == {("passed", "time_limit", "passed", "passed")}
    assert sorted(watch.parts) == [2] * 16 + [3] * 16


# --------------------------------------------------------------------------------------------------------- faults


def losing(monkeypatch: pytest.MonkeyPatch, test: int, times: int) -> None:
    """Servers that are given that part end, so many times."""
    receive, left = Server.receive, [times]

    def failing(self: Server) -> Report:
        if left[0] and any(isinstance(task, Part) and task.first == test for task in self.jobs.values()):
            left[0] -= 1
            raise OSError("made to fail")
        return receive(self)

    monkeypatch.setattr(Server, "receive", failing)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_part_is_run_again_if_its_server_ends(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    with Grader(workers=workers) as grader:
        losing(monkeypatch, test=2, times=1)
        verdicts = grader.grade([submission(FORKED, "loop", "a", "b", "loop"), submission(FORKED, "c")])
        assert verdicts[0].statuses == ("time_limit", "passed", "passed", "time_limit")
        assert verdicts[1].reward == 1.0
        assert grader.stats.restarts == 1
        assert grader.stats.programs == 2


def test_a_part_that_always_loses_its_server_is_a_harness_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with VerdictCache(tmp_path / "v.sqlite") as cache, Grader(workers=3, cache=cache) as grader:
        losing(monkeypatch, test=2, times=2)
        verdicts = grader.grade([submission(FORKED, "loop", "a", "b", "loop"), submission(FORKED, "c")])
        assert verdicts[0].statuses == ("time_limit", "passed", "harness_error", "time_limit")
        assert math.isnan(verdicts[0].reward)
        assert verdicts[1].reward == 1.0
        assert grader.stats.restarts == 2
        assert grader.stats.faults == {"the grading process ended twice": 1}
        assert len(cache) == 1


@pytest.mark.parametrize(
    ("inputs", "expected", "parts"),
    [
        # A sleeper's wall-clock time uses up the total, in the rerun too; what was run beside it does not count.
        ("loop sleep a", "time_limit time_limit output_limit", [1, 2]),
        ("loop a sleep", "time_limit passed time_limit", [1, 2]),
        ("loop a sleep loop", "time_limit passed time_limit output_limit", [1, 2, 3]),
        # Killed at once, perhaps from outside, while the test before it goes on and keeps its status.
        ("loop loop kill", "time_limit time_limit runtime_error", [1, 2]),
        ("loop kill loop", "time_limit runtime_error time_limit", [1, 2]),
        ("sleep loop a", "time_limit output_limit output_limit", []),
    ],
)
def test_a_doubtful_part_is_decided_by_a_rerun_from_there(
    watch: Watch, tmp_path: Path, inputs: str, expected: str, parts: list[int]
) -> None:
    with VerdictCache(tmp_path / "v.sqlite") as cache, Grader(workers=3, cache=cache) as grader:
        limits = SLEEPERS if "sleep" in inputs else LIMITS
        verdicts = grader.grade([submission(FORKED, *inputs.split(), limits=limits), submission(FORKED, "a")])
        assert verdicts[0].statuses == tuple(expected.split())
        assert verdicts[1].reward == 1.0
        assert (grader.stats.reruns, grader.stats.programs) == (1, 2)
        assert len(cache) == 1
    assert watch.parts == parts


def test_outputs_that_are_run_again_are_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that wait for a checker bound what is received; they must not grow with each server that ends."""
    loops, receive, packets = [], Server.receive, []
    lost = EventLoop._lost
    monkeypatch.setattr(EventLoop, "_lost", lambda self, server: loops.append(self) or lost(self, server))

    def failing(self: Server) -> Report:
        if self.kind == PLAIN and packets == [32]:
            packets.append(0)
            raise OSError("made to fail")
        report = receive(self)
        if self.kind == PLAIN:
            packets.append(len(report.runs))
        return report

    with Grader(workers=1, mode="fork") as grader:
        monkeypatch.setattr(Server, "receive", failing)
        tests = [(f"{number}", f"{number}") for number in range(40)]
        [verdict] = grader.grade([Submission(SHARED, tests, None, CheckerProgram("print(1)"))])
    assert verdict.reward == 1.0
    assert packets == [32, 0, 32, 8]
    assert [loop.unchecked_bytes for loop in loops] == [0]


# --------------------------------------------------------------------------------- packets that no server should send


def job(tests: int, isolated: bool = False) -> Job:
    one = Job(Submission(FORKED, [("a", "a")] * tests), LIMITS, b"", [0], PLAIN, plan(FORKED, share=True))
    one.statuses, one.isolated = ["harness_error"] * tests, isolated
    return one


def receiving(task: Task, neighbour: bool, *packets: tuple[int, list[int], bool]) -> list[Report]:
    """What a server's packets (first run, outcomes, done?) for a task report; neighbour: in its pack, has timed out."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        server: Any = Server.__new__(Server)
        server.jobs, server._progress = {7: task}, {7: _Progress(_Pack(neighbour))}
        server.process = SimpleNamespace(socket=here)
        reports = []
        for first, outcomes, last in packets:
            results = [RESULT.pack(outcome, False, -1, 0.1, 0, 0) for outcome in outcomes]
            there.send(HEADER.pack(7, first, len(outcomes), last) + b"".join(results))
            reports.append(server.receive())
        assert bool(server.jobs) == bool(server._progress) == (not reports[-1].last)
    return reports


BAD, SLOW = RUNTIME_ERROR, TIME_LIMIT


@pytest.mark.parametrize(
    ("neighbour", "packets", "left"),
    [
        (False, [(0, [BAD] * 3, True)], range(0)),
        (False, [(0, [BAD], False), (1, [BAD] * 2, True)], range(0)),
        (False, [(0, [SLOW], True)], range(1, 3)),
        (False, [(0, [SLOW, BAD], True)], range(2, 3)),
        (False, [(0, [SLOW], False), (1, [], True)], range(1, 3)),
        (True, [(0, [], True)], range(3)),
    ],
)
def test_packets_in_order_are_taken(neighbour: bool, packets: list[Any], left: range) -> None:
    assert receiving(job(3), neighbour, *packets)[-1].left == left


@pytest.mark.parametrize(
    ("task", "neighbour", "packets"),
    [
        (job(3), False, [(0, [BAD], True)]),  # handed back, though nothing timed out
        (job(3), False, [(0, [FAULT], True)]),
        (job(3), True, [(0, [BAD], True)]),
        (job(3), False, [(0, [], True)]),  # nor did another of its pack
        (job(3), True, [(0, [], False)]),
        (job(3), True, [(0, [BAD], False), (1, [], True)]),
        (job(3), False, [(0, [SLOW], False), (1, [], False)]),
        (job(3), False, [(1, [BAD] * 2, True)]),  # a run is missing
        (job(3), False, [(0, [SLOW], False), (2, [BAD], True)]),
        (job(3), False, [(0, [BAD], False), (0, [BAD], False)]),  # twice the same
        (job(3), False, [(0, [BAD] * 4, True)]),  # one too many
        (job(3), False, [(0, [BAD] * 3, False)]),  # all, but not done
        (job(3, isolated=True), False, [(0, [SLOW], True)]),  # must stay where nothing else runs
        (job(3, isolated=True), True, [(0, [], True)]),
        (Part(job(3), 1), True, [(0, [], True)]),  # a single test
        (Part(job(3), 1), False, [(0, [SLOW, SLOW], True)]),
    ],
)
def test_packets_that_skip_repeat_or_end_early_are_refused(task: Task, neighbour: bool, packets: list[Any]) -> None:
    receiving(task, neighbour, *packets[:-1]) if len(packets) > 1 else None
    with pytest.raises(ValueError, match="a packet"):
        receiving(task, neighbour, *packets)
