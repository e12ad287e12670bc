"""What a fork server is given to do: a submission's tests, one of them by itself, or a checker program."""

from __future__ import annotations

from dataclasses import dataclass, field

from maxk.grading.confined.wire import BATCH_RUNS, Head
from maxk.grading.planning import Plan
from maxk.grading.verdicts import Limits, Submission, Test

_MOST_SHARED_TESTS = 2000  # of one program
KINDS = PLAIN, NUMPY, CHECKER = ("plain", "numpy", "checker")  # of servers
CHECKER_FILES = ["input.txt", "expected.txt", "output.txt"]


@dataclass(eq=False)
class Job:
    """A submission in progress; `waiters` are the indices that share its verdict."""

    submission: Submission
    limits: Limits
    key: bytes
    waiters: list[int]
    kind: str  # of the server it needs
    plan: Plan
    statuses: list[str] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)  # digests
    first: int = 0  # test its current run starts at
    parts: int = 0  # that its current run has been divided into and that have not ended
    checks: dict[int, Check] = field(default_factory=dict)  # tests waiting for a checker program
    ran: bool = False
    attempts: int = 0
    doubtful: bool = False  # some status may depend on the machine's load, so none is stored
    isolated: bool = False  # in an isolated rerun, beside other reruns only
    alone: bool = False  # in a second rerun, beside nothing
    again_from: int = -1  # first test of a rerun
    problem: bytes = b""  # digest of its tests

    @property
    def tests(self) -> int:
        return len(self.statuses) - self.first

    @property
    def input_bytes(self) -> int:
        return sum(len(stdin) for stdin, _ in self.submission.tests[self.first :])

    @property
    def silent_runs(self) -> int:
        """How many tests may run before the server reports."""
        return max(BATCH_RUNS, self.tests) if self.may_share else BATCH_RUNS

    @property
    def divisible(self) -> bool:
        """Whether tests may run elsewhere, side by side, after one has timed out; not those that run in isolation."""
        return not self.isolated

    @property
    def may_share(self) -> bool:
        """Whether its tests may run in one process, which it shares with other such programs."""
        return self.plan.shared and not self.isolated and self.tests <= _MOST_SHARED_TESTS

    def inputs(self) -> list[bytes]:
        return [_encoded(test) for test in self.submission.tests[self.first :]]

    def head(self) -> Head:
        return self.submission.program or "", self.plan.code, {}, []


@dataclass(eq=False)
class Part:
    """A test of a job, run by itself because another one has timed out."""

    job: Job
    first: int  # the test
    attempts: int = 0
    isolated = alone = may_share = divisible = False
    tests = silent_runs = 1

    @property
    def kind(self) -> str:
        return self.job.kind

    @property
    def limits(self) -> Limits:
        return self.job.limits

    def inputs(self) -> list[bytes]:
        return [_encoded(self.job.submission.tests[self.first])]

    def head(self) -> Head:
        return self.job.head()


@dataclass(eq=False)
class Check:
    """A checker program's run for one test of a job."""

    job: Job
    test: int
    output: bytes
    limits: Limits
    source: str
    attempts: int = 0
    isolated = alone = may_share = divisible = False
    tests = silent_runs = 1
    kind = CHECKER

    def inputs(self) -> list[bytes]:
        return [b""]

    def head(self) -> Head:
        texts = [text.encode(errors="surrogatepass") for text in self.job.submission.tests[self.test]]
        return self.source, None, dict(zip(CHECKER_FILES, [*texts, self.output], strict=True)), CHECKER_FILES


@dataclass(eq=False)
class Validation(Check):
    """A checker's run on the expected output of a test, which a sound one accepts."""

    key: bytes = b""
    waiting: list[Check] = field(default_factory=list)  # for its result


Task = Job | Part | Check
"""What a server is given to do."""


def _encoded(test: Test) -> bytes:
    return test[0].encode(errors="surrogatepass")
