"""LiveBench's coding tasks (White et al. 2024): livebench/coding, 78 LCB_generation and 50 coding_completion rows.

Tests are encoded as in LiveCodeBench. Completion rows give the beginning of a solution. Upstream asks for the rest and
prepends the beginning; here the model is asked for the whole program, beginning included, so that one grader serves
all benchmarks (a stated difference: a model that rewrites the beginning is not stopped).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from maxk.artifacts.records import Problem
from maxk.data import hub
from maxk.data.filters import Candidate, Funnel
from maxk.data.livecodebench import cases_of
from maxk.data.sections import Location, PooledBenchmark, Revision
from maxk.data.testcases import Cases, function_name, functional_statement, unix


class LiveBenchDataset(PooledBenchmark):
    """The coding tasks of LiveBench."""

    source: Literal["livebench"]
    location: Location = "livebench/coding"
    revision: Revision = "a958549fdd8aa57be0a3fafe7b205ffc160ed5f4"
    tasks: tuple[Literal["LCB_generation", "coding_completion"], ...] = Field(
        ("LCB_generation", "coding_completion"), min_length=1, description="Tasks kept."
    )
    functional: Literal["convert", "drop"] = Field("convert", description="Rows that call a function (LeetCode).")


LAYOUTS = [["*test-*.parquet"], ["*.jsonl*"]]
COLUMNS = {
    "question_id": str,
    "task": str,
    "public_test_cases": str,
    "private_test_cases": str,
    "original_json": {"question_content": str, "starter_code": str, "metadata": str},
    "partial_solution": str,
}
REQUIRED = ("question_id", "public_test_cases", "private_test_cases", "original_json")

_COMPLETION = """{statement}

Complete this beginning of a program; answer with the whole program, the beginning included:

{beginning}"""


def candidates(name: str, config: LiveBenchDataset, funnel: Funnel) -> Iterator[Candidate]:
    rows = funnel.start(hub.table(name, config, LAYOUTS).rows(COLUMNS, REQUIRED))
    rows = funnel.keep("task", rows, lambda row: row["task"] in config.tasks, lambda row: row["question_id"])
    decoded: Iterator[tuple[dict[str, Any], Cases]] = (
        (row, cases_of(f"{name}/{row['question_id']}", row)) for row in rows
    )
    if config.functional == "drop":
        decoded = funnel.keep(
            "standard_streams", decoded, lambda pair: not pair[1].functional, lambda pair: pair[0]["question_id"]
        )
    return (Candidate(_problem(name, row, cases)) for row, cases in decoded)


def _problem(dataset: str, row: dict[str, Any], cases: Cases) -> Problem:
    problem_id, original = f"{dataset}/{row['question_id']}", row["original_json"]
    statement, beginning = unix(original["question_content"] or ""), row["partial_solution"] or ""
    if cases.functional:
        function = function_name(problem_id, original["metadata"])
        statement = functional_statement(statement, beginning or original["starter_code"] or "", function)
    elif beginning:
        statement = _COMPLETION.format(statement=statement.strip(), beginning=beginning)
    return Problem(problem_id, dataset, split="", statement=statement, tests=cases.tests)
