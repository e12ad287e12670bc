"""The grader's own promises: statuses, order, limits, caching, recovery, and that nothing leaks."""

from __future__ import annotations

import gzip
import json
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from honest_programs import PROGRAMS as HONEST

from maxk.errors import UserError
from maxk.grading import CheckerProgram, Grader, Limits, Submission, Verdict, VerdictCache
from maxk.grading.comparison import output_digest
from maxk.grading.connection import Server
from maxk.grading.planning import plan
from maxk.grading.sharing.packs import Packs
from maxk.grading.tasks import PLAIN, Job
from maxk.grading.verdicts import NOT_READY, NotReady, SubmissionLike, Test

QUICK = Limits(cpu_s=0.5, memory_mb=128, output_bytes=100_000, wall_s=1.0)
ECHO = "print(input())"


@pytest.fixture(scope="module")
def grader() -> Grader:
    with Grader(QUICK, workers=2) as made:
        yield made


def status(grader: Grader, program: str, stdin: str = "", expected: str = "", limits: Limits | None = None) -> str:
    [verdict] = grader.grade([Submission(program, [(stdin, expected)], limits)])
    return verdict.statuses[0]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print('a')", "passed"),
        ("print('b')", "wrong_answer"),
        ("1/0", "runtime_error"),
        ("print('a'); raise SystemExit(2)", "runtime_error"),
        ("while True: pass", "time_limit"),
        ("import os\nwhile True: pass", "time_limit"),
        ("import time\ntime.sleep(60)", "time_limit"),
        ("x = [0] * 10**9", "memory_limit"),
        ("import os\nx = bytearray(10**9)", "memory_limit"),
        ("while True: print('x' * 1000)", "output_limit"),
        ("print('x' * 100_001)", "output_limit"),
        ("import os\nos.write(1, b'x' * 200_000)", "output_limit"),
        ("import os\nos.system('true')", "violation"),
        ("import socket\nsocket.socket()", "violation"),
        ("import sys\nsys.stdout.buffer.write(b'\\xff')", "wrong_answer"),
        ("def", "runtime_error"),
        ("x = '\0'", "runtime_error"),
        ("x = '\ud800'", "runtime_error"),
        ("import ctypes\nctypes.string_at(0)", "runtime_error"),
        ("import os\nos.abort()", "runtime_error"),
    ],
)
def test_statuses_are_told_apart(grader: Grader, program: str, expected: str) -> None:
    assert status(grader, program, expected="a") == expected
    assert grader.stats.restarts == 0


@pytest.mark.parametrize("size", [99_999, 100_000])
def test_output_up_to_the_limit_passes(grader: Grader, size: int) -> None:
    for head in ("", "import os\n"):
        assert status(grader, f"{head}print('x' * {size}, end='')", expected="x" * size) == "passed"


def test_no_program_is_unparseable(grader: Grader) -> None:
    [verdict] = grader.grade([(None, [("", ""), ("", "")])])
    assert verdict.statuses == ("unparseable", "unparseable")
    assert verdict.reward == 0.0


def test_reward_is_the_fraction_passed_and_nan_when_ungraded() -> None:
    assert Verdict(("passed", "wrong_answer", "passed", "time_limit")).reward == 0.5
    assert math.isnan(Verdict(("passed", "harness_error")).reward)


def test_an_empty_test_list_is_refused(grader: Grader) -> None:
    with pytest.raises(ValueError, match="submission 0: no tests"):
        grader.grade([(ECHO, [])])
    assert status(grader, ECHO, "x", "x") == "passed"  # and the grader goes on


def test_memory_that_is_mapped_counts_as_it_is_touched(grader: Grader) -> None:
    program = "import mmap\nm = mmap.mmap(-1, 10**8)\nfor i in range(0, len(m), 4096): m[i] = 1"
    slow = Limits(cpu_s=10, memory_mb=64)  # touching a page takes 10 µs and more on some machines
    assert status(grader, program, limits=slow) == "memory_limit"


