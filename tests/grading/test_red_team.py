"""Holes that attacks on the grader found, by kind: each program got, or nearly got, what it should not."""

from __future__ import annotations

import errno
import json
import marshal
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import isolation
import pytest

import maxk
from maxk.grading import CheckerProgram, Grader, Limits, Submission, VerdictCache, event_loop
from maxk.grading.confined import confinement, shared, wire
from maxk.grading.confined.jobs import Batch, Job
from maxk.grading.connection import Server
from maxk.grading.event_loop import EventLoop
from maxk.grading.planning import plan
from maxk.grading.sandbox import StartError
from maxk.grading.servers import Servers
from maxk.grading.tasks import CHECKER, PLAIN

NEEDS_BWRAP = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
TIERS = ["landlock", "seccomp", pytest.param("bubblewrap", marks=NEEDS_BWRAP)]
HONEST = "a, b = map(int, input().split())\nprint(a + b)\n"


def outputs_of(program: str, inputs: list[str], **options: Any) -> list[str]:
    """What a program prints for each input."""
    found: list[str] = []

    def keep(stdin: str, expected: str, output: str) -> bool:
        found.append(output.strip())
        return True

    with Grader(workers=1, **options) as grader:
        grader.grade([Submission(program, [(stdin, "") for stdin in inputs], checker=keep)])
    return found


EQUAL = "import sys\nprint(int(open(sys.argv[2]).read().split() == open(sys.argv[3]).read().split()))\n"


def test_no_program_is_forked_from_a_server_that_held_expected_outputs() -> None:
    """Checkers read expected outputs, and a server's freed memory is inherited by its children."""
    with Grader(workers=1) as grader:
        checked = [Submission(f"print({i})", [("", "1")], checker=CheckerProgram(EQUAL)) for i in range(3)]
        assert [verdict.reward for verdict in grader.grade(checked)] == [0.0, 1.0, 0.0]
        kinds = {process.kind: process for process in grader._servers.running}
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


# ------------------------------------------------------------------------------------- no hang of the parent

FINALLY = "".join(f"{' ' * level}try: pass\n{' ' * level}finally:\n" for level in range(40)) + " " * 40 + "pass\n"
NAMES = [f"name{number}" for number in range(1000)]
STRAINS = {
    "a chain of methods": f"print(input(){'.strip()' * 60})\n",  # each was visited twice, so 2⁶⁰ steps
    "nested finally": FINALLY,  # each is compiled twice
    "ways out of a finally": "def f():\n try:\n" + "  return\n" * 1000 + " finally:\n" + "  f()\n" * 1500,
    "alternatives of a pattern": f"match 1:\n case [{','.join(NAMES)}]|[{','.join(reversed(NAMES))}]: pass\n",
    "constants to fold": "x = 9 ** 9 ** 9, 'a' * 10 ** 10, (0,) * 10 ** 10, 1 << 10 ** 10, '%9999999999d' % 1\n" * 200,
    "equal hashes": "".join(f"x = y in {{{number * (2**61 - 1)}, 1}}\n" for number in range(500)),
    "names that grow": "".join(f"\ufdf2{number} = 1\n" for number in range(2000)),  # four characters in NFKC
    "fields of a format": "x = f'" + "{a}" * 6000 + "'\n",
    "large constants": "".join(f"x = '{number:03}' * 1365\n" for number in range(1000)),
}


@pytest.mark.parametrize("name", STRAINS)
def test_a_program_is_planned_in_bounded_time_and_memory(name: str) -> None:
    program = STRAINS[name]
    assert len(program) <= 20_000
    started = time.process_time()
    planned = plan(program, share=True)
    assert time.process_time() - started < 2.0
    assert not planned.broken
    assert planned.code is None or len(marshal.dumps(planned.code)) < 1 << 18


def test_what_the_parent_does_not_compile_still_runs() -> None:
    tried = "try:\n    print(int(input()))\nexcept ValueError:\n    print('bad')\nfinally:\n    print('end')\n"
    matched = "match input():\n    case '1' | '2': print('low')\n    case _: print('high')\n"
    with Grader(workers=1) as grader:
        items = [(tried, [("1", "1 end"), ("x", "bad end")]), (matched, [("2", "low"), ("3", "high")])]
        assert [verdict.reward for verdict in grader.grade(items)] == [1.0, 1.0]


