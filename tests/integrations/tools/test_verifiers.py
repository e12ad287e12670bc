"""The task in verifiers itself: its reward is discovered and called as the rollout scores it."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import verifiers.v1 as vf
from verifiers.v1.utils.decorators import discover_decorated, invoke

from maxk.integrations import code_reward
from maxk.integrations.verifiers import CodeData, CodeTask

ANSWER = "```python\nprint(sum(map(int, input().split())))\n```"
TESTS = [{"stdin": "1 2\n", "expected": "3\n"}, {"stdin": "1 1\n", "expected": "3\n"}]


@pytest.fixture
def task() -> CodeTask:
    return CodeTask(CodeData(prompt="Add two numbers.", tests=TESTS), vf.TaskConfig())


def test_the_reward_is_the_fraction_of_tests_passed(task: CodeTask) -> None:
    code_reward.configure(workers=1)
    [reward] = discover_decorated(task, "reward")
    assert asyncio.run(invoke(reward, {"trace": SimpleNamespace(last_reply=ANSWER)})) == 0.5
    code_reward.shared().close()


def test_a_failed_grader_is_an_error_and_not_a_zero(task: CodeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def submit(self, completion: str, tests: object) -> object:
            future: code_reward.Future[SimpleNamespace] = code_reward.Future()
            future.set_result(SimpleNamespace(reward=float("nan"), statuses=("harness_error",)))
            return future

    monkeypatch.setattr(code_reward, "shared", Failing)
    with pytest.raises(vf.TaskError, match="could not be graded: harness_error"):
        asyncio.run(task.tests_passed(SimpleNamespace(last_reply=ANSWER)))


def test_the_example_loads_tasks_with_tests(root: Path) -> None:
    taskset = runpy.run_path(str(root / "examples" / "verifiers_taskset.py"))["SmallPrograms"](vf.TasksetConfig())
    tasks = list(taskset.load())
    assert [len(task.data.tests) for task in tasks] == [2, 1]
    assert all(isinstance(task, CodeTask) for task in tasks)
