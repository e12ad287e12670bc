"""What every source must give: problems that can be graded, under unique ids."""

from __future__ import annotations

import dataclasses

import pytest

from maxk import data
from maxk.artifacts import records
from maxk.artifacts.records import Problem
from maxk.data.pocket.tasks import PocketDataset
from maxk.errors import UserError

GOOD = Problem("d/test/0000", "d", "test", "sort, show", [records.Test("2 1\n", "1 2\n")])


def test_load_gives_problems_and_their_funnel() -> None:
    config = PocketDataset.model_validate(
        {"source": "pocket", "transforms": [1], "open_operations": [1], "rare": 0, "readings": [1, 1, 1], "test": 3}
    )
    problems, funnel = data.load("pocket-x", config)
    assert [p.problem_id for p in problems] == [f"pocket-x/test/000{i}" for i in range(3)]
    assert funnel["test"] == 3


@pytest.mark.parametrize(
    ("problems", "complaint"),
    [
        ([dataclasses.replace(GOOD, tests=[])], "d/test/0000: has no test"),
        ([GOOD, GOOD], "d/test/0000: the id occurs twice"),
        ([dataclasses.replace(GOOD, split="validation")], "split 'validation' is not one of train, test"),
        ([dataclasses.replace(GOOD, statement=" \n")], "the statement is empty"),
        (
            [dataclasses.replace(GOOD, tests=[records.Test("", ""), records.Test("x" * 2**26, "1")])],
            "test 1 has 67108865",
        ),
    ],
)
def test_what_cannot_be_graded_is_refused_by_name(problems: list[Problem], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        data.check(problems)


def test_sound_problems_pass() -> None:
    data.check([GOOD, dataclasses.replace(GOOD, problem_id="d/train/0000", split="train")])
