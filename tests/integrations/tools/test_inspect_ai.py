"""The reducer and the scorer in Inspect itself."""

from __future__ import annotations

import asyncio
import math
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from inspect_ai.scorer import Score, Target
from inspect_ai.scorer._reducer.registry import create_reducers, reducer_log_name

from enumeration import max_at_k as enumerated
from maxk.integrations import code_reward
from maxk.integrations.inspect_ai import code_tests, max_at

VALUES = [0.0, 0.5, 1.0, 1.0]


@pytest.mark.parametrize("k", [1, 2, 4])
def test_max_at_k(k: int) -> None:
    reduced = max_at(k)([Score(value=value) for value in VALUES])
    assert reduced.value == pytest.approx(enumerated(VALUES, k), abs=1e-12)


def test_inspect_finds_the_reducer_by_name() -> None:
    [reducer] = create_reducers("maxk/max_at_2")
    assert reducer([Score(value=value) for value in VALUES]).value == pytest.approx(enumerated(VALUES, 2))
    assert reducer_log_name(reducer).endswith("max_at_2")


def test_unscored_epochs_are_left_out() -> None:
    scores = [Score(value=value) for value in (math.nan, *VALUES)]
    assert max_at(2)(scores).value == pytest.approx(enumerated(VALUES, 2))
    assert math.isnan(max_at(5)(scores).value)


def test_scores_of_several_values_are_refused() -> None:
    with pytest.raises(TypeError, match="single values"):
        max_at(1)([Score(value={"a": 1.0})])


def test_the_scorer_runs_the_tests() -> None:
    code_reward.configure(workers=1)
    completion = "```python\nprint(sum(map(int, input().split())))\n```"
    tests = [{"stdin": "1 2\n", "expected": "3\n"}, {"stdin": "1 1\n", "expected": "3\n"}]
    state = SimpleNamespace(output=SimpleNamespace(completion=completion), metadata={"tests": tests})
    score = asyncio.run(code_tests()(state, Target("")))
    code_reward.shared().close()
    assert score.value == 0.5
    assert score.explanation == "passed, wrong_answer"


def test_the_example_is_a_task_with_unbiased_reducers(root: Path) -> None:
    task = runpy.run_path(str(root / "examples" / "inspect_task.py"))["small_programs"]()
    assert (task.epochs, len(task.dataset)) == (16, 2)
    scores = [Score(value=value) for value in (VALUES * 4)]
    reduced = [reducer(scores).value for reducer in task.epochs_reducer]
    assert reduced == pytest.approx([enumerated(VALUES * 4, k) for k in (1, 4, 8)])
