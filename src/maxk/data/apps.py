"""APPS (Hendrycks et al. 2021): stdin/stdout rows of codeparrot/apps (MIT), or of the 150 tasks selected by MapCoder.

The columns tell the two schemas apart: the hub's `input_output` is JSON {inputs, outputs[, fn_name]}, while MapCoder's
`test_list` holds {input, output}. Call-based rows, which have starter code or a function name, are dropped. The hub
keeps upstream's train and test splits; a single file is one pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from typing_extensions import TypedDict

from maxk.artifacts.records import Problem, Test
from maxk.data.candidates import Candidate, Funnel
from maxk.data.hub import Layouts
from maxk.data.rows import Text, parse_json_column
from maxk.data.sections import Benchmark, CheckSolutions, Location, Planned
from maxk.data.testcases import ParallelTests, parallel_tests, unix
from maxk.errors import UserError, described


def _joined(value: Any) -> Any:
    """A list of lines, or a number, as text. Anything else is left for the validation to refuse."""
    if isinstance(value, list) and None not in value:
        return "\n".join(map(str, value))
    return str(value) if isinstance(value, int | float) else value


Lines = Annotated[Text, BeforeValidator(_joined)]
"""Input or output of a test: text, or a list of its lines."""


class MapcoderTest(TypedDict):
    input: Lines
    output: Lines


class Row(TypedDict, total=False):
    r"""The columns that are read, of either schema. A row of MapCoder's file (statement shortened, two tests of eight):

    {"name": "2190", "id": 2190, "difficulty": "competition", "starter_code": "",
     "description": "There are n psychos standing in a line. Each psycho is assigned a unique integer from 1 to n. …",
     "test_list": [{"input": "6\n6 5 4 3 2 1\n", "output": ["1\n"]}, {"input": "2\n1 2\n", "output": ["0\n"]}]}
    """

    file_split: str
    difficulty: Text | None
    starter_code: Text
    # codeparrot/apps
    problem_id: int
    question: Text | None
    solutions: Text | None
    input_output: Text | None
    # MapCoder
    id: int
    description: Text | None
    test_list: list[MapcoderTest]


class AppsDataset(Benchmark):
    """The stdin/stdout rows of APPS: the hub's schema, or that of the 150 tasks selected by MapCoder."""

    planned = Planned(
        5000, 5000, 13, basis="upstream's rows, call-based ones included; tests per problem of MapCoder's selection"
    )
    tests_mb = 3_000

    source: Literal["apps"]
    location: Location = "codeparrot/apps"
    difficulties: tuple[Literal["introductory", "interview", "competition"], ...] = Field(
        ("introductory", "interview", "competition"), min_length=1, description="Difficulties to keep."
    )
    check_solutions: CheckSolutions = 0

    def layouts(self) -> Mapping[str, Layouts]:
        return {split: [[f"{split}.jsonl*"], [f"*{split}-*.parquet"]] for split in ("train", "test")}

    def candidates(self, funnel: Funnel) -> Iterator[Candidate]:
        rows = self.rows(funnel, Row, _id)
        rows = funnel.keep("difficulty", rows, lambda row: row["difficulty"] in self.difficulties, _id)
        rows = funnel.keep("standard_streams", rows, lambda row: not row["starter_code"].strip(), _id)
        made = ((_id(row), _candidate(funnel.dataset, row)) for row in rows)
        kept = funnel.keep("no_function_name", made, lambda pair: pair[1] is not None, lambda pair: pair[0])
        return (candidate for _, candidate in kept if candidate is not None)


def _id(row: Row) -> int:
    return row["problem_id"] if "problem_id" in row else row["id"]


def _candidate(dataset: str, row: Row) -> Candidate | None:
    """None for a row whose tests call a function."""
    problem_id, split = f"{dataset}/{_id(row)}", row["file_split"]
    if "test_list" in row or "description" in row:
        tests = [Test(unix(test["input"]), unix(test["output"])) for test in row["test_list"]]
        return Candidate(Problem(problem_id, dataset, split, unix(row["description"] or ""), tests))
    cases = _json(problem_id, "input_output", row["input_output"], {})
    if cases.get("fn_name"):
        return None
    texts = ParallelTests(
        input=_texts(problem_id, "inputs", cases.get("inputs", [])),
        output=_texts(problem_id, "outputs", cases.get("outputs", [])),
    )
    problem = Problem(problem_id, dataset, split, unix(row["question"] or ""), tests=parallel_tests(problem_id, texts))
    solutions = _texts(problem_id, "solutions", _json(problem_id, "solutions", row["solutions"], []))
    return Candidate(problem, solutions=solutions)


def _texts(problem_id: str, name: str, values: Any) -> list[str]:
    if not isinstance(values, list):
        raise UserError(f"{problem_id}: its {name} are {type(values).__name__}, expected list")
    texts = [_joined(value) for value in values]
    for text in texts:
        if not isinstance(text, str):
            raise UserError(f"{problem_id}: its {name} contain {described(text)}, expected text")
    return texts


def _json(problem_id: str, column: str, text: str | None, empty: Any) -> Any:
    if not text:
        return empty
    try:
        content = parse_json_column(text)
    except ValueError as error:
        raise UserError(
            f"{problem_id}: its {column} cannot be decoded ({error}); drop the row or fetch it again"
        ) from None
    if not isinstance(content, type(empty)):
        raise UserError(f"{problem_id}: its {column} is {type(content).__name__}, expected {type(empty).__name__}")
    return content
