"""LiveCodeBench, code generation lite (Jain et al. 2024): the jsonl files of the hub's repository, or a parquet mirror.

Release v6 is the six files together, 1,055 rows; `v6` alone is the last. All columns are strings; tests are public,
then private. Rows from LeetCode call a function; `functional: convert` asks for a program instead (`testcases`).
Upstream's ERRATA lists problems with several right answers, interactive ones and bad tests: name them in `exclude`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from maxk.artifacts.records import Problem
from maxk.data import hub
from maxk.data.filters import Candidate, Funnel
from maxk.data.sections import Location, PooledBenchmark
from maxk.data.testcases import Cases, decode, function_name, functional_statement, unix


class LiveCodeBenchDataset(PooledBenchmark):
    """LiveCodeBench code generation (lite)."""

    source: Literal["livecodebench"]
    location: Location = "livecodebench/code_generation_lite"
    version: str = Field("release_v6", pattern=r"^(release_)?v[1-6]$", description="`release_v6` is v1 to v6 together.")
    functional: Literal["convert", "drop"] = Field("convert", description="Rows that call a function (LeetCode).")


COLUMNS = dict.fromkeys(
    ("question_content", "question_id", "starter_code", "public_test_cases", "private_test_cases", "metadata"), str
)
REQUIRED = ("question_id", "starter_code", "public_test_cases", "private_test_cases")


def layouts(version: str) -> list[list[str]]:
    """The jsonl files of a version, or a folder of parquet files of its name (lighteval's mirror)."""
    last = int(version[-1])
    numbers = range(1, last + 1) if version.startswith("release") else [last]
    jsonl = [f"test{'' if number == 1 else number}.jsonl*" for number in numbers]
    return [jsonl, [f"{version}/*.parquet"]]


def candidates(name: str, config: LiveCodeBenchDataset, funnel: Funnel) -> Iterator[Candidate]:
    rows = funnel.start(hub.table(name, config, layouts(config.version)).rows(COLUMNS, REQUIRED))
    decoded: Iterator[tuple[dict[str, Any], Cases]] = (
        (row, cases_of(f"{name}/{row['question_id']}", row)) for row in rows
    )
    if config.functional == "drop":
        decoded = funnel.keep(
            "standard_streams", decoded, lambda pair: not pair[1].functional, lambda pair: pair[0]["question_id"]
        )
    return (Candidate(_problem(name, row, cases)) for row, cases in decoded)


def cases_of(problem_id: str, row: dict[str, Any]) -> Cases:
    """A row's tests, public ones first."""
    return decode(problem_id, [row["public_test_cases"], row["private_test_cases"]])


def _problem(dataset: str, row: dict[str, Any], cases: Cases) -> Problem:
    problem_id, statement = f"{dataset}/{row['question_id']}", unix(row["question_content"] or "")
    if cases.functional:
        function = function_name(problem_id, row["metadata"])
        statement = functional_statement(statement, row["starter_code"], function)
    return Problem(problem_id, dataset, split="", statement=statement, tests=cases.tests)
