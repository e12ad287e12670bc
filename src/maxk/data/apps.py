"""APPS (Hendrycks et al. 2021): stdin/stdout rows of codeparrot/apps (MIT), or of the 150 tasks selected by MapCoder.

The two schemas are told apart by their columns: the hub's `input_output` is JSON {inputs, outputs[, fn_name]}, while
MapCoder's `test_list` holds {input, output}, the output a list of text. Call-based rows (starter code or a function
name) are left out. The hub keeps upstream's train and test splits; a single file is one pool.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from maxk.artifacts.records import Problem, Test
from maxk.data import hub
from maxk.data.code_contests import parallel_tests
from maxk.data.filters import Candidate, Funnel
from maxk.data.hub import Table
from maxk.data.sections import Benchmark, CheckedWith, Location
from maxk.data.testcases import unix
from maxk.errors import UserError


class AppsDataset(Benchmark):
    """The stdin/stdout rows of APPS: the hub's schema, or that of the 150 tasks selected by MapCoder."""

    source: Literal["apps"]
    location: Location = "codeparrot/apps"
    difficulties: tuple[Literal["introductory", "interview", "competition"], ...] = Field(
        ("introductory", "interview", "competition"), min_length=1, description="Difficulties kept."
    )
    check_solutions: CheckedWith = 0


HUB = {"question": str, "solutions": str, "input_output": str, "difficulty": str, "starter_code": str}
MAPCODER = {
    "id": int,
    "description": str,
    "difficulty": str,
    "starter_code": str,
    "test_list": object,  # the values of call-based rows are of any type
}


def candidates(name: str, config: AppsDataset, funnel: Funnel) -> Iterator[Candidate]:
    tables = hub.split_tables(name, config, lambda split: [[f"{split}.jsonl*"], [f"*{split}-*.parquet"]])
    rows = funnel.start((split, row) for split, table in tables for row in _rows(table))

    def identify(pair: tuple[str, dict[str, Any]]) -> Any:
        return pair[1]["id"]

    rows = funnel.keep("difficulty", rows, lambda pair: pair[1]["difficulty"] in config.difficulties, identify)
    rows = funnel.keep("standard_streams", rows, lambda pair: not pair[1]["starter_code"].strip(), identify)
    made = ((row["id"], _candidate(name, split, row)) for split, row in rows)
    called = funnel.keep("no_function_name", made, lambda pair: pair[1] is not None, lambda pair: pair[0])
    return (candidate for _, candidate in called if candidate is not None)


def _rows(table: Table) -> Iterator[dict[str, Any]]:
    """Rows of either schema, with `id` whatever its column is called."""
    if "test_list" in table.columns:
        return table.rows(MAPCODER, ("id", "starter_code", "test_list"))
    column = "problem_id" if "problem_id" in table.columns else "id"
    return ({**row, "id": row[column]} for row in table.rows({column: int, **HUB}, (column, "starter_code")))


def _candidate(dataset: str, split: str, row: dict[str, Any]) -> Candidate | None:
    """None for a row whose tests call a function."""
    problem_id = f"{dataset}/{row['id']}"
    if "test_list" in row:
        return Candidate(Problem(problem_id, dataset, split, unix(row["description"] or ""), _tests(problem_id, row)))
    cases = _json(problem_id, "input_output", row["input_output"], {})
    if cases.get("fn_name"):
        return None
    texts = {name: _texts(problem_id, f"{name}s", cases.get(f"{name}s", [])) for name in ("input", "output")}
    problem = Problem(problem_id, dataset, split, unix(row["question"] or ""), tests=parallel_tests(problem_id, texts))
    return Candidate(problem, solutions=_json(problem_id, "solutions", row["solutions"], []))


def _tests(problem_id: str, row: dict[str, Any]) -> list[Test]:
    """Tests in MapCoder's schema."""
    try:
        return [Test(unix(_text(test["input"])), unix(_text(test["output"]))) for test in row["test_list"]]
    except (TypeError, KeyError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(
            f"{problem_id}: its test_list cannot be decoded ({reason}); drop the row or fetch it again"
        ) from None


def _texts(problem_id: str, name: str, values: Any) -> list[str]:
    if not isinstance(values, list):
        raise UserError(f"{problem_id}: its {name} are {type(values).__name__}, expected list")
    return [_text(value) for value in values]


def _text(lines: Any) -> str:
    """Input or output of a test: text, or a list of its lines."""
    return "\n".join(map(str, lines)) if isinstance(lines, list) else str(lines)


def _json(problem_id: str, column: str, text: str | None, empty: Any) -> Any:
    if not text:
        return empty
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UserError(
            f"{problem_id}: its {column} cannot be decoded ({error}); drop the row or fetch it again"
        ) from None
    if not isinstance(content, type(empty)):
        raise UserError(f"{problem_id}: its {column} is {type(content).__name__}, expected {type(empty).__name__}")
    return content
