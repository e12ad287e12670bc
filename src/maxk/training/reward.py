"""The reward of a completion: the fraction of its problem's tests that its program passes (paper, Section 2.1).

The grader runs the program; nothing of a completion is executed in this process. A completion that could not be graded
(a fault of the harness, not of the program) gets no reward, and its group gets no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

from maxk.artifacts.records import Problem
from maxk.evaluation.problem_grader import submission
from maxk.grading import Grader, Limits, Submission, extract_program
from maxk.grading.verdicts import NOT_READY, NotReady
from maxk.integrations.completions import text_of

Rewards = list[float | None]  # None: could not be graded
_Answer = tuple[str, str]  # a problem's id and the text of a completion
_Arriving = SimpleQueue[_Answer | None]  # None: the batch is complete


class PassRateReward:
    """A TRL reward function over the given problems.

    Programs are graded in a thread while the trainer does other work: `early` begins with completions of a batch of
    which others are still being generated, `start` with all of them. The next call returns the rewards; without
    `start`, the call grades.
    """

    __name__ = "tests"  # TRL names the metric after this

    def __init__(self, grader: Grader, problems: Iterable[Problem], limits: Limits) -> None:
        self._grader, self._limits = grader, limits
        self._problems = {problem.problem_id: problem for problem in problems}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grading")
        self._arriving: _Arriving | None = None  # of a batch that is not complete
        self._graded: Future[dict[_Answer, float | None]] | None = None

    def early(self, completions: Sequence[Any], problem_id: Sequence[str]) -> None:
        """Begins to grade completions; `start`, the call or `drop` must follow."""
        answers = _answers(completions, problem_id)
        if self._arriving is None:
            self._arriving = SimpleQueue()
            self._graded = self._thread.submit(self._grade, self._arriving)
        for answer in answers:
            self._arriving.put(answer)

    def start(self, completions: Sequence[Any], problem_id: Sequence[str]) -> None:
        """Begins to grade a whole batch, but for completions that `early` was given."""
        self.early(completions, problem_id)
        self._complete()

    def drop(self) -> None:
        """Forgets what `early` or `start` was given: nobody will ask for it."""
        self._complete()
        self._graded = None

    def _complete(self) -> None:
        if self._arriving is not None:
            self._arriving.put(None)
            self._arriving = None

    def __call__(self, completions: Sequence[Any], problem_id: Sequence[str], **_: Any) -> Rewards:
        """One reward in [0, 1] per completion, None if it could not be graded."""
        if self._graded is None or self._arriving is not None:
            self.start(completions, problem_id)
        assert self._graded is not None
        graded, self._graded = self._graded, None
        found = graded.result()
        return [found[answer] for answer in _answers(completions, problem_id)]

    def _grade(self, arriving: _Arriving) -> dict[_Answer, float | None]:
        """Rewards of all answers that arrive until the batch is complete."""
        order: list[_Answer] = []
        found = {}
        for index, verdict in self._grader.grade_iter(self._submissions(arriving, order)):
            found[order[index]] = None if math.isnan(verdict.reward) else verdict.reward
        return found

    def _submissions(self, arriving: _Arriving, order: list[_Answer]) -> Iterator[Submission | NotReady]:
        """A submission per distinct answer, whose place is noted in `order`; NOT_READY while no other has arrived."""
        known: set[_Answer] = set()
        while True:
            try:
                answer = arriving.get_nowait()
            except Empty:
                yield NOT_READY
                continue
            if answer is None:
                return
            if answer not in known:
                known.add(answer)
                order.append(answer)
                name, text = answer
                yield submission(extract_program(text).program, self._problems[name], self._limits)


def _answers(completions: Sequence[Any], problem_id: Sequence[str]) -> list[_Answer]:
    return [(name, text_of(completion)) for completion, name in zip(completions, problem_id, strict=True)]