# ------------------------------------------------------------------------------------- blame needs evidence

ORDER = wire.Order(
    1, True, True, 0, 0, [0] * 4, cpu_s=1.0, wall_s=6.0, total_cpu_s=4.0, memory_bytes=1, output_bytes=10
)
BEGAN, ENDED, FAILED = 0, 1, 2


@pytest.mark.parametrize(
    ("records", "cpu_s", "timed_out", "outcomes"),
    [
        ([(BEGAN, 0, 0), (ENDED, 10**8, 4)], 1.5, True, [wire.RAN]),  # stopped while it tidied up
        ([(BEGAN, 0, 0), (ENDED, 10**8, 4), (BEGAN, 10**9, 4)], 1.5, True, [wire.RAN]),  # stopped too early
        ([(BEGAN, 0, 0), (ENDED, 10**8, 4), (BEGAN, 10**9, 4)], 2.1, True, [wire.RAN, wire.TIME_LIMIT]),
        ([(BEGAN, 0, 0), (ENDED, 10**8, 4), (BEGAN, 10**9, 4)], 2.1, False, [wire.RAN]),  # ended by something else
        ([(BEGAN, 0, 0), (FAILED, 5 * 10**8, 4)], 0.6, False, [wire.RUNTIME_ERROR]),
        ([(BEGAN, 0, 0), (ENDED, 5 * 10**8, 11)], 0.6, False, [wire.OUTPUT_LIMIT]),
        ([(BEGAN, 5 * 10**8, 0), (ENDED, 16 * 10**8, 1)], 1.6, False, [wire.TIME_LIMIT]),
        ([(BEGAN, 0, 0)], 0.5, False, []),
        ([], 5.0, True, []),
    ],
)
def test_only_a_run_that_began_gets_a_verdict(
    records: list[tuple[int, int, int]], cpu_s: float, timed_out: bool, outcomes: list[int]
) -> None:
    report = b"".join(shared._RECORD.pack(*record) for record in records)
    assert [result.outcome for result in shared.results(report, ORDER, cpu_s, timed_out)] == outcomes


def test_what_a_program_leaves_to_be_freed_is_not_on_the_next_ones_account() -> None:
    """The timer of one run stopped the process while its garbage was collected, and the next test got a time limit."""
    slow = "a = []\nfor i in range({n}):\n    x = []\n    x.append(x)\n    a.append(x)\nprint(len(a))\n"
    n = 300_000
    with Grader(Limits(cpu_s=20), workers=1) as grader:
        need = max(grader.grade([(slow.format(n=n), [("", str(n))] * 2)])[0].cpu_s)
    with Grader(Limits(cpu_s=1.12 * need), workers=1) as grader:
        _, honest = grader.grade([(slow.format(n=n), [("", str(n))]), (HONEST, [("1 2", "3"), ("3 4", "7")])])
    assert honest.statuses == ("passed", "passed")


STARVED = """
import json, math, resource, sys
from maxk.grading import Grader, VerdictCache
resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, 0))  # no process of this user can make a timer
with VerdictCache(sys.argv[1]) as cache, Grader(workers=1, sandbox="off", mode=sys.argv[2], cache=cache) as grader:
    [verdict] = grader.grade([("a, b = map(int, input().split())\\nprint(a + b)", [("1 2", "3")] * 3)])
    print(json.dumps([verdict.statuses, math.isnan(verdict.reward), len(cache), grader.stats.complaints()]))
"""


@pytest.mark.parametrize("mode", ["auto", "fork"])
def test_a_fault_of_the_harness_in_the_child_is_never_the_programs(tmp_path: Path, mode: str) -> None:
    arguments = [sys.executable, "-c", STARVED, str(tmp_path / "v.sqlite"), mode]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    statuses, ungraded, cached, complaints = json.loads(done.stdout)
    assert statuses == ["harness_error"] * 3
    assert ungraded
    assert cached == 0
    assert "no process, memory or descriptor was left" in "".join(complaints)


