"""The sets of CURE (Wang et al. 2025, arXiv 2506.03136): Gen-Verse/* on the hub, MIT on the cards, one JSON list each.

MBPP-ReasonFlux (221 rows) is very likely the paper's MBPP: its pass@256 values are multiples of 1/221 (inferred).
Only `test_input`/`test_output` are graded; the example tests are part of the statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Literal

from typing_extensions import TypedDict

from maxk.artifacts.records import Problem
from maxk.data.candidates import Candidate, Funnel
from maxk.data.hub import Layouts
from maxk.data.rows import Text
from maxk.data.sections import Planned, PooledBenchmark
from maxk.data.testcases import parallel_tests, unix


class Row(TypedDict):
    r"""The columns that are read; all but `task_id` may be null.

    The example row is made up (SYNTHETIC): it has the raw schema of the hub's files, but is not of the benchmark.

    {"dataset": "MBPP", "task_id": 7, "question": "Add two numbers.", "exe_method": "stdin", "solutions": "",
     "test_time_limit": 1, "example_input": ["1 2\n"], "example_output": ["3\n"],
     "test_input": ["1 2\n", "2 2\n"], "test_output": ["3\n", "4\n"]}
    """

    task_id: int
    question: Text | None
    test_input: list[Text] | None
    test_output: list[Text] | None
    test_time_limit: int | None
    exe_method: Text | None


class CureDataset(PooledBenchmark):
    """A set of the CURE paper (Gen-Verse on the hub), each one JSON list."""

    planned = Planned(4530, 221, 8, basis="rows of the largest set and of MBPP-ReasonFlux; CURE takes at most 8 tests")

    source: Literal["cure"]

    def layouts(self) -> Mapping[str, Layouts]:
        return {"": [["*.json"], ["*.jsonl*"], ["*.parquet"]]}

    def candidates(self, funnel: Funnel) -> Iterator[Candidate]:
        rows = self.rows(funnel, Row, itemgetter("task_id"))
        rows = funnel.keep("standard_streams", rows, lambda row: row["exe_method"] == "stdin", itemgetter("task_id"))
        return (Candidate(_problem(funnel.dataset, row)) for row in rows)


def _problem(dataset: str, row: Row) -> Problem:
    problem_id = f"{dataset}/{row['task_id']}"
    return Problem(
        problem_id,
        dataset,
        split="",
        statement=unix(row["question"] or ""),
        tests=parallel_tests(problem_id, {"input": row["test_input"], "output": row["test_output"]}),
        time_limit_s=float(row["test_time_limit"]) if row["test_time_limit"] else None,
    )
