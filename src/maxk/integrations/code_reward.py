"""Rewards of completions by their tests.

`tests_passed` is a reward function for TRL; `grade` and `score` serve tools that ask for one completion at a time, from
many threads or tasks.

    from maxk.integrations.code_reward import grade, tests_passed

    trainer = MaxkTrainer(..., reward_funcs=tests_passed)  # the dataset has a column `tests`
    grade("```python\\nprint(int(input()) + 1)\\n```", [{"stdin": "1\\n", "expected": "2\\n"}]).reward  # 1.0

A completion is text, or a list of chat messages as TRL passes it (`completions.text_of`). Tests are a list of
`{"stdin": …, "expected": …}` (or pairs), or its JSON. One grader per process serves all callers: what arrives while it
is busy is graded together, on all cores. `configure` sets its options before the first call.
"""

from __future__ import annotations

import atexit
import math
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from maxk.artifacts.json_text import parsed
from maxk.grading import Grader, Verdict, extract_program
from maxk.grading.inputs import read_tests
from maxk.grading.verdicts import Test
from maxk.integrations.completions import text_of

Submission = tuple[str | None, list[Test]]


class SharedGrader:
    """A grader for concurrent callers. Options are those of `maxk.grading.Grader`; it starts with the first call."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._grader: Grader | None = None
        self._waiting: deque[tuple[Future[Verdict], Submission]] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="maxk-grader")
        self.closed = False

    def submit(self, completion: Any, tests: Any) -> Future[Verdict]:
        """The verdict to come of the program in a completion. Raises TypeError or ValueError for malformed ones."""
        verdict: Future[Verdict] = Future()
        read = read_tests(_parsed(tests) if isinstance(tests, str) else tests, "tests")
        self._waiting.append((verdict, (extract_program(text_of(completion)).program, read)))
        self._thread.submit(self._grade_waiting)
        return verdict

    def close(self) -> None:
        """Grades what is waiting, then ends the grader's processes."""
        self.closed = True
        self._thread.shutdown()
        if self._grader is not None:
            self._grader.close()

    def _grade_waiting(self) -> None:
        """In the grader's thread: everything that arrived since it last looked, and that its caller still wants.

        A caller may cancel (asyncio does so at a timeout), but not once grading has begun: a cancelled future takes no
        result, and the error would leave all others of the batch without theirs.
        """
        arrived = [self._waiting.popleft() for _ in range(len(self._waiting))]
        batch = [one for one in arrived if one[0].set_running_or_notify_cancel()]
        if not batch:
            return
        try:
            if self._grader is None:
                self._grader = Grader(**self._options).__enter__()
            verdicts = self._grader.grade([submission for _, submission in batch])
        except BaseException as error:
            for future, _ in batch:
                future.set_exception(error)
        else:
            for (future, _), verdict in zip(batch, verdicts, strict=True):
                future.set_result(verdict)


def _parsed(tests: str) -> Any:
    """The value of tests in JSON. Raises ValueError, also for a repeated key, of which the last would count."""
    try:
        return parsed(tests, unique=True)
    except ValueError as error:
        raise ValueError(f"tests: not JSON ({error})") from None


_shared: SharedGrader | None = None


def configure(**options: Any) -> None:
    """Sets the options of this process's grader, such as `limits=Limits(cpu_s=4.0)`; replaces one that runs."""
    global _shared
    if _shared is not None and not _shared.closed:
        _shared.close()
    _shared = SharedGrader(**options)


def shared() -> SharedGrader:
    """This process's grader; a new one after it was closed."""
    if _shared is None or _shared.closed:
        configure()
    assert _shared is not None
    return _shared


def tests_passed(completions: Sequence[Any], tests: Sequence[Any], **_: Any) -> list[float | None]:
    """A reward function of TRL: the fraction of its row's `tests` that each completion passes.

    None where the grader itself failed. All completions are submitted before the first verdict is awaited, so they are
    graded side by side. Raises TypeError or ValueError for malformed completions and tests.
    """
    grader = shared()
    verdicts = [grader.submit(completion, of_row) for completion, of_row in zip(completions, tests, strict=True)]
    rewards = [verdict.result().reward for verdict in verdicts]
    return [None if math.isnan(reward) else reward for reward in rewards]


def grade(completion: Any, tests: Any) -> Verdict:
    """The verdict of the program in a completion."""
    return shared().submit(completion, tests).result()


def score(completion: Any, tests: Any) -> dict[str, float]:
    """`score`: the fraction of tests passed; `ungraded`: 1.0 if the grader itself failed, then the score is 0.0.

    For trainers that take no NaN. Where `ungraded` is not rare, the rewards are wrong: look at the grader.
    """
    reward = grade(completion, tests).reward
    ungraded = math.isnan(reward)
    return {"score": 0.0 if ungraded else reward, "ungraded": float(ungraded)}


@atexit.register
def _close() -> None:
    if _shared is not None:
        _shared.close()


def _forget() -> None:
    """A forked child has no grader thread: it makes a grader of its own."""
    global _shared
    _shared = None


os.register_at_fork(after_in_child=_forget)
