"""Counters of a grader, for progress bars and logs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from maxk.errors import counted


@dataclass
class Stats:
    """Counters since the grader was made."""

    submissions: int = 0  # verdicts given
    cached: int = 0  # of them from the verdict cache
    deduplicated: int = 0  # of them shared with an identical submission
    programs: int = 0  # programs run, each counted once
    tests: int = 0  # test runs, re-runs included
    reruns: int = 0  # programs run again in isolation, since the machine's load may have decided
    restarts: int = 0  # servers that ended, and were replaced
    checks: int = 0  # checker programs run, validations included
    faults: Counter[str] = field(default_factory=Counter)  # why tests could not be graded
    statuses: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        """For a progress bar: the fraction cached or repeated, and the fraction of each status so far."""
        reused = (self.cached + self.deduplicated) / max(self.submissions, 1)
        total = max(self.statuses.total(), 1)
        parts = [f"{status} {count / total:.0%}" for status, count in self.statuses.most_common(4)]
        return ", ".join([f"reused {reused:.0%}", *parts])

    def complaints(self) -> list[str]:
        """One line per kind of fault that is not the fault of a program."""
        lines = [f"could not grade {counted(count, 'test run')}: {fault}" for fault, count in self.faults.most_common()]
        if self.restarts:
            times = counted(self.restarts, "time")
            lines.append(f"grading processes ended {times} and were replaced; what they ran was run again")
        return lines
