"""Types shared by the whole package: limits, statuses, submissions and verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from maxk.grading.comparison import NUMBERS
from maxk.grading.confined import wire

PASSED = "passed"
WRONG_ANSWER = "wrong_answer"
RUNTIME_ERROR = "runtime_error"
TIME_LIMIT = "time_limit"
MEMORY_LIMIT = "memory_limit"
OUTPUT_LIMIT = "output_limit"
VIOLATION = "violation"
UNPARSEABLE = "unparseable"
HARNESS_ERROR = "harness_error"

STATUSES = (
    PASSED,
    WRONG_ANSWER,
    RUNTIME_ERROR,
    TIME_LIMIT,
    MEMORY_LIMIT,
    OUTPUT_LIMIT,
    VIOLATION,
    UNPARSEABLE,
    HARNESS_ERROR,
)

FAILURES = {
    wire.RUNTIME_ERROR: RUNTIME_ERROR,
    wire.TIME_LIMIT: TIME_LIMIT,
    wire.MEMORY_LIMIT: MEMORY_LIMIT,
    wire.OUTPUT_LIMIT: OUTPUT_LIMIT,
    wire.VIOLATION: VIOLATION,
}
"""The status of a failed run, by its outcome."""

Test = tuple[str, str]
"""One test: (standard input, expected standard output)."""

TestLike = Test | Mapping[str, str]
"""A test as callers may write it: the pair, or a mapping with the keys `stdin` and `expected`."""


@dataclass(frozen=True)
class CheckerProgram:
    """An untrusted checker, run in the same sandbox as the programs it judges.

    It is called as `main.py input.txt expected.txt output.txt` (three readable files) and accepts by printing a number
    of at least 1, like the `generated_checker` programs of open-r1/codeforces.

    Before it judges a test, it must accept the test's expected output; otherwise it is broken, and the test gets
    `harness_error`. If a sound checker fails on a program's output, it rejects that output. Checkers run under
    `CHECKER_LIMITS`.
    """

    source: str


Checker = Callable[[str, str, str], bool]
"""A trusted checker, part of the data set's code: (input, expected, output) → accepted. Runs in the parent."""


@dataclass(frozen=True)
class Limits:
    """What one run of a program may use.

    cpu_s: CPU seconds (user + system) of one test; decides `time_limit`.
    memory_mb: MiB of memory beyond what the idle interpreter uses; decides `memory_limit`.
    output_bytes: bytes of standard output of one test; decides `output_limit`.
    wall_s: wall-clock seconds of one test; only stops programs that wait without using CPU. Default max(5 × cpu_s,
        cpu_s + 5).
    total_cpu_s: seconds one program may spend in tests that end in `time_limit`; the tests after that are not run and
        count as `untested`. Default 4 × cpu_s.
    untested: status of tests not run because of `total_cpu_s`.
    """

    cpu_s: float = 2.0
    memory_mb: int = 512
    output_bytes: int = 16 << 20
    wall_s: float | None = None
    total_cpu_s: float | None = None
    untested: str = TIME_LIMIT

    def __post_init__(self) -> None:
        for name in ("cpu_s", "memory_mb", "output_bytes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"Limits.{name} must be positive, not {getattr(self, name)!r}")
        for name in ("wall_s", "total_cpu_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"Limits.{name} must be positive or None, not {value!r}")
        if self.untested not in STATUSES or self.untested == PASSED:
            raise ValueError(f"Limits.untested must be a failing status, not {self.untested!r}")

    @property
    def wall(self) -> float:
        return self.wall_s if self.wall_s is not None else max(5 * self.cpu_s, self.cpu_s + 5)

    @property
    def total(self) -> float:
        return self.total_cpu_s if self.total_cpu_s is not None else 4 * self.cpu_s


CHECKER_LIMITS = Limits(cpu_s=10.0, memory_mb=1024, output_bytes=1 << 20, wall_s=60.0)
"""Limits of all checker programs: far above what a sound one needs."""


class Submission(NamedTuple):
    """One thing to grade. A plain `(program, tests)` pair is accepted wherever a submission is.

    program: Python source, or None for a completion without a program (every test is `unparseable`).
    tests: (stdin, expected stdout) pairs, or mappings with the keys `stdin` and `expected`; at least one.
    limits: by default the grader's.
    checker: decides instead of the comparison rule.
    comparison: "numbers", "tokens" or "lines"; see `maxk.grading.comparison`.
    """

    program: str | None
    tests: Sequence[Test]
    limits: Limits | None = None
    checker: Checker | CheckerProgram | None = None
    comparison: str = NUMBERS


class NotReady(Enum):
    """What a source of submissions gives while it has none ready, but will have others."""

    NOT_READY = "no submission is ready"


NOT_READY = NotReady.NOT_READY

SubmissionLike = Submission | tuple[str | None, Sequence[TestLike]]
"""What `Grader.grade` takes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Statuses of one submission's tests in order, with CPU seconds (0.0 where none ran) and the output of each.

    Of an output only `comparison.output_digest` is kept ("" if the program did not end normally), which is all that
    clusters and majority votes need.
    """

    statuses: tuple[str, ...]
    cpu_s: tuple[float, ...] = field(default=(), compare=False)
    outputs: tuple[str, ...] = field(default=(), compare=False)
    cached: bool = field(default=False, compare=False)

    @property
    def reward(self) -> float:
        """Fraction of tests passed; NaN if any test could not be graded (`harness_error`), which is not a zero."""
        if HARNESS_ERROR in self.statuses:
            return math.nan
        return self.statuses.count(PASSED) / len(self.statuses)
