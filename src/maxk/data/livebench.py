"""LiveBench's coding tasks (White et al. 2024): livebench/coding, 78 LCB_generation and 50 coding_completion rows.

Tests are encoded as in LiveCodeBench. Completion rows give the beginning of a solution. Upstream asks for the rest and
prepends the beginning; here the model is asked for the whole program, beginning included, so that one grader serves
all benchmarks. A model that rewrites the beginning is not stopped, which is a difference from upstream.
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
from maxk.data.sections import Functional, Location, Planned, PooledBenchmark, Revision
from maxk.data.testcases import Cases, function_name, functional_statement, unix


class Original(TypedDict):
    """Parts of the LiveCodeBench row."""

    question_content: Text | None
    starter_code: Text | None
    metadata: Text | None


class Row(TypedDict):
    r"""The columns that are read.

    The example row is made up (SYNTHETIC): it has the raw schema of the hub's files, but is not of the benchmark.

    {"question_id": "a1", "task": "coding_completion", "partial_solution": "terms = input()\n",
     "original_json": {"question_content": "Add two numbers.", "starter_code": "", "metadata": "{}"},
     "public_test_cases": "[{\"input\": \"1 2\\n\", \"output\": \"3\\n\", \"testtype\": \"stdin\"}]",
     "private_test_cases": "[]"}
    """

    question_id: Text
    task: Text | None
    public_test_cases: Text
    private_test_cases: Text
    original_json: Original
    partial_solution: Text | None


class LiveBenchDataset(PooledBenchmark):
    """The coding tasks of LiveBench."""

    planned = Planned(0, 128, 20, basis="rows of upstream; tests are an estimate")
    tests_mb = 3_000

    source: Literal["livebench"]
    location: Location = "livebench/coding"
    revision: Revision = "a958549fdd8aa57be0a3fafe7b205ffc160ed5f4"
    tasks: tuple[Literal["LCB_generation", "coding_completion"], ...] = Field(
        ("LCB_generation", "coding_completion"), min_length=1, description="Tasks to keep."
    )
    functional: Functional = "convert"

    def layouts(self) -> Mapping[str, Layouts]:
        return {"": [["*test-*.parquet"], ["*.jsonl*"]]}

    def candidates(self, funnel: Funnel) -> Iterator[Candidate]:
        rows = self.rows(funnel, Row, lambda row: row["question_id"])
        rows = funnel.keep("task", rows, lambda row: row["task"] in self.tasks, lambda row: row["question_id"])
        decoded = testcases.decoded(funnel, rows, drop_functional=self.functional == "drop")
        return (Candidate(_problem(funnel.dataset, row, cases)) for row, cases in decoded)


_COMPLETION = """{statement}

Complete this beginning of a program; answer with the whole program, the beginning included:

{beginning}"""


def _problem(dataset: str, row: Row, cases: Cases) -> Problem:
    original, beginning = row["original_json"], row["partial_solution"] or ""
    statement = unix(original["question_content"] or "")
    if cases.functional:
        function = function_name(cases.problem_id, original["metadata"])
        statement = functional_statement(statement, beginning or original["starter_code"] or "", function)
    elif beginning:
        statement = _COMPLETION.format(statement=statement.strip(), beginning=beginning)
    return Problem(cases.problem_id, dataset, split="", statement=statement, tests=cases.tests())
