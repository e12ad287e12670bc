"""The reward of a completion: the fraction of its problem's tests that its program passes (paper, Section 2.1).

The grader runs the program; nothing of a completion is executed in this process. A completion that could not be graded
(a fault of the harness, not of the program) gets no reward, and its group teaches nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from maxk.artifacts.records import Problem
from maxk.evaluation.problem_grader import submission
from maxk.grading import Grader, Limits, extract_program


class PassRateReward:
    """A TRL reward function over the problems it was made for."""

    __name__ = "tests"  # TRL names the metric after this

    def __init__(self, grader: Grader, problems: Iterable[Problem], limits: Limits) -> None:
        self._grader, self._limits = grader, limits
        self._problems = {problem.problem_id: problem for problem in problems}

    def __call__(self, completions: Sequence[Any], problem_id: Sequence[str], **_: Any) -> list[float | None]:
        """One reward in [0, 1] a completion, None where it could not be graded."""
        submissions = [
            submission(extract_program(_text(completion)).program, self._problems[name], self._limits)
            for completion, name in zip(completions, problem_id, strict=True)
        ]
        rewards = [verdict.reward for verdict in self._grader.grade(submissions)]
        return [None if math.isnan(reward) else reward for reward in rewards]


def _text(completion: Any) -> str:
    """A completion's text, from a plain string or a chat message."""
    return completion if isinstance(completion, str) else str(completion[0]["content"])
