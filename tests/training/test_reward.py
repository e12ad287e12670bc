"""The training reward is the grader's verdict: nothing more, nothing less."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from maxk.artifacts.records import Problem, Test
from maxk.grading import Grader, Limits, Verdict, VerdictCache
from maxk.grading.verdicts import NOT_READY
from maxk.training.reward import PassRateReward

PROBLEMS = [
    Problem("p/0", "p", "train", "sum", [Test("1 2", "3"), Test("4 5", "9"), Test("0 0", "0"), Test("1 1", "2")]),
    Problem("p/1", "p", "train", "echo", [Test("a", "a"), Test("b", "b")], time_limit_s=1.0),
]
SUM = "print(sum(map(int, input().split())))"


@pytest.fixture(scope="module")
def reward() -> Any:
    with Grader(workers=1) as grader:
        yield PassRateReward(grader, PROBLEMS, Limits())


@pytest.mark.parametrize(
    ("completion", "problem", "expected"),
    [
        (SUM, "p/0", 1.0),
        (f"Here it is:\n```python\n{SUM}\n```\nDone.", "p/0", 1.0),
        ("print(9)", "p/0", 0.25),
        ("print(input())", "p/1", 1.0),
        (SUM, "p/1", 0.0),
        ("This is no program.", "p/0", 0.0),
        ("", "p/0", 0.0),
        ("while True: pass", "p/1", 0.0),
    ],
)
def test_reward_is_the_fraction_of_passed_tests(completion: str, problem: str, expected: float, reward: Any) -> None:
    assert reward([completion], [problem]) == [expected]


def test_rewards_come_in_order_also_from_chat_messages(reward: Any) -> None:
    completions = [[{"role": "assistant", "content": text}] for text in (SUM, "print(9)", "print(input())")]
    assert reward(completions, ["p/0", "p/0", "p/1"], prompts=[], trainer_state=None) == [1.0, 0.25, 1.0]


def test_rewards_can_be_started_before_they_are_asked_for(tmp_path: Path) -> None:
    """In a thread, with a verdict cache that this thread has opened; a call without `start` grades by itself."""
    with VerdictCache(tmp_path / "verdicts.sqlite") as cache, Grader(workers=1, cache=cache) as grader:
        reward = PassRateReward(grader, PROBLEMS, Limits())
        reward.start([SUM, "print(9)"], ["p/0", "p/0"])
        assert reward([SUM, "print(9)"], ["p/0", "p/0"]) == [1.0, 0.25]
        assert reward(["print(input())"], ["p/1"]) == [1.0]
        assert grader.stats.submissions == 3


def test_programs_run_while_others_are_still_generated() -> None:
    """The one program is graded before the other is known; both count in the call."""
    with Grader(workers=1) as grader:
        reward = PassRateReward(grader, PROBLEMS, Limits())
        reward.early(["print(9)"], ["p/0"])
        deadline = time.monotonic() + 60
        while grader.stats.submissions < 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        reward.start([SUM, "print(9)", SUM], ["p/0", "p/0", "p/0"])
        assert reward([SUM, "print(9)", SUM], ["p/0", "p/0", "p/0"]) == [1.0, 0.25, 1.0]
        assert grader.stats.submissions == 2


def test_a_batch_that_does_not_come_is_dropped() -> None:
    """The next is graded as if there had been none, and nothing waits for the rest."""
    with Grader(workers=1) as grader:
        reward = PassRateReward(grader, PROBLEMS, Limits())
        reward.drop()
        reward.early(["print(9)"], ["p/0"])
        reward.drop()
        assert reward([SUM], ["p/0"]) == [1.0]
        reward.early(["print(9)"], ["p/0"])
        reward.drop()


def test_a_batch_that_nobody_asked_for_is_replaced() -> None:
    with Grader(workers=1) as grader:
        reward = PassRateReward(grader, PROBLEMS, Limits())
        reward.start(["print(9)"], ["p/0"])
        reward.start([SUM], ["p/0"])
        assert reward([SUM], ["p/0"]) == [1.0]


def test_a_call_completes_a_batch_that_began_early() -> None:
    with Grader(workers=1) as grader:
        reward = PassRateReward(grader, PROBLEMS, Limits())
        reward.early(["print(9)"], ["p/0"])
        assert reward(["print(9)", SUM], ["p/0", "p/0"]) == [0.25, 1.0]


def test_a_wrong_call_leaves_nothing_behind() -> None:
    with Grader(workers=1) as grader:
        reward = PassRateReward(grader, PROBLEMS, Limits())
        with pytest.raises(ValueError, match="zip"):
            reward([SUM], ["p/0", "p/1"])
        assert reward([SUM], ["p/0"]) == [1.0]


def test_a_closed_grader_ends_a_batch_that_does_not_come() -> None:
    with Grader(workers=1) as grader:
        reward = PassRateReward(grader, PROBLEMS, Limits())
        reward.early(["print(9)"], ["p/0"])
    reward.start([], [])
    with pytest.raises(RuntimeError, match="the grader was closed while it graded"):
        reward(["print(9)"], ["p/0"])


def test_an_error_while_grading_reaches_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    with Grader(workers=1) as grader:
        reward = PassRateReward(grader, PROBLEMS, Limits())
        reward.start([SUM], ["p/2"])
        with pytest.raises(KeyError, match="p/2"):
            reward([SUM], ["p/2"])


def test_what_could_not_be_graded_has_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    with Grader(workers=1) as grader:
        verdicts = iter([Verdict(("passed", "harness_error")), Verdict(("passed",))])
        monkeypatch.setattr(
            grader, "grade_iter", lambda given: enumerate(next(verdicts) for one in given if one is not NOT_READY)
        )
        assert PassRateReward(grader, PROBLEMS, Limits())([SUM, "print(1)"], ["p/0", "p/0"]) == [None, 1.0]
