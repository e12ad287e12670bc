"""The event loop of one call of the grader: takes submissions, keeps all servers busy, compares outputs.

It runs in the calling thread, so there are no threads and no locks here, and results stream out with a bounded number
of submissions in memory.
"""

from __future__ import annotations

import errno
import os
import selectors
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence

from maxk.grading import verdicts
from maxk.grading.cache import VerdictCache
from maxk.grading.checkers import ATTEMPTS, Checkers
from maxk.grading.comparison import output_digest, outputs_match
from maxk.grading.confined.wire import FAULT, RAN, UNTESTED
from maxk.grading.connection import Report, Run, Server
from maxk.grading.inputs import Inputs
from maxk.grading.keys import Keys, grader_version
from maxk.grading.planning import plan
from maxk.grading.sandbox import numpy_folder, require_room
from maxk.grading.servers import Servers
from maxk.grading.sharing.packs import Packs
from maxk.grading.stats import Stats
from maxk.grading.tasks import CHECKER, KINDS, NUMPY, PLAIN, Check, Job, Part, Task
from maxk.grading.verdicts import Checker, CheckerProgram, Limits, NotReady, Submission, SubmissionLike, Verdict

_QUEUE_PER_SERVER = 2  # one running, one waiting, so a server never idles while the parent compares
_CHUNK = 32  # submissions taken from the caller and looked up at once; servers begin with the first of them
_AHEAD, _AHEAD_TESTS = 1 << 11, 1 << 16  # unfinished at most; many, because problems share processes
_MEMO = 1 << 15  # tests whose verdicts are remembered, for repeated programs within one call
_STORED_AT_ONCE = 256  # verdicts
_UNCHECKED_BYTES = 64 << 20  # of outputs that wait for their checker, above which nothing else is received
_RERUNS_A_WORKER = 4  # collected before other work pauses for them
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ETOOMANYREFS)  # that may pass
_NO_SERVER_PAUSE_S = 0.05
_STARVED_POLL_S = 0.005  # between questions to a source that has nothing ready
_POLL_S = 1.0  # after which servers that are stuck are looked for


