"""max@k for Inspect evaluations: a reducer over epochs, and a scorer that runs programs in maxk's sandbox.

    from inspect_ai import Epochs, Task
    from maxk.integrations.inspect_ai import code_tests, max_at

    Task(dataset=…, solver=…, scorer=code_tests(), epochs=Epochs(64, [max_at(1), max_at(8), "maxk/max_at_32"]))

Inspect's own `max` takes the best of all epochs, which grows with their number; `max_at(k)` estimates the best of k
without bias, and accepts scores between 0 and 1, which `pass_at` rounds.
"""

from __future__ import annotations

import asyncio
import math

from inspect_ai.scorer import Score, Scorer, ScoreReducer, Target, mean, score_reducer, scorer, stderr, value_to_float
from inspect_ai.solver import TaskState

from maxk.estimators import max_at_k
from maxk.integrations import code_reward


@score_reducer(name="maxk/max_at")
def max_at(k: int) -> ScoreReducer:
    """Expected best score of `k` epochs. Unscored epochs (NaN) are left out; NaN where fewer than `k` remain."""
    number = value_to_float()

    def reduce(scores: list[Score]) -> Score:
        if any(isinstance(score.value, dict | list) for score in scores):
            raise TypeError("max_at reduces single values; give each value of a score its own scorer")
        values = [number(score.value) for score in scores]
        scored = [value for value in values if not math.isnan(value)]
        return Score(value=float(max_at_k(scored, k)) if len(scored) >= k else math.nan)

    return reduce


@scorer(metrics=[mean(), stderr()], name="maxk/code_tests")
def code_tests(tests: str = "tests") -> Scorer:
    """The fraction of a sample's tests that its program passes; `tests` is the metadata key that holds them.

    NaN ("unscored") where the grader itself failed.
    """

    async def score(state: TaskState, target: Target) -> Score:
        completion = state.output.completion
        verdict = await asyncio.wrap_future(code_reward.shared().submit(completion, state.metadata[tests]))
        return Score(value=verdict.reward, answer=completion, explanation=", ".join(verdict.statuses))

    return score