def test_a_program_that_kills_itself_is_run_again_and_not_stored(tmp_path: Path) -> None:
    """A machine out of memory kills in the same way, so only the second time is it the program's fault."""
    program = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    with VerdictCache(tmp_path / "v.sqlite") as cache, Grader(workers=1, cache=cache) as grader:
        [verdict] = grader.grade([(program, [("", "")])])
        assert verdict.statuses == ("runtime_error",)
        assert grader.stats.reruns == 1
        assert len(cache) == 0


# ------------------------------------------------------------------------------------- quotas of the user

TIMERS = """
import ctypes
libc, made = ctypes.CDLL(None), ctypes.c_int()
event = ctypes.create_string_buffer(64)
event[12] = 1  # SIGEV_NONE
n = 0
while n < 1000 and libc.timer_create(1, event, ctypes.byref(made)) == 0:
    n += 1
print(n)
"""
SIGNALS = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
for _ in range(1000):
    os.kill(os.getpid(), signal.SIGRTMIN)
n = 0
while signal.sigtimedwait([signal.SIGRTMIN], 0):
    n += 1
print(n)
"""


@pytest.mark.parametrize("tier", TIERS)
def test_a_program_has_no_timers_and_pending_signals_to_hoard(tier: str) -> None:
    """Both are counted per user, so that one program could take those that others need."""
    assert outputs_of(TIMERS, [""], sandbox=tier) == ["0"]
    assert outputs_of(SIGNALS, [""], sandbox=tier) == ["1"]  # one is marked as pending, none is queued


THREADS = """
import threading
for _ in range(1002):
    thread = threading.Thread(target=int)
    try:
        thread.start()
    except RuntimeError as error:
        print(error)
        break
    thread.join()
else:
    print("no bound")
"""


@pytest.mark.parametrize("tier", TIERS)
def test_the_threads_of_a_run_are_bounded(tier: str) -> None:
    """Each run has a bound of its own; `attacks/a59` starts threads that need no memory."""
    assert outputs_of(THREADS, ["", ""], sandbox=tier) == ["can't start new thread"] * 2
    assert outputs_of(THREADS.replace("1002", "1000"), [""], sandbox=tier) == ["no bound"]


@pytest.mark.parametrize(
    ("release", "asks"),
    [
        ("4.18.0-553.el8_10.x86_64", False),
        ("5.0.0", False),
        ("5.4.0-190-generic", False),
        ("5.5.0-rc1", True),
        ("5.15.167.4-microsoft-standard-WSL2", True),
        ("6.6+", True),
        ("10.0", True),
    ],
)
def test_a_kernel_that_cannot_let_threads_go_on_is_not_asked(
    release: str, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux 5.0 to 5.4 ask before each thread and refuse the answer of 5.5, so threads would wait for ever."""
    machine = os.uname()
    monkeypatch.setattr(confinement.os, "uname", lambda: os.uname_result((*machine[:2], release, *machine[3:])))
    monkeypatch.setattr(confinement.SeccompFilter, "install", lambda self: 99)
    assert confinement.ThreadGate(bytes(8)).fd == (99 if asks else -1)


HOARD = """
import resource
resource.setrlimit(resource.RLIMIT_NPROC, (150, 150))
from collections import Counter
from maxk.grading import Grader, Limits
hog = '''
import ctypes, os, time
libc = ctypes.CDLL(None)
attributes = ctypes.create_string_buffer(64)
libc.pthread_attr_init(attributes)
libc.pthread_attr_setstacksize(attributes, 16384)
thread, end = ctypes.c_ulong(), time.monotonic() + 3
while time.monotonic() < end:
    if libc.pthread_create(ctypes.byref(thread), attributes, ctypes.cast(libc.pause, ctypes.c_void_p), None):
        time.sleep(0.01)
os._exit(0)
'''
with Grader(Limits(cpu_s=2), workers=2, mode="fork", sandbox="landlock") as grader:
    items = [(hog, [("", "x")])] + [(f"print(input())#{k}", [("a", "a")]) for k in range(60)]
    print(Counter(verdict.statuses[0] for verdict in grader.grade(items)[1:]))
"""


@pytest.mark.slow
@pytest.mark.skipif("nobody" not in isolation.USERS, reason="needs a user whose processes are counted, so root")
def test_a_program_with_all_processes_of_the_user_starves_nobody() -> None:
    done = isolation.run(["-c", HOARD], "nobody")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == str(Counter({"passed": 60}))


