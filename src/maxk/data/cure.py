"""The sets of CURE (Wang et al. 2025, arXiv 2506.03136): Gen-Verse/* on the hub, MIT on the cards, one JSON list each.

MBPP-ReasonFlux (221 rows) is very likely the paper's MBPP: its pass@256 values are multiples of 1/221 (inferred).
Only `test_input`/`test_output` are graded; the example tests stand in the statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from maxk.artifacts.records import Problem
from maxk.data import hub
from maxk.data.code_contests import parallel_tests
from maxk.data.filters import Candidate, Funnel
from maxk.data.sections import PooledBenchmark
from maxk.data.testcases import unix


class CureDataset(PooledBenchmark):
    """A set of the CURE paper (Gen-Verse on the hub), each one JSON list."""

    source: Literal["cure"]


LAYOUTS = [["*.json"], ["*.jsonl*"], ["*.parquet"]]
COLUMNS = {
    "task_id": int,
    "question": str,
    "test_input": [str],
    "test_output": [str],
    "test_time_limit": int,
    "exe_method": str,
}


def candidates(name: str, config: CureDataset, funnel: Funnel) -> Iterator[Candidate]:
    rows = funnel.start(hub.table(name, config, LAYOUTS).rows(COLUMNS, ("task_id",)))
    rows = funnel.keep("standard_streams", rows, lambda row: row["exe_method"] == "stdin", lambda row: row["task_id"])
    return (Candidate(_problem(name, row)) for row in rows)


def _problem(dataset: str, row: dict[str, Any]) -> Problem:
    problem_id = f"{dataset}/{row['task_id']}"
    return Problem(
        problem_id,
        dataset,
        split="",
        statement=unix(row["question"] or ""),
        tests=parallel_tests(problem_id, {"input": row["test_input"], "output": row["test_output"]}),
        time_limit_s=float(row["test_time_limit"]) if row["test_time_limit"] else None,
    )
