"""Grades a training's completions beside it: in a thread, or in a process of its own.

A training on a GPU launches kernels from Python, and a thread that extracts, compiles and compares programs would keep
the interpreter from it. There, grading has a process. On a CPU that would only cost another interpreter.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from types import TracebackType
from typing import Any

from maxk import config as configuration
from maxk.artifacts.records import Problem
from maxk.config import Config
from maxk.errors import UserError
from maxk.evaluation import problem_grader
from maxk.grading import Grader, extract_program

Rewards = list[float | None]  # None: could not be graded


class Grading:
    """Grades completions of the given problems with the experiment's grader; use as a context manager.

    apart: in a process of its own instead of a thread of this one.
    tier: the sandbox's tier, known on entry.

    Raises UserError on entry if no sandbox works or the grader's canary fails.
    """

    def __init__(self, config: Config, problems: Sequence[Problem], apart: bool) -> None:
        self._config, self._problems = config, problems
        self._executor: Executor = _process() if apart else ThreadPoolExecutor(1, thread_name_prefix="grading")
        self.tier = ""

    def __enter__(self) -> Grading:
        try:
            self.tier = self._executor.submit(_open, self._config.model_dump(mode="json"), self._problems).result()
        except BaseException:
            self._executor.shutdown()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(BrokenProcessPool):
            self._executor.submit(_close)
        self._executor.shutdown()

    def submit(self, texts: Sequence[str], problem_ids: Sequence[str]) -> Future[Rewards]:
        """Begins to grade one completion of each of these problems."""
        return self._executor.submit(_grade, texts, problem_ids)

    def complaints(self) -> list[str]:
        """One line per kind of fault that was not the fault of a program."""
        return self._executor.submit(_complaints).result()


def result(started: Future[Rewards]) -> Rewards:
    """One reward in [0, 1] per completion, None if it could not be graded; waits for them."""
    try:
        return started.result()
    except BrokenProcessPool:
        raise UserError(
            "the process that grades completions was killed, perhaps because memory ran out; "
            "run the training again, and it continues from its last checkpoint"
        ) from None


def _process() -> ProcessPoolExecutor:
    # "spawn", because a process that already has threads and GPU libraries must not be forked.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_depend_on, initargs=(os.getpid(),))


# ---- in the thread or process that grades
_here = threading.local()  # its grader, and the problems by id
_PR_SET_PDEATHSIG = 1


def _depend_on(parent: int) -> None:
    """Ends this process when `parent` ends, and leaves SIGTERM and Ctrl-C, which reach both, to it.

    The parent saves a checkpoint first. Handlers instead of SIG_IGN, which graded programs would inherit.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os._exit(1)


def _open(content: dict[str, Any], problems: Sequence[Problem]) -> str:
    config = configuration.parse(content)  # configurations cannot be pickled
    _here.limits = problem_grader.limits(config)
    _here.problems = {problem.problem_id: problem for problem in problems}
    _here.grader = problem_grader.grader(config).__enter__()
    _here.grader.canary()
    return str(_here.grader.tier)


def _grade(texts: Sequence[str], problem_ids: Sequence[str]) -> Rewards:
    submissions = [
        problem_grader.submission(extract_program(text).program, _here.problems[name], _here.limits)
        for text, name in zip(texts, problem_ids, strict=True)
    ]
    rewards = [verdict.reward for verdict in _here.grader.grade(submissions)]
    return [None if math.isnan(reward) else reward for reward in rewards]


def _complaints() -> list[str]:
    grader: Grader = _here.grader
    return grader.stats.complaints()


def _close() -> None:
    _here.grader.close()
