"""MBPP (Austin et al. 2021, arXiv 2108.07732): google-research-datasets/mbpp, CC-BY-4.0, as stdin/stdout problems.

Of 974 tasks, 967 have asserts of the form `f(literals) == literal` and no set-up code; 824 of them fit the flat form
(`maxk.data.calls`). Upstream's test split (task ids 11 to 510) is the test split; all others are train. Three train
tasks repeat the text of a test task and are dropped as duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Literal

from pydantic import Field
from typing_extensions import TypedDict

from maxk.artifacts.records import Problem, Test
from maxk.data import calls
from maxk.data.calls import Call
from maxk.data.candidates import Candidate, Funnel
from maxk.data.hub import Layouts
from maxk.data.rows import Text
from maxk.data.sections import Benchmark, CheckSolutions, Location, Planned

TEST_IDS = range(11, 511)


class Row(TypedDict):
    r"""The columns that are read. A row, complete:

    {"text": "Write a function to find the n-th rectangular number.",
     "code": "def find_rect_num(n):\r\n  return n*(n + 1) ", "task_id": 35, "test_setup_code": "",
     "test_list": ["assert find_rect_num(4) == 20", "assert find_rect_num(5) == 30", "assert find_rect_num(6) == 42"],
     "challenge_test_list": []}
    """

    task_id: int
    text: Text
    code: Text
    test_list: list[Text] | None
    test_setup_code: Text | None


class MbppDataset(Benchmark):
    """MBPP, its asserts converted to stdin/stdout tests; upstream's test split is test, all others are train."""

    planned = Planned(train=385, test=408, tests=3, basis="the flat set of this loader")

    source: Literal["mbpp"]
    location: Location = "google-research-datasets/mbpp"
    form: Literal["flat", "literal"] = Field("flat", description="How values are read and printed (docs/datasets.md).")
    io_format: bool = Field(True, description="End the statement with a line on how values are read and printed.")
    same_types: bool = Field(True, description="Keep only tasks whose asserts pass arguments of the same types.")
    check_solutions: CheckSolutions = 0

    def layouts(self) -> Mapping[str, Layouts]:
        splits = ("train", "test", "validation", "prompt")
        return {"": [[f"full/{split}-*.parquet" for split in splits], ["mbpp.jsonl*"]]}

    def candidates(self, funnel: Funnel) -> Iterator[Candidate]:
        rows = ((row, calls_of(row)) for row in self.rows(funnel, Row, itemgetter("task_id")))
        tried = funnel.keep("convertible", rows, lambda pair: bool(pair[1]), _task_id)
        parsed: Iterator[tuple[Row, list[Call]]] = ((row, asserted) for row, asserted in tried if asserted)
        parsed = funnel.keep(f"{self.form}_form", parsed, lambda pair: self._tests(pair[1]) is not None, _task_id)
        if self.same_types:
            parsed = funnel.keep("same_types", parsed, lambda pair: not calls.types_vary(pair[1]), _task_id)
        return (self._candidate(funnel.dataset, *pair) for pair in parsed)

    def _tests(self, asserted: Sequence[Call]) -> list[Test] | None:
        return calls.flat_tests(asserted) if self.form == "flat" else [calls.literal_test(call) for call in asserted]

    def _candidate(self, dataset: str, row: Row, asserted: Sequence[Call]) -> Candidate:
        reference = calls.reference_program(row["code"], asserted, self.form)
        names = calls.parameters(row["code"], asserted)
        line = f"\n{calls.format_line(names, asserted, self.form)}" if self.io_format else ""
        problem = Problem(
            f"{dataset}/{row['task_id']}",
            dataset,
            split="test" if row["task_id"] in TEST_IDS else "train",
            statement=row["text"].strip() + line,
            tests=self._tests(asserted) or [],
            checker=calls.LITERAL_CHECKER if self.form == "literal" and calls.has_no_order(asserted) else None,
            reference=reference,
        )
        return Candidate(problem, solutions=[reference], text=row["text"])


def calls_of(row: Row) -> list[Call] | None:
    """The calls in a task's asserts; None if one cannot be converted or the task needs set-up code."""
    if row["test_setup_code"] or not row["test_list"]:
        return None
    found = [calls.parse_assert(text) for text in row["test_list"]]
    parsed = [call for call in found if call is not None]
    return parsed if len(parsed) == len(found) and len({call.function for call in parsed}) == 1 else None


def _task_id(pair: tuple[Row, object]) -> int:
    return pair[0]["task_id"]
