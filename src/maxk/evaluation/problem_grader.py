"""Builds graders and submissions from a configuration, for both training rewards and evaluation."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

from maxk.artifacts.records import Problem
from maxk.config import Config
from maxk.grading import CheckerProgram, Grader, Limits, Submission, VerdictCache
from maxk.progress import track


def limits(config: Config) -> Limits:
    """The configured limits of a test."""
    chosen = config.verification
    return Limits(cpu_s=chosen.cpu_s, memory_mb=chosen.memory_mb, output_bytes=chosen.output_bytes)


def grader(config: Config) -> Grader:
    """A grader (a context manager) that shares the experiment's verdict cache on this machine."""
    cache = Path(config.layout.verdict_cache(platform.node()))
    cache.parent.mkdir(parents=True, exist_ok=True)
    chosen = config.verification
    return Grader(limits(config), chosen.workers, chosen.sandbox, chosen.mode, VerdictCache(cache))


def submission(program: str | None, problem: Problem, configured: Limits) -> Submission:
    """A program with its problem's tests, checker and, if the benchmark states them, limits."""
    own = None
    if problem.time_limit_s is not None or problem.memory_limit_mb is not None:
        own = dataclasses.replace(
            configured,
            cpu_s=problem.time_limit_s or configured.cpu_s,
            memory_mb=problem.memory_limit_mb or configured.memory_mb,
        )
    checker = CheckerProgram(problem.checker) if problem.checker is not None else None
    return Submission(program, problem.tests, limits=own, checker=checker)


def validate_solutions(config: Config, label: str) -> Callable[[Sequence[tuple[str, Problem]]], list[Sequence[str]]]:
    """A function that runs reference solutions on the tests of their problems and returns each one's statuses.

    Reference solutions get half of the CPU time of a policy's programs: a problem whose solution needs nearly all of it
    would be decided by timing noise. `label` heads the progress lines.
    """

    def statuses(programs: Sequence[tuple[str, Problem]]) -> list[Sequence[str]]:
        configured = limits(config)
        with grader(config) as one:
            one.canary()
            submissions = [
                submission(
                    program,
                    dataclasses.replace(problem, time_limit_s=(problem.time_limit_s or configured.cpu_s) / 2),
                    configured,
                )
                for program, problem in programs
            ]
            graded = dict(track(one.grade_iter(submissions), len(submissions), label))
            return [graded[index].statuses for index in range(len(submissions))]

    return statuses
