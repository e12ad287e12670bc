"""A verifiers task whose reward is the fraction of tests that the reply's program passes.

    import verifiers.v1 as vf
    from maxk.integrations.verifiers import CodeData, CodeTask


    class MyTaskset(vf.Taskset[CodeTask, vf.TasksetConfig]):
        def load(self):
            for row in rows:
                yield CodeTask(CodeData(prompt=row["prompt"], tests=row["tests"]), self.config.task)

Programs run in maxk's sandbox, on the machine that scores; no container is needed.
"""

from __future__ import annotations

import asyncio

import verifiers.v1 as vf

from maxk.integrations import code_reward


class CodeData(vf.TaskData):
    """A prompt and its tests."""

    tests: list[dict[str, str]]
    """Non-empty; `{"stdin": …, "expected": …}` each."""


class CodeTask(vf.Task[CodeData]):
    """One problem; a reply that the grader itself failed on is an error of the task, not a zero."""

    @vf.reward
    async def tests_passed(self, trace: vf.Trace) -> float:
        """The fraction of tests passed."""
        verdict = await asyncio.wrap_future(code_reward.shared().submit(trace.last_reply, self.data.tests))
        if verdict.reward != verdict.reward:
            raise vf.TaskError(f"the program could not be graded: {', '.join(verdict.statuses)}")
        return verdict.reward