@pytest.mark.slow
@pytest.mark.skipif("nobody" not in isolation.USERS, reason="needs a user whose processes are counted, so root")
def test_nor_where_it_is_run_again_beside_others() -> None:
    """It kills itself after longer than a fork is waited for, so it and those that it starved are run again at once."""
    again = HOARD.replace("monotonic() + 3", "monotonic() + 6").replace("os._exit(0)", "os.kill(os.getpid(), 9)")
    done = isolation.run(["-c", again], "nobody")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == str(Counter({"passed": 60}))


def test_a_server_that_cannot_be_restarted_at_once_loses_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Servers, "_pause_s", 0.05)
    start, attempts = Servers._start, []
    with Grader(workers=1, sandbox="landlock") as grader:

        def failing(self: Servers, kind: str, tier: str = "") -> Server:
            attempts.append(kind)
            if len(attempts) <= 3:
                raise BlockingIOError(11, "Resource temporarily unavailable")
            return start(self, kind, tier)

        monkeypatch.setattr(Servers, "_start", failing)
        kill_server(grader)
        verdicts = grader.grade([(f"{HONEST}#{k}", [("1 2", "3")]) for k in range(30)])
        assert [verdict.reward for verdict in verdicts] == [1.0] * 30
    assert len(attempts) == 4


def test_where_no_server_starts_any_more_the_error_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Servers, "_pause_s", 0.05)
    monkeypatch.setattr(Servers, "patience_s", 0.2)

    def failing(self: Servers, kind: str, tier: str = "") -> Server:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with Grader(workers=1, sandbox="landlock") as grader:
        monkeypatch.setattr(Servers, "_start", failing)
        kill_server(grader)
        with pytest.raises(StartError, match="Resource temporarily unavailable"):
            grader.grade([(HONEST, [("1 2", "3")])])


@pytest.mark.parametrize(
    ("number", "restarts"), [(errno.EMFILE, 0), (errno.ETOOMANYREFS, 0), (errno.ENOBUFS, 0), (errno.EPIPE, 2)]
)
def test_jobs_that_could_not_be_sent_are_sent_again(
    monkeypatch: pytest.MonkeyPatch, number: int, restarts: int
) -> None:
    """A want of descriptors here, or in flight for the same user, is no fault of the server; a closed socket is."""
    send, attempts = Server.send, []

    def failing(self: Server, pack: Any) -> None:
        attempts.append(pack)
        if len(attempts) in (2, 3):
            raise OSError(number, os.strerror(number))
        send(self, pack)

    with Grader(workers=1, sandbox="landlock", mode="fork") as grader:
        monkeypatch.setattr(Server, "send", failing)
        verdicts = grader.grade([(f"{HONEST}#{k}", [("1 2", "3")]) for k in range(30)])
        assert [verdict.reward for verdict in verdicts] == [1.0] * 30
        assert grader.stats.restarts == restarts


def test_a_shortage_is_waited_out_however_long_the_job_before_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Servers, "patience_s", 0.5)
    send, short = Server.send, iter([False, False, True, True, False])  # the probe, the long job, and then

    def sometimes(self: Server, pack: Any) -> None:
        if next(short, False):
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        send(self, pack)

    monkeypatch.setattr(event_loop, "_QUEUE_PER_SERVER", 1)  # the second job is sent after the long one
    monkeypatch.setattr(Server, "send", sometimes)
    long = f"import time\ntime.sleep(1)\n{HONEST}"
    with Grader(workers=1, sandbox="landlock", mode="fork") as grader:
        verdicts = grader.grade([(long, [("1 2", "3")]), (HONEST, [("1 2", "3")])])
    assert [verdict.reward for verdict in verdicts] == [1.0, 1.0]
    assert next(short, None) is None


def test_a_shortage_that_lasts_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Servers, "patience_s", 0.2)

    def short(self: Server, pack: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with Grader(workers=1, sandbox="landlock") as grader:
        monkeypatch.setattr(Server, "send", short)
        began = time.monotonic()
        with pytest.raises(OSError, match="Too many open files"):
            grader.grade([(HONEST, [("1 2", "3")])])
        assert time.monotonic() - began > 0.2


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENOBUFS, errno.ETOOMANYREFS])
def test_a_server_waits_until_its_results_can_be_sent(number: int) -> None:
    class Control:
        left, sent = 2, b""

        def sendmsg(self, packets: list[bytes], rights: list[Any]) -> None:
            if self.left:
                self.left -= 1
                raise OSError(number, os.strerror(number))
            self.sent += b"".join(packets)

    control = Control()
    Batch(control, Job(ORDER, -1))._deliver(b"results")
    assert (control.left, control.sent) == (0, b"results")


