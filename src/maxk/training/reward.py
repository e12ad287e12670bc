"""The reward of a completion: the fraction of its problem's tests that its program passes (paper, Section 2.1).

The grader runs the program; nothing of a completion is executed here. A completion that could not be graded
(a fault of the harness, not of the program) gets no reward, and its group gets no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from maxk.training.grading import Grading, Rewards, result


class PassRateReward:
    """A TRL reward function over the problems of `grading`.

    `start` begins to grade completions, while the trainer computes log-probabilities; the next call returns those
    rewards. Without `start`, the call grades.
    """

    __name__ = "tests"  # TRL names the metric after this

    def __init__(self, grading: Grading) -> None:
        self._grading = grading
        self._started: Future[Rewards] | None = None

    def start(self, completions: Sequence[Any], problem_id: Sequence[str]) -> None:
        self._started = self._submit(completions, problem_id)

    def __call__(self, completions: Sequence[Any], problem_id: Sequence[str], **_: Any) -> Rewards:
        """One reward in [0, 1] per completion, None if it could not be graded."""
        started, self._started = self._started, None
        return result(started or self._submit(completions, problem_id))

    def _submit(self, completions: Sequence[Any], problem_id: Sequence[str]) -> Future[Rewards]:
        return self._grading.submit([text_of(completion) for completion in completions], list(problem_id))


def text_of(completion: Any) -> str:
    """A completion's text, from a plain string or a chat message."""
    return completion if isinstance(completion, str) else str(completion[0]["content"])
