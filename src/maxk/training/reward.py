"""The reward of a completion: the fraction of its problem's tests that its program passes (paper, Section 2.1).

The grader runs the program; nothing of a completion is executed in this process. A completion that could not be graded
(a fault of the harness, not of the program) gets no reward, and its group gets no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from maxk.artifacts.records import Problem
from maxk.evaluation.problem_grader import submission
from maxk.grading import Grader, Limits, extract_program

Rewards = list[float | None]  # None: could not be graded


class PassRateReward:
    """A TRL reward function over the given problems.

    `start` begins to grade completions in a thread, while the trainer computes log-probabilities; the next call returns
    those rewards. Without `start`, the call grades.
    """

    __name__ = "tests"  # TRL names the metric after this

    def __init__(self, grader: Grader, problems: Iterable[Problem], limits: Limits) -> None:
        self._grader, self._limits = grader, limits
        self._problems = {problem.problem_id: problem for problem in problems}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grading")
        self._started: Future[Rewards] | None = None

    def start(self, completions: Sequence[Any], problem_id: Sequence[str]) -> None:
        self._started = self._thread.submit(self._grade, completions, problem_id)

    def __call__(self, completions: Sequence[Any], problem_id: Sequence[str], **_: Any) -> Rewards:
        """One reward in [0, 1] per completion, None if it could not be graded."""
        started, self._started = self._started, None
        return self._grade(completions, problem_id) if started is None else started.result()

    def _grade(self, completions: Sequence[Any], problem_id: Sequence[str]) -> Rewards:
        submissions = [
            submission(extract_program(text_of(completion)).program, self._problems[name], self._limits)
            for completion, name in zip(completions, problem_id, strict=True)
        ]
        rewards = [verdict.reward for verdict in self._grader.grade(submissions)]
        return [None if math.isnan(reward) else reward for reward in rewards]


def text_of(completion: Any) -> str:
    """A completion's text, from a plain string or a chat message."""
    return completion if isinstance(completion, str) else str(completion[0]["content"])
