"""Runs model-written programs safely and says whether they pass their tests.

    from maxk.grading import Grader, Limits, extract_program

    program = extract_program(completion).program
    with Grader(Limits(cpu_s=2.0)) as grader:
        [verdict] = grader.grade([(program, [("1 2\\n", "3\\n")])])
        verdict.statuses, verdict.reward

Threat model in brief: the program is hostile. It may try to read the expected outputs, forge its verdict, influence
another program's, reach files, processes or the network, or exhaust the machine. It runs in a child forked for it from
a warm, confined interpreter; the expected outputs exist only in the trusted parent, which compares. A kernel or
CPython memory-safety bug is outside the model. See docs/grader.md.

Where to look: `grader` (what callers use), `event_loop` (one call), `servers`, `pool` and `sandbox` (servers and
tiers), `confined/` (the code that runs inside the sandbox), `seccomp` (system calls), `comparison`, `extraction`,
`checkers`, `cache`; `sharing/` is an optimisation (which programs may share a process).
"""

from maxk.grading.cache import VerdictCache
from maxk.grading.comparison import outputs_match
from maxk.grading.extraction import Extraction, extract_program
from maxk.grading.grader import Grader
from maxk.grading.keys import grader_version
from maxk.grading.sandbox import SandboxUnavailable
from maxk.grading.stats import Stats
from maxk.grading.verdicts import STATUSES, CheckerProgram, Limits, Submission, Verdict

GRADER_VERSION = grader_version()

__all__ = [
    "GRADER_VERSION",
    "STATUSES",
    "CheckerProgram",
    "Extraction",
    "Grader",
    "Limits",
    "SandboxUnavailable",
    "Stats",
    "Submission",
    "Verdict",
    "VerdictCache",
    "extract_program",
    "outputs_match",
]