def test_order_is_kept_whatever_finishes_first(grader: Grader) -> None:
    slow = "x = 0\nfor i in range(5 * 10**5): x += i\nprint(input())"
    items = [(slow if number % 5 == 0 else ECHO, [(f"{number}", f"{number}")]) for number in range(60)]
    verdicts = grader.grade(items)
    assert [verdict.reward for verdict in verdicts] == [1.0] * 60


def test_iterating_takes_submissions_as_it_goes(grader: Grader) -> None:
    taken = 0

    def source() -> object:
        nonlocal taken
        for number in range(20_000):
            taken += 1
            yield ECHO, [(str(number), str(number))]

    iterator = grader.grade_iter(source())
    next(iterator)
    assert taken < 2000
    with pytest.raises(RuntimeError, match="one grading at a time"):
        grader.grade([(ECHO, [("", "")])])
    iterator.close()
    assert status(grader, ECHO, "x", "x") == "passed"


def test_a_source_may_have_nothing_ready(grader: Grader) -> None:
    """Verdicts come out meanwhile, and indices count submissions alone."""
    given: list[int] = []

    def source() -> Iterator[SubmissionLike | NotReady]:
        yield NOT_READY
        yield ("print(input())", [("a", "a")])
        while not given:  # ends only when the first verdict is out
            yield NOT_READY
        yield ("print(1)", [("a", "a")])

    rewards = {}
    for index, verdict in grader.grade_iter(source()):
        given.append(index)
        rewards[index] = verdict.reward
    assert rewards == {0: 1.0, 1: 0.0}


@pytest.mark.parametrize(
    ("nothing", "message"), [(None, "submission 1: expected a Submission"), (NOT_READY, "takes submissions only")]
)
def test_a_list_holds_submissions_only(grader: Grader, nothing: Any, message: str) -> None:
    """Otherwise verdicts would move to other submissions."""
    with pytest.raises(TypeError, match=message):
        grader.grade([("print(1)", [("", "1")]), nothing])


def test_identical_submissions_run_once() -> None:
    with Grader(QUICK, workers=1) as grader:
        verdicts = grader.grade([(ECHO, [("a", "a")])] * 50 + [(ECHO, [("a", "b")])])
        assert [verdict.reward for verdict in verdicts] == [1.0] * 50 + [0.0]
        assert (grader.stats.programs, grader.stats.deduplicated, grader.stats.submissions) == (2, 49, 51)


def test_total_cpu_of_timeouts_is_capped_but_passing_is_not() -> None:
    limits = Limits(cpu_s=0.3, total_cpu_s=0.5, untested="wrong_answer")
    loop = "import os\nn = input()\nwhile n == '1': pass\nx = 0\nfor i in range(10**6): x += i\nprint(n)"
    with Grader(limits, workers=1) as grader:
        hangs, passes = grader.grade([(loop, [("1", "1")] * 6), (loop, [("2", "2")] * 12)])
    assert hangs.statuses == ("time_limit",) * 2 + ("wrong_answer",) * 4
    assert passes.reward == 1.0
    assert sum(passes.cpu_s) > 0.5


def test_trusted_checker_and_lines(grader: Grader) -> None:
    def sorted_equal(stdin: str, expected: str, output: str) -> bool:
        return sorted(output.split()) == sorted(expected.split())

    tests = [("", "1 2")]
    verdicts = grader.grade(
        [
            Submission("print(2, 1)", tests, checker=sorted_equal),
            Submission("print(2, 2)", tests, checker=sorted_equal),
            Submission("print(1); print(2)", tests),
            Submission("print(1); print(2)", tests, comparison="lines"),
        ]
    )
    assert [verdict.reward for verdict in verdicts] == [1.0, 0.0, 1.0, 0.0]


CHECKER = """
import sys
stdin, expected, output = (open(path).read() for path in sys.argv[1:])
a, b = map(int, output.split())
while a == 99: pass
print(1 if a + b == sum(map(int, expected.split())) and stdin == "in" else 0)
"""
TWO_WORDS = "import pathlib, sys\nprint(len(pathlib.Path(sys.argv[3]).read_text().split()) == 2)"
SLOW = """
import time
while time.process_time() < 0.7: pass
print(1)
"""