def kill_server(grader: Grader) -> None:
    shell = grader._servers.running[0].process.process.pid
    os.kill(int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0]), signal.SIGKILL)


@pytest.mark.parametrize(("limit", "value"), [("NOFILE", 40), ("AS", 3 << 30), ("NPROC", 5000)])
def test_low_limits_of_the_caller_are_enough(limit: str, value: int) -> None:
    script = f"import resource\nresource.setrlimit(resource.RLIMIT_{limit}, ({value}, {value}))\n" + LOW_LIMITS
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.strip() == "[1.0, 1.0]", done.stderr[-1500:]


@pytest.mark.parametrize(("limit", "letter"), [("NOFILE", "n"), ("SIGPENDING", "i")])
def test_a_limit_that_is_too_low_is_named(limit: str, letter: str) -> None:
    script = f"import resource\nresource.setrlimit(resource.RLIMIT_{limit}, (10 * ({letter!r} == 'n'),) * 2)\n"
    command = [sys.executable, "-c", script + LOW_LIMITS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert f"too low, perhaps: ulimit -{letter}" in done.stderr.splitlines()[-1]
    assert "sandbox: off" not in done.stderr


@pytest.mark.parametrize(
    ("limit", "value", "letter"), [("AS", 1 << 30, "v"), ("FSIZE", 1 << 20, "f"), ("CPU", 10, "t")]
)
def test_a_limit_below_what_programs_may_use_is_named(limit: str, value: int, letter: str) -> None:
    """A program within the grader's limits would otherwise get 0 for the shell's."""
    script = f"import resource\nresource.setrlimit(resource.RLIMIT_{limit}, ({value}, {value}))\n" + LOW_LIMITS
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout == ""
    assert f"for which ulimit -{letter} must be" in done.stderr.splitlines()[-1]


@pytest.fixture
def pids_group() -> Iterator[Path]:
    """A control group of its own, whose number of processes can be limited."""
    root = next((path for path in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")) if path.is_dir()), Path("/"))
    group = root / f"maxk-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("control groups cannot be made here")
    try:
        if not (group / "pids.max").exists():
            pytest.skip("control groups do not limit processes here")
        yield group
    finally:
        remove_group(group)


def remove_group(group: Path) -> None:
    """A killed process stays in its group until it has exited and been reaped; the kernel says EBUSY until then."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def run_in(group: Path, most: int, script: str) -> subprocess.CompletedProcess[str]:
    (group / "pids.max").write_text(str(most))
    enter = f"import os\nopen({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
    command = [sys.executable, "-c", enter + script]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_few_processes_allowed_by_a_control_group_are_enough(pids_group: Path) -> None:
    """This process, a shell, a server and its child; programs that want threads besides fail by themselves."""
    done = run_in(pids_group, 8, BESIDE_THREADS)
    assert done.stdout.strip() == "[1.0, 1.0, 0.0, 1.0, 1.0]", done.stderr[-1500:]


def test_a_control_group_that_allows_too_few_processes_is_named(pids_group: Path) -> None:
    done = run_in(pids_group, 3, LOW_LIMITS)
    assert f"too low, perhaps: pids.max = 3 of {pids_group}" in done.stderr.splitlines()[-1]


BESIDE_THREADS = """
from maxk.grading import Grader
bomb = "import threading, time\\nfor _ in range(500): threading.Thread(target=time.sleep, args=(1,)).start()"
honest = [(f"class A: pass\\nprint(input())#{i}", [("a", "a"), ("b", "b")]) for i in range(4)]
with Grader(workers=1, sandbox="landlock") as grader:
    print([verdict.reward for verdict in grader.grade([*honest[:2], (bomb, [("", "")]), *honest[2:]])])
"""
LOW_LIMITS = """
from maxk.grading import Grader
programs = ["print(input())", "class A: pass\\nprint(input())"]
with Grader(workers=1) as grader:
    print([verdict.reward for verdict in grader.grade([(program, [("a", "a")]) for program in programs])])
"""


# ------------------------------------------------------------------------------------- nothing to steal

THIEF = """
import ctypes, os
libc = ctypes.CDLL(None)
r, w = os.pipe()
wanted = b"MARK-" + b"OF-ANOTHER"
found = set()
for centre, span in ((id(object()), 16 << 20), (id(b"x" * 3000), 16 << 20), (id(b"x" * 300000), 16 << 20)):
    for at in range((centre - span) & ~4095, centre + span, 4096):
        if libc.write(w, ctypes.c_void_p(at), 4096) == 4096:
            page = os.read(r, 4096)
            place = page.find(wanted)
            while place >= 0:
                rest = page[place + len(wanted) :]
                if rest[:1] == b"-":  # not this program's own `wanted`
                    found.add(rest[:8].split(b"!")[0])
                place = page.find(wanted, place + 1)
print(sorted(found))
"""
MARK = "MARK-OF-" + "ANOTHER"
CONTROL = f"kept = '{MARK[:8]}' + '{MARK[8:]}-found!' * 2\n"  # the scan works: it finds what the program makes itself


@pytest.mark.parametrize("mode", ["auto", "fork"])
@pytest.mark.parametrize("tier", TIERS)
def test_nothing_of_other_jobs_is_in_a_programs_memory(tier: str, mode: str) -> None:
    neighbours = [
        (f"# {MARK}-source!\nimport os\nos.getpid()\nprint(input())" + "#" * 2000, [("a", "a")] * 2),
        (f"# {MARK}-shared!\nprint(input())" + "#" * 2000, [("a", "a")] * 2),
        ("import os\nos.getpid()\nprint(input()[:1])", [(f"{MARK}-input!" + "x" * 2000, "M")] * 2),
        (f"import os\nos.getpid()\nprint(('{MARK[:5]}' + '{MARK[5:]}-output!') * 200)", [("", "x")] * 2),
    ]
    seen: list[str] = []

    def keep(stdin: str, expected: str, output: str) -> bool:
        seen.append(output.strip())
        return True

    with Grader(Limits(cpu_s=30), workers=1, sandbox=tier, mode=mode) as grader:
        grader.grade(neighbours)
        grader.grade([Submission(THIEF, [("first", ""), (f"{MARK}-next!", "")], checker=keep)])
        grader.grade([Submission(CONTROL + THIEF, [("", "")], checker=keep)])
    assert seen == ["[]", "[]", "[b'-found']"]


ABI_5 = """
import json
from maxk.grading import Grader, Submission
program = '''
import os
print(input())
for fd in range(64):
    try:
        print(open(f"/proc/{os.getppid()}/fd/{fd}", "rb").read()[:60])
    except OSError:
        pass
'''
seen = []
with Grader(workers=1, sandbox="landlock") as grader:
    keep = lambda stdin, expected, output: seen.append(output) or True
    grader.grade([Submission(program, [("111", ""), ("222", "")], checker=keep)])
print(json.dumps(seen))
"""


def test_before_landlock_abi_6_the_servers_descriptors_are_out_of_reach(tmp_path: Path) -> None:
    """Its memory files have no path that a rule could name. The sources are copied so that they see an older kernel."""
    shutil.copytree(Path(maxk.__file__).parent, tmp_path / "maxk")
    file = tmp_path / "maxk/grading/confined/confinement.py"
    text, asked = file.read_text(), "_call(_SYS_LANDLOCK_CREATE, None, 0, 1)"
    assert asked in text
    file.write_text(text.replace(asked, f"min(5, {asked})"))
    done = subprocess.run(
        [sys.executable, "-c", ABI_5],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr[-1500:]
    assert json.loads(done.stdout) == ["111\n", "222\n"]


# ------------------------------------------------------------------------------------- nothing left behind

MEMORY = """
import builtins, ctypes, os, sys
libc = ctypes.CDLL(None)
"""
LEFT_BEHIND = {
    "code of the interpreter": """
at = ctypes.cast(ctypes.pythonapi.PyRun_SimpleStringFlags, ctypes.c_void_p).value
print(ctypes.string_at(at, 4) == b"\\x90" * 4, flush=True)
if libc.mprotect(ctypes.c_long(at & ~4095), ctypes.c_long(8192), 7) == 0:
    ctypes.memmove(at, b"\\x90" * 4, 4)
""",
    "a built-in type": """
size = ctypes.c_long.from_address(id(int) + 32)  # tp_basicsize
print(size.value == 77, flush=True)
size.value = 77
os._exit(0)
""",
    "modules": """
print(hasattr(builtins, "kept") or "kept" in sys.modules)
builtins.kept = True
sys.modules["kept"] = sys
""",
    "flags of the standard files": """
import array, fcntl
print(any(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK for fd in range(3)))
for fd in range(3):
    fcntl.ioctl(fd, 0x5421, array.array("i", [1]))  # FIONBIO
""",
}


@pytest.mark.parametrize("name", LEFT_BEHIND)
@pytest.mark.parametrize("tier", TIERS)
def test_what_a_run_changes_is_unchanged_in_the_next(name: str, tier: str) -> None:
    """Runs share the server's memory until they write to it, the interpreter's code in large pages too."""
    program = MEMORY + LEFT_BEHIND[name]
    assert outputs_of(program, ["1", "2", "3"], mode="fork", sandbox=tier) == ["False"] * 3


# ------------------------------------------------------------------------------------- bounded sums


def test_outputs_that_wait_for_a_checker_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bound, size = 1 << 18, 1 << 16
    monkeypatch.setattr(event_loop, "_UNCHECKED_BYTES", bound)
    most = 0
    ready = EventLoop._ready

    def watched(self: Any) -> list[Server]:
        nonlocal most
        most = max(most, self.unchecked_bytes)
        return ready(self)

    monkeypatch.setattr(EventLoop, "_ready", watched)
    checker = CheckerProgram("print(1)")
    items = [
        Submission(f"print('x' * {size})#{k}", [(str(i), "1") for i in range(40)], checker=checker) for k in "abcd"
    ]
    with Grader(Limits(output_bytes=1 << 20), workers=1, mode="fork") as grader:
        assert [verdict.reward for verdict in grader.grade(items)] == [1.0] * 4
    assert bound < most <= bound + wire.BATCH_RUNS * (size + 1)


@pytest.mark.parametrize("mode", ["auto", "fork"])
def test_the_outputs_of_runs_that_share_a_file_are_bounded(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """The file stays in memory until the process ends, so the limit of each run does not bound it."""
    size, ends = 1 << 20, []
    take = EventLoop._take_test

    def watched(self: Any, job: Any, test: int, run: Any) -> None:
        ends.append(run.end)
        take(self, job, test, run)

    monkeypatch.setattr(EventLoop, "_take_test", watched)
    tests = [(str(number), "x" * (size - 1)) for number in range(30)]
    with Grader(Limits(output_bytes=size), workers=1, mode=mode) as grader:
        [verdict] = grader.grade([(f"print('x' * {size - 1})", tests)])
    assert verdict.reward == 1.0
    assert max(ends) <= (size if mode == "fork" else shared._OUTPUT_BYTES + size)
    assert (max(ends) > size) == (mode == "auto")


def test_inputs_of_other_tests_are_not_a_programs_memory() -> None:
    tests = [("7" * (4 << 20), str(4 << 20))] * 25
    program = "import sys\nclass A: pass\nprint(len(sys.stdin.buffer.read()))"
    with Grader(Limits(cpu_s=4, memory_mb=64), workers=1) as grader:
        for source in (program, program.replace("class A: pass\n", "")):
            assert grader.grade([(source, tests)])[0].reward == 1.0


def test_the_time_that_a_program_may_sleep_is_bounded() -> None:
    """Each test is within the limit; all 60 together would take a minute, and another one in isolation."""
    limits = Limits(cpu_s=0.5, wall_s=1.5, untested="wrong_answer")
    started = time.monotonic()
    with Grader(limits, workers=1) as grader:
        [verdict] = grader.grade([("import time\ntime.sleep(0.9)\nprint(1)", [("", "1")] * 60)])
    assert verdict.statuses[0] == "passed"
    assert verdict.statuses[-1] == "wrong_answer"
    assert time.monotonic() - started < 54  # what one pass over all tests would sleep
