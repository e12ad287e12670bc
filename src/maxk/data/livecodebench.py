"""LiveCodeBench, code generation lite (Jain et al. 2024): the jsonl files of the hub's repository, or a parquet mirror.

Release v6 is the six files together, 1,055 rows; `v6` alone is the last. All columns are strings; tests are public,
then private. Rows from LeetCode call a function; `functional: convert` asks for a program instead (`testcases`).
Upstream's ERRATA lists problems with several right answers, interactive ones and bad tests: name them in `exclude`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field
from typing_extensions import TypedDict

from maxk.artifacts.records import Problem
from maxk.data import testcases
from maxk.data.candidates import Candidate, Funnel
from maxk.data.hub import Layouts
from maxk.data.rows import Text
from maxk.data.sections import Functional, Location, Planned, PooledBenchmark
from maxk.data.testcases import Cases, function_name, functional_statement, unix


class Row(TypedDict):
    r"""The columns that are read. The row 1873_A, statement and tests shortened:

    {"question_title": "A. Short Sort", "platform": "codeforces", "question_id": "1873_A", "contest_id": "1873",
     "question_content": "There are three cards with letters $\\texttt{a}$, $\\texttt{b}$, $\\texttt{c}$ placed in …",
     "contest_date": "2023-08-21T00:00:00", "starter_code": "", "difficulty": "easy", "metadata": "{}",
     "public_test_cases": "[{\"input\": \"2\\nabc\\nbca\\n\", \"output\": \"YES\\nNO\\n\", \"testtype\": \"stdin\"}]",
     "private_test_cases": "[]"}
    """

    question_id: Text
    question_content: Text | None
    starter_code: Text
    public_test_cases: Text
    private_test_cases: Text
    metadata: Text | None


class LiveCodeBenchDataset(PooledBenchmark):
    """LiveCodeBench code generation (lite)."""

    planned = Planned(0, 1055, 20, basis="release v6; tests are an estimate")
    tests_mb = 30_000

    source: Literal["livecodebench"]
    location: Location = "livecodebench/code_generation_lite"
    version: str = Field("release_v6", pattern=r"^(release_)?v[1-6]$", description="`release_v6` is v1 to v6 together.")
    functional: Functional = "convert"

    def layouts(self) -> Mapping[str, Layouts]:
        """The jsonl files of a version, or a folder of parquet files of its name (lighteval's mirror)."""
        last = int(self.version[-1])
        numbers = range(1, last + 1) if self.version.startswith("release") else [last]
        jsonl = [f"test{'' if number == 1 else number}.jsonl*" for number in numbers]
        return {"": [jsonl, [f"{self.version}/*.parquet"]]}

    def candidates(self, funnel: Funnel) -> Iterator[Candidate]:
        rows = self.rows(funnel, Row, lambda row: row["question_id"])
        decoded = testcases.decoded(funnel, rows, drop_functional=self.functional == "drop")
        return (Candidate(_problem(funnel.dataset, row, cases)) for row, cases in decoded)


def _problem(dataset: str, row: Row, cases: Cases) -> Problem:
    statement = unix(row["question_content"] or "")
    if cases.functional:
        function = function_name(cases.problem_id, row["metadata"])
        statement = functional_statement(statement, row["starter_code"], function)
    return Problem(cases.problem_id, dataset, split="", statement=statement, tests=cases.tests())