class EventLoop:
    """One call of `Grader.grade_iter`: what is waiting, running and done."""

    def __init__(
        self,
        submissions: Iterable[SubmissionLike | NotReady],
        servers: Servers,
        limits: Limits,
        mode: str,
        stats: Stats,
        cache: VerdictCache | None,
    ) -> None:
        self.servers, self.limits, self.mode, self.stats, self.cache = servers, limits, mode, stats, cache
        self.source = iter(submissions)
        self.inputs = Inputs()
        self.index = 0
        self.exhausted = False
        self.starved = False  # the source has nothing ready
        self.waiting: dict[str, deque[Task]] = {kind: deque() for kind in KINDS}
        self.packs = Packs()
        self.isolated: deque[Job] = deque()
        self.open: dict[bytes, Job] = {}
        self.open_tests = 0
        self.memo: OrderedDict[bytes, Verdict] = OrderedDict()
        self.memo_tests = 0
        self.done: list[tuple[int, Verdict]] = []
        self.to_store: dict[bytes, Verdict] = {}
        self.checkers = Checkers(self.waiting[CHECKER], self.stats.faults, self._decided)
        self.unchecked_bytes = 0
        self.short_since = 0.0  # when the shortage began that keeps jobs from being sent; 0 without one
        self.keys = Keys(grader_version(), servers.tier, mode, limits)

    def run(self) -> Iterator[tuple[int, Verdict]]:
        """Yields (index, verdict) as they are ready."""
        try:
            while True:
                if self.servers.closed:
                    raise RuntimeError("the grader was closed while it graded")
                self._take()
                self._dispatch()
                yield from self._drain()
                if self.servers.busy():
                    self._listen()
                    yield from self._drain()
                elif self.isolated or any(map(self._waits, KINDS)):
                    time.sleep(_NO_SERVER_PAUSE_S)
                elif self.exhausted:
                    return
                elif self.starved:
                    time.sleep(_STARVED_POLL_S)
        finally:
            self._store()

    def _drain(self) -> Iterator[tuple[int, Verdict]]:
        done, self.done = self.done, []
        yield from done

    def _waits(self, kind: str) -> bool:
        return bool(self.waiting[kind] or (kind == PLAIN and self.packs))

    # taking submissions

    def _may_take(self) -> bool:
        return not self.exhausted and len(self.open) < _AHEAD and self.open_tests < _AHEAD_TESTS

    def _patience_s(self) -> float:
        """How long to wait for results: not at all if taking submissions is more urgent, so that no server runs dry."""
        if self.starved:
            return _STARVED_POLL_S
        few = sum(map(len, self.waiting.values())) + len(self.packs) < _CHUNK
        return 0.0 if few and self._may_take() else _POLL_S

    def _take(self) -> None:
        """Takes the next chunk of submissions, unless enough are unfinished."""
        if not self._may_take():
            return
        chunk = [self.inputs.submission(item, at) for at, item in enumerate(self._arrived(), self.index)]
        keys = [self.keys.of(submission) for submission in chunk]
        unknown = [key for key in dict.fromkeys(keys) if key not in self.memo and key not in self.open]
        known = self.cache.get_many(unknown) if self.cache is not None else {}
        for submission, key in zip(chunk, keys, strict=True):
            self._enqueue(submission, key, known)

    def _arrived(self) -> Iterator[SubmissionLike]:
        """At most a chunk of submissions: those that the source has ready."""
        self.starved = False
        for _ in range(_CHUNK):
            try:
                item = next(self.source)
            except StopIteration:
                self.exhausted = True
                return
            if isinstance(item, NotReady):
                self.starved = True
                return
            yield item

    def _enqueue(self, submission: Submission, key: bytes, known: dict[bytes, Verdict]) -> None:
        index, self.index = self.index, self.index + 1
        if key in known:
            self.stats.cached += 1
            self._give(index, known[key])
        elif key in self.memo:
            self.stats.deduplicated += 1
            self._give(index, self.memo[key])
        elif key in self.open:
            self.open[key].waiters.append(index)
        elif submission.program is None:
            tests = len(submission.tests)
            self._give(index, Verdict((verdicts.UNPARSEABLE,) * tests, (0.0,) * tests, ("",) * tests))
        else:
            numpy = "numpy" in submission.program and numpy_folder() is not None
            how = plan(submission.program, share=self.mode == "auto" and not numpy)
            limits, kind = submission.limits or self.limits, NUMPY if numpy else PLAIN
            require_room(limits)
            job = Job(submission, limits, key, [index], kind, how, problem=self.keys.of_tests(submission.tests))
            job.statuses = [verdicts.RUNTIME_ERROR if how.broken else verdicts.HARNESS_ERROR] * len(submission.tests)
            job.cpu_s = [0.0] * len(submission.tests)
            job.outputs = [""] * len(submission.tests)
            if how.broken:
                job.ran = True
                self._finish_if_done(job)
            else:
                self.open[key] = job
                self.open_tests += len(job.statuses)
                if job.may_share:
                    self.packs.add(job)
                else:
                    self.waiting[job.kind].append(job)

    def _give(self, index: int, verdict: Verdict) -> None:
        self.stats.submissions += 1
        self.stats.statuses.update(verdict.statuses)
        self.done.append((index, verdict))

    # running

    def _dispatch(self) -> None:
        rerunning = any(job.isolated for server in self.servers.busy() for job in server.jobs.values())
        many = len(self.isolated) >= _RERUNS_A_WORKER * self.servers.workers
        if self.isolated and (rerunning or many or not any(map(self._waits, KINDS))):
            if rerunning or not self.servers.busy():
                self._rerun()
            return
        if rerunning:
            return
        for kind, queue in self.waiting.items():
            servers = self.servers.of_kind(kind) if self._waits(kind) else []
            for depth in range(1, _QUEUE_PER_SERVER + 1):
                for server in servers:
                    while self._waits(kind) and server.load < (1 if queue and queue[0].attempts else depth):
                        if not self._send(server, self._next(kind)):
                            return

    def _next(self, kind: str) -> Sequence[Task]:
        """The next jobs of a server of that kind: as many as leave some for the other servers."""
        if self.waiting[kind]:
            return [self.waiting[kind].popleft()]
        return self.packs.take(max(1, len(self.packs) // self.servers.workers))

    def _rerun(self) -> None:
        """Starts reruns, beside which only other reruns run, each on its own core: they at most double the time.

        A rerun that lacked a process or descriptor beside others runs alone.
        """
        free = min(self.servers.workers, len(os.sched_getaffinity(0))) - len(self.servers.busy())
        for _ in range(min(free, len(self.isolated))):
            if self._runs_alone() or (self.isolated[0].alone and self.servers.busy()):
                return
            idle = [server for server in self.servers.of_kind(self.isolated[0].kind) if not server.jobs]
            if not idle or not self._send(idle[0], [self.isolated.popleft()]):
                return

    def _runs_alone(self) -> bool:
        return any(job.alone for server in self.servers.busy() for job in server.jobs.values())

    def _send(self, server: Server, pack: Sequence[Task]) -> bool:
        """Sends jobs to a server; if that fails, they wait again and the result is False."""
        try:
            server.send(pack)
        except OSError as error:
            for job in reversed(pack):
                queue = self.isolated if job.isolated else self.waiting[job.kind]
                queue.appendleft(job)  # type: ignore[arg-type]
            if error.errno not in _SHORTAGES:
                self._lost(server)
            elif self._lasts():
                raise
            return False
        self.short_since = 0.0
        self.stats.checks += sum(isinstance(job, Check) for job in pack)
        return True

    def _lasts(self) -> bool:
        """Whether the shortage has lasted for long; it begins with the first call."""
        now = time.monotonic()
        self.short_since = self.short_since or now
        return now - self.short_since > self.servers.patience_s

    def _listen(self) -> None:
        for server in self._ready():
            try:
                report = server.receive()
            except (OSError, ValueError):
                self._lost(server)
                continue
            self._take_report(report)
        for server in self.servers.busy():
            if server.is_stuck():
                self._lost(server)

    def _ready(self) -> list[Server]:
        """Servers with results to read, without those whose outputs would only wait for a checker."""
        full = self.unchecked_bytes > _UNCHECKED_BYTES and bool(self.servers.of_kind(CHECKER))
        with selectors.PollSelector() as selector:
            for server in self.servers.busy():
                if full and server.kind != CHECKER:
                    server.heard = time.monotonic()
                else:
                    selector.register(server.process.socket, selectors.EVENT_READ, server)
            return [key.data for key, _ in selector.select(self._patience_s())] if selector.get_map() else []

    def _lost(self, server: Server) -> None:
        """Dismisses a dead or stuck server: its current job is retried once, then given up; the others are requeued."""
        jobs = list(server.jobs.values())
        self.servers.dismiss(server)
        self.stats.restarts += 1
        if jobs:
            jobs[0].attempts += 1
        for job in reversed(jobs):
            if job.attempts < ATTEMPTS:
                self.waiting[job.kind].appendleft(job)
            elif isinstance(job, Check):
                self.checkers.give_up(job)
            else:
                self._give_up(job)

    def _give_up(self, task: Job | Part) -> None:
        job = _job_of(task)
        for test in range(task.first, task.first + task.tests):
            self._forget_check(job, test)
            job.statuses[test] = verdicts.HARNESS_ERROR
        self.stats.faults["the grading process ended twice"] += task.tests
        self._ended(task)

    # results

    def _take_report(self, report: Report) -> None:
        task = report.task
        if isinstance(task, Check):
            self.checkers.take(task, report.runs[0])
            return
        job = _job_of(task)
        for run in report.runs:
            test = task.first + run.test
            if not 0 <= job.again_from <= test:
                self._take_test(job, test, run)
        if report.left and report.left.start == 0:
            self.waiting[job.kind].appendleft(job)  # by itself, so that a server cannot hand it back again
        elif report.last:
            self._ended(task, report.left)

    def _ended(self, task: Job | Part, left: Sequence[int] = ()) -> None:
        """A server is done with a task, but for the tests that are left, which run as parts: now, before other work."""
        job = _job_of(task)
        if isinstance(task, Part):
            job.parts -= 1
        elif left and job.again_from < 0:
            parts = [Part(job, job.first + test, job.attempts) for test in left]
            job.parts = len(parts)
            self.waiting[job.kind].extendleft(reversed(parts))
        if job.parts:
            return
        if isinstance(task, Part):
            self._charge(job)
        if job.again_from >= 0:
            job.first, job.again_from, job.attempts = job.again_from, -1, 0
            job.isolated, job.alone = True, job.isolated
            self.stats.reruns += 1
            self.isolated.append(job)
        else:
            job.ran = True
            self.stats.programs += 1
            self._finish_if_done(job)

    def _charge(self, job: Job) -> None:
        """Tests that ran beside others although those before them had used up the total time count as not run."""
        spent = 0.0
        for test in range(job.first, len(job.statuses)):
            if spent >= job.limits.total:
                job.again_from = -1
                self._take_test(job, test, Run(test, UNTESTED, False, 0.0, None, 0, 0))
            elif test == job.again_from:
                return  # what is repeated is charged there
            elif job.statuses[test] == verdicts.TIME_LIMIT:
                spent += job.cpu_s[test]

    def _take_test(self, job: Job, test: int, run: Run) -> None:
        self.stats.tests += run.outcome not in (UNTESTED, FAULT)
        self._forget_check(job, test)
        job.cpu_s[test], job.outputs[test] = run.cpu_s, ""
        job.doubtful |= run.doubtful
        if (run.doubtful and not job.isolated) or (run.outcome == FAULT and not job.alone):
            job.again_from = test  # the machine may have been busy; decided when nothing else runs
        elif run.outcome == RAN:
            self._compare(job, test, run.output())
        elif run.outcome == UNTESTED:
            job.statuses[test] = job.limits.untested
        elif run.outcome == FAULT:
            job.statuses[test] = verdicts.HARNESS_ERROR
            self.stats.faults["no process, memory or descriptor was left to run a program"] += 1
        else:
            job.statuses[test] = verdicts.FAILURES[run.outcome]

    def _compare(self, job: Job, test: int, output: bytes) -> None:
        stdin, expected = job.submission.tests[test]
        checker = job.submission.checker
        job.outputs[test] = output_digest(output)
        if isinstance(checker, CheckerProgram):
            job.checks[test] = Check(job, test, output, verdicts.CHECKER_LIMITS, checker.source)
            self.unchecked_bytes += len(output)
            self.checkers.ask(job.checks[test])
            return
        if checker is None:
            passed = outputs_match(output, expected, job.submission.comparison)
        else:
            passed = _trusted(checker, stdin, expected, output)
        job.statuses[test] = verdicts.PASSED if passed else verdicts.WRONG_ANSWER

    def _forget_check(self, job: Job, test: int) -> None:
        if check := job.checks.pop(test, None):
            self.unchecked_bytes -= len(check.output)

    def _decided(self, check: Check, status: str) -> None:
        job = check.job
        if job.checks.get(check.test) is check:  # else the test has been run again since
            job.statuses[check.test] = status
            self._forget_check(job, check.test)
            self._finish_if_done(job)

    def _finish_if_done(self, job: Job) -> None:
        if not job.ran or job.checks:
            return
        verdict = Verdict(tuple(job.statuses), tuple(job.cpu_s), tuple(job.outputs))
        if self.open.pop(job.key, None) is not None:
            self.open_tests -= len(job.statuses)
        self._remember(job.key, verdict)
        doubtful = job.doubtful or verdicts.HARNESS_ERROR in verdict.statuses
        if self.cache is not None and not doubtful and not callable(job.submission.checker):
            self.to_store[job.key] = verdict
            if len(self.to_store) >= _STORED_AT_ONCE:
                self._store()
        self.stats.deduplicated += len(job.waiters) - 1
        for index in job.waiters:
            self._give(index, verdict)

    def _remember(self, key: bytes, verdict: Verdict) -> None:
        self.memo[key] = verdict
        self.memo_tests += len(verdict.statuses)
        while self.memo_tests > _MEMO and len(self.memo) > 1:
            _, oldest = self.memo.popitem(last=False)
            self.memo_tests -= len(oldest.statuses)

    def _store(self) -> None:
        if self.cache is not None and self.to_store:
            self.cache.put_many(self.to_store)
        self.to_store = {}


def _job_of(task: Job | Part) -> Job:
    return task.job if isinstance(task, Part) else task


def _trusted(checker: Checker, stdin: str, expected: str, output: bytes) -> bool:
    try:
        text = output.decode()
    except UnicodeDecodeError:
        return False
    return bool(checker(stdin, expected, text))