@pytest.mark.parametrize(
    ("program", "checker", "expected"),
    [
        ("print(3, 4)", CHECKER, "passed"),
        ("print(5, 2)", CHECKER, "passed"),
        ("print(3, 5)", CHECKER, "wrong_answer"),
        ("print('nonsense')", CHECKER, "wrong_answer"),  # makes a sound checker crash
        ("print(99, 4)", CHECKER, "wrong_answer"),  # makes a sound checker hang
        ("1/0", "print(1)", "runtime_error"),
        ("print(3, 4)", TWO_WORDS, "passed"),
        ("print(3, 4)", SLOW, "passed"),  # a checker's limits are not the problem's
    ],
)
def test_a_sound_checker_decides(
    grader: Grader, program: str, checker: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maxk.grading.verdicts.CHECKER_LIMITS", Limits(cpu_s=2, wall_s=60))
    limits = Limits(cpu_s=0.4)
    [verdict] = grader.grade([Submission(program, [("in", "3 4")] * 2, limits, CheckerProgram(checker))])
    assert verdict.statuses == (expected,) * 2


@pytest.mark.parametrize(
    ("checker", "why"),
    [
        ("while True: pass", "time_limit"),
        ("import os\nos.system('true')\nprint(1)", "violation"),
        ("print('0.5')", "it rejects it"),
        ("1/0", "runtime_error"),
        ("not Python", "runtime_error"),
        ("x = bytearray(1 << 31)\nprint(1)", "memory_limit"),
    ],
)
def test_a_checker_that_does_not_accept_the_expected_output_is_a_harness_error(
    checker: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maxk.grading.verdicts.CHECKER_LIMITS", Limits(cpu_s=0.5, memory_mb=256, wall_s=60))
    submissions = [
        Submission(f"print({a}, 4)", [("in", "3 4")], None, CheckerProgram(checker)) for a in (3, 5, "'nonsense'")
    ]
    with Grader(workers=1) as grader:
        verdicts = [*grader.grade(submissions), *grader.grade([("print(1)", [("", "1")])])]
        assert [verdict.statuses for verdict in verdicts] == [("harness_error",)] * 3 + [("passed",)]
        assert all(math.isnan(verdict.reward) for verdict in verdicts[:3])
        [(fault, count)] = grader.stats.faults.items()
        assert (count, grader.stats.checks) == (3, 1)
    assert fault == f"a checker does not accept the expected output '3 4': {why}"


def test_a_checker_is_validated_once_per_test() -> None:
    tests, checker = [("in", "3 4"), ("in", "7 0")], CheckerProgram(CHECKER)
    with Grader(workers=2) as grader:
        submissions = [Submission(f"print({a}, {7 - a})", tests, None, checker) for a in range(8)]
        assert [verdict.reward for verdict in grader.grade(submissions)] == [1.0] * 8
        assert grader.stats.checks == 2 + 16


@pytest.mark.parametrize("checker", [CHECKER, "import time\ntime.sleep(60)"])
def test_a_checker_that_waits_is_run_again_then_given_up(checker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped by the wall clock with CPU time to spare: a busy machine, or the checker's fault, never the program's."""
    waits = checker.replace("while a == 99: pass", "import time; time.sleep(60 * (a == 99))")
    monkeypatch.setattr("maxk.grading.verdicts.CHECKER_LIMITS", Limits(cpu_s=5, wall_s=1))
    with Grader(workers=1) as grader:
        [verdict] = grader.grade([Submission("print(99, 4)", [("in", "3 4")], None, CheckerProgram(waits))])
        assert verdict.statuses == ("harness_error",)
        assert "did not finish in two attempts" in "".join(grader.stats.faults)


def test_numpy_under_a_memory_limit(grader: Grader) -> None:
    pytest.importorskip("numpy")
    program = (
        "import numpy as np\na = np.array(input().split(), int)\nprint((a @ a.T).sum(), np.linalg.norm(np.eye(3)) > 1)"
    )
    assert status(grader, program, "1 2 3", "14 True") == "passed"
    assert status(grader, "import numpy as np\nprint(np.ones(10**9).sum())", "", "1") == "memory_limit"


def test_other_limits_of_one_submission(grader: Grader) -> None:
    program = "x = 0\nfor i in range(15 * 10**6): x += i\nprint(x > 0)"
    assert status(grader, program, "", "True", Limits(cpu_s=20)) == "passed"
    assert status(grader, program, "", "True", Limits(cpu_s=0.1)) == "time_limit"


def test_huge_input_and_many_tests(grader: Grader) -> None:
    data = "7 " * 3_000_000
    assert status(grader, "print(len(input()))", data, str(len(data))) == "passed"
    tests = [(str(i), str(i)) for i in range(1900)]
    forked = "import os\nos.getpid()\n" + ECHO  # not in the shared language
    for verdict in grader.grade([(ECHO, tests), (forked, tests[:300])]):
        assert verdict.reward == 1.0


@contextmanager
def load(fold: int) -> Iterator[None]:
    """So many processes a core that do nothing but use it."""
    count = fold * len(os.sched_getaffinity(0))
    burners = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


@pytest.mark.slow
def test_cpu_decides_not_load() -> None:
    """The same verdicts with and without six-fold load: honest programs, every status, and near the time limit."""
    burn = "import time\nwhile time.process_time() < {}: pass\nprint(input())"
    sources = [burn.format(seconds) for seconds in (0.2, 0.3, 0.4, 0.9, 2.0)]
    sources += ["1/0", "while True: pass", "import os\nos.fork()", "x = [0] * 10**9", "print('x' * 10**6)", "def"]
    items = [(source, [("1", "1"), ("2", "2")]) for source in sources]
    with gzip.open(Path(__file__).with_name("corpus.jsonl.gz"), "rt") as file:
        rows = [json.loads(line) for line in file][::8]
    items += [(row["source"], list(zip(row["inputs"], row["outputs"], strict=True))[:3]) for row in rows]
    items += [(source, [(stdin, "x")]) for _, source, stdin in HONEST[::4]]
    limits = Limits(cpu_s=0.6, wall_s=60, memory_mb=256, output_bytes=10**5)
    statuses = []
    for fold in (0, 6):
        with load(fold), Grader(limits, workers=2) as grader:
            statuses.append([verdict.statuses for verdict in grader.grade(items)])
    for (source, _), alone, loaded in zip(items, *statuses, strict=True):
        assert alone == loaded, source
    ends = ["passed"] * 3 + ["time_limit"] * 2
    ends += ["runtime_error", "time_limit", "violation", "memory_limit", "output_limit", "runtime_error"]
    assert [status[0] for status in statuses[0][: len(ends)]] == ends


def test_sleepers_are_run_again_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a core to itself and nothing else beside them, so that many cost twice their time, not their sum."""
    together = []
    send = Server.send
    with Grader(Limits(cpu_s=0.2, wall_s=0.6), workers=2) as grader:

        def watched(self: Server, job: Any) -> None:
            send(self, job)
            together.append([job.isolated for server in grader._servers.running for job in server.jobs.values()])

        monkeypatch.setattr(Server, "send", watched)
        sleepers = [(f"import time\ntime.sleep(60)#{i}", [("", "")]) for i in range(6)]
        verdicts = grader.grade([*sleepers, *[(f"{ECHO}#{i}", [("a", "a")]) for i in range(6)]])
        assert [verdict.statuses[0] for verdict in verdicts] == ["time_limit"] * 6 + ["passed"] * 6
        assert grader.stats.reruns == 6
    reruns = [alone for alone in together if any(alone)]
    assert all(all(alone) for alone in reruns)
    assert max(map(len, reruns)) == min(2, len(os.sched_getaffinity(0)))


def test_a_wall_stop_is_run_again_in_isolation(grader: Grader) -> None:
    before = grader.stats.reruns
    [verdict] = grader.grade([("import time\ntime.sleep(50)", [("", "")] * 4)])
    assert set(verdict.statuses) == {"time_limit"}
    assert grader.stats.reruns == before + 1


def test_a_dead_server_is_replaced_and_its_work_redone() -> None:
    with Grader(QUICK, workers=1, sandbox="landlock") as grader:
        items = [(f"{ECHO}#{number}", [("x", "x")] * 5) for number in range(300)]
        rewards = []
        for count, (_, verdict) in enumerate(grader.grade_iter(items)):
            rewards.append(verdict.reward)
            if count == 20:
                shell = grader._servers.running[0].process.process.pid
                server = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0]
                os.kill(int(server), signal.SIGKILL)
        assert rewards == [1.0] * 300
        assert grader.stats.restarts == 1


def test_a_job_that_always_loses_its_server_is_a_harness_error(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = Server.receive

    def failing(self: Server) -> list:
        running = next(iter(self.jobs.values()))
        if "poison" in running.submission.program:
            raise OSError("made to fail")
        return receive(self)

    with Grader(QUICK, workers=1) as grader:
        monkeypatch.setattr(Server, "receive", failing)
        verdicts = grader.grade([(ECHO, [("a", "a")]), (ECHO + "#poison", [("a", "a")]), (ECHO + "#", [("a", "a")])])
        assert [verdict.statuses[0] for verdict in verdicts] == ["passed", "harness_error", "passed"]
        assert math.isnan(verdicts[1].reward)
        assert grader.stats.restarts == 2


def test_cache_answers_and_never_keeps_what_depends_on_load(tmp_path: Path) -> None:
    sleeper = "import time\ntime.sleep(50)"
    items = [(ECHO, [("a", "a")]), (ECHO, [("a", "b")]), (sleeper, [("", "")]), ("1/0", [("", "")])]
    with VerdictCache(tmp_path / "sub" / "v.sqlite") as cache:
        for round_ in range(2):
            with Grader(QUICK, workers=2, cache=cache) as grader:
                verdicts = grader.grade(items)
                assert [verdict.reward for verdict in verdicts] == [1.0, 0.0, 0.0, 0.0]
                outputs = [verdict.outputs for verdict in verdicts]
                assert outputs == [(output_digest(b"a\n"),)] * 2 + [("",)] * 2
                assert grader.stats.cached == (0 if round_ == 0 else 3)
        assert len(cache) == 3
        with Grader(Limits(cpu_s=0.6), workers=1, cache=cache) as grader:
            grader.grade(items[:1])
            assert grader.stats.cached == 0  # other limits, another key


def _fill(path: str, start: int) -> None:
    with VerdictCache(path) as cache:
        for part in range(10):
            cache.put_many({f"{start + part * 50 + i}".encode(): Verdict(("passed",), (0.1,)) for i in range(50)})


def test_cache_is_safe_with_several_processes(tmp_path: Path) -> None:
    path = str(tmp_path / "v.sqlite")
    processes = [multiprocessing.get_context("spawn").Process(target=_fill, args=(path, n * 500)) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    with VerdictCache(path) as cache:
        assert len(cache.get_many([str(n).encode() for n in range(2000)])) == 2000


def test_cache_can_be_made_by_several_jobs_at_once(tmp_path: Path) -> None:
    """As two training jobs of a fresh run do; of 40 such rounds some failed while nobody waited for the other."""

    def make(path: Path, start: threading.Barrier) -> None:
        start.wait()
        VerdictCache(path).close()

    with ThreadPoolExecutor(8) as pool:
        for number in range(40):
            start = threading.Barrier(8)
            made = [pool.submit(make, tmp_path / f"{number}.sqlite", start) for _ in range(8)]
            for one in made:
                one.result()


def test_a_file_that_is_no_cache_is_a_users_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("not a database, but long enough to be looked at" * 50)
    with pytest.raises(UserError, match="cannot be used"):
        VerdictCache(tmp_path / "x")


def test_canary(grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    before = grader.stats.submissions
    grader.canary()
    assert grader.stats.submissions == before
    monkeypatch.setattr("maxk.grading.event_loop.outputs_match", lambda *_: True)
    with pytest.raises(UserError, match="canary"):
        grader.canary()


def test_wrong_settings_are_users_errors() -> None:
    for wrong in ({"sandbox": "docker"}, {"mode": "fast"}, {"workers": 0}):
        with pytest.raises(UserError):
            Grader(**wrong)  # type: ignore[arg-type]
    for limits in ({"cpu_s": 0}, {"memory_mb": -1}, {"wall_s": 0}, {"untested": "passed"}):
        with pytest.raises(ValueError, match="Limits"):
            Limits(**limits)  # type: ignore[arg-type]


def test_closing_ends_what_another_thread_grades() -> None:
    """Neither thread fails for what the other ends, and no server is started afterwards."""
    endless = iter(lambda: ("while True: pass", [("", "")] * 4), None)
    with ThreadPoolExecutor(1) as pool:
        with Grader(QUICK, workers=2) as grader:
            grading = pool.submit(lambda: dict(grader.grade_iter(endless)))
            while not grader.stats.programs:
                time.sleep(0.01)
        assert isinstance(grading.exception(60), RuntimeError)
    assert not grader._servers.running
    with grader:  # it can be used again
        assert status(grader, ECHO, "a", "a") == "passed"


def test_use_from_a_thread_that_ends_keeps_servers_alive() -> None:
    made: list[Grader] = []
    thread = threading.Thread(target=lambda: made.append(Grader(QUICK, workers=1).__enter__()))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert status(made[0], ECHO, "x", "x") == "passed"
    assert made[0].stats.restarts == 0
    made[0].close()


def test_hostile_source_costs_at_most_a_restart(grader: Grader) -> None:
    for source in ("(" * 15 + ")" * 15, "x = " + "-" * 15_000 + "1", "a" + ".b" * 9000, "f" + "(f" * 25, "[" * 29):
        assert status(grader, source, expected="z") in ("runtime_error", "wrong_answer", "memory_limit", "time_limit")
    assert status(grader, ECHO, "x", "x") == "passed"


LEAKS = """
import gc, json, os, sys, tempfile
from pathlib import Path
from maxk.grading import Grader, Limits
def memory():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
def descriptors():
    return len(os.listdir("/proc/self/fd"))
def tests(n):
    kinds = ["print(input())", "class A: pass\\nprint(input())"]
    kinds += ["1/0", "import os\\nos.fork()", "print('x' * 10**5)", "def"]
    for i in range(n):
        yield kinds[i % 6] + f"#{i}", [("a", "a")] * (300, 15, 1, 1, 1, 1)[i % 6]
with Grader(Limits(cpu_s=1, output_bytes=1000), workers=2) as grader:
    def server_state():
        shell = [s.process.process.pid for s in grader._servers.running]
        pids = [int(Path(f"/proc/{p}/task/{p}/children").read_text().split()[0]) for p in shell]
        pages = [int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in pids]
        return sum(pages) * 4096
    def count(n):
        return sum(1 for _ in grader.grade_iter(tests(n)))
    count(150)
    gc.collect()
    before = memory(), descriptors(), server_state()
    count(int(sys.argv[1]))
    gc.collect()
    after = memory(), descriptors(), server_state()
    restarts, ran = grader.stats.restarts, grader.stats.tests
left = os.listdir(tempfile.gettempdir())
print(json.dumps([before, after, restarts, ran, descriptors(), left]))
"""


@pytest.mark.slow
def test_nothing_leaks_in_a_long_run(tmp_path: Path) -> None:
    """No descriptor, file or memory more after 25,000 tests of programs of every kind."""
    script, folder = tmp_path / "leaks.py", tmp_path / "temporary"
    script.write_text(LEAKS)
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(script), "510"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    before, after, restarts, ran, finally_open, left = json.loads(done.stdout)
    assert restarts == 0
    assert ran > 25_000
    assert after[1] == before[1]
    assert after[0] - before[0] < 4 << 20
    assert after[2] - before[2] < 8 << 20
    assert finally_open < before[1]
    assert left == []


# ------------------------------------------------------------------------------- programs that share a process


def test_programs_that_share_a_process_never_share_a_problem() -> None:
    waiting = Packs()
    problems = [b"a"] * 20 + [b"b"] * 3 + [b"c"]
    for number, problem in enumerate(problems):
        waiting.add(_job(number, problem))
    packs = [waiting.take(8) for _ in range(20)]
    assert [[job.problem for job in pack] for pack in packs[:3]] == [[b"a", b"b", b"c"], [b"a", b"b"], [b"a", b"b"]]
    assert all(len(pack) == 1 for pack in packs[3:])
    assert len(waiting) == 0
    assert sorted(job.waiters[0] for pack in packs for job in pack) == list(range(24))


def test_programs_with_other_limits_many_tests_or_much_input_share_no_process() -> None:
    for other in (
        {"limits": Limits(cpu_s=1)},
        {"tests": [("1", "1")] * 1999},
        {"tests": [("1" * (1 << 20), "1")]},
    ):
        waiting = Packs()
        waiting.add(_job(0, b"a", tests=[("1", "1")] * 2))
        waiting.add(_job(1, b"b", **other))
        assert [len(waiting.take(8)), len(waiting.take(8))] == [1, 1]


def test_a_problem_with_limits_of_its_own_is_passed_over() -> None:
    waiting = Packs()
    for number, limits in enumerate([QUICK, Limits(cpu_s=1), QUICK]):
        waiting.add(_job(number, bytes([number]), limits))
    assert [[job.waiters[0] for job in waiting.take(8)] for _ in range(2)] == [[0, 2], [1]]


def _job(number: int, problem: bytes, limits: Limits = QUICK, tests: Sequence[Test] = (("1", "1"),)) -> Job:
    source = f"print(input())  # {number}"
    submission = Submission(source, tests)
    job = Job(submission, limits, b"", [number], PLAIN, plan(source, share=True), problem=problem)
    job.statuses = ["harness_error"] * len(tests)
    return job


# What ends a process in which several run, or could stay there; status on the input "2" where "2" is expected.
NEIGHBOURS = [
    ("print(input())", "passed"),
    ("while True: pass", "time_limit"),
    ("print(int(input()) + 1)", "wrong_answer"),
    ("x = [0] * 10**9", "memory_limit"),
    ("print('x' * 200_000)", "output_limit"),
    ("x = []\nfor i in range(200): x = [x]\nprint(2, end='')", "passed"),
    ("def f(): return f()\nf()", "runtime_error"),
    ("def f(n): return n and f(n - 1)\nprint(2 + f(950))", "passed"),  # deeper than a shared process allows
    ("import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return n and f(n - 1)\nprint(2 + f(5000))", "passed"),
    ("print({1.5: 2}[1.5])", "passed"),
    ("import sys\nsys.setrecursionlimit(50)\nprint(2)", "passed"),
    ("import sys\nsys.stderr.write('x' * 5)\nprint(input())", "passed"),
    ("import sys\nsys.stdout.write('2')\nsys.exit(3)", "runtime_error"),
    ("print(sum(range(3 * 10**5)) * 0 + 2)", "passed"),
]


@pytest.mark.parametrize("seed", range(2))
def test_whatever_runs_beside_it_a_program_gets_its_own_verdict(seed: int) -> None:
    """Each of a process with other neighbours and another place among them, every problem's tests different."""
    order = random.Random(seed).sample(range(len(NEIGHBOURS)), len(NEIGHBOURS))
    limits = Limits(cpu_s=0.5, memory_mb=128, output_bytes=100_000)
    submissions = [
        Submission(NEIGHBOURS[number][0], [("2" + "\n" * place, "2")] * (place % 3 + 1), limits)
        for place, number in enumerate(order)
    ]
    for mode in ("auto", "fork"):
        with Grader(workers=1, mode=mode) as grader:
            verdicts = grader.grade(submissions)
        for number, verdict in zip(order, verdicts, strict=True):
            assert set(verdict.statuses) == {NEIGHBOURS[number][1]}, (mode, NEIGHBOURS[number][0])


def test_a_fork_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    packs = []
    send = Server.send
    monkeypatch.setattr(Server, "send", lambda self, pack: packs.append(len(pack)) or send(self, pack))
    with Grader(workers=1) as grader:
        packs.clear()
        items = [(ECHO, [(f"{number}", f"{number}")]) for number in range(64)]
        assert {verdict.reward for verdict in grader.grade(items)} == {1.0}
    assert sum(packs) == 64
    assert packs.count(16) >= 3
