"""MBPP (Austin et al. 2021): google-research-datasets/mbpp, CC-BY-4.0; its asserts become stdin/stdout tests.

Of 974 tasks, 967 have asserts of the shape `f(literals) == literal` and no set-up code; 824 of them fit the flat form
(`maxk.data.calls`). Upstream's test split (task ids 11 to 510) is the test split; all others are train. Three tasks of
train repeat a text of test and are dropped with the other duplicates.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from maxk.artifacts.records import Problem, Test
from maxk.data import calls, hub
from maxk.data.calls import Call
from maxk.data.filters import Candidate, Funnel
from maxk.data.sections import Benchmark, CheckedWith, Location


class MbppDataset(Benchmark):
    """MBPP, its asserts turned into stdin/stdout tests; upstream's test split stays apart, all others are train."""

    source: Literal["mbpp"]
    location: Location = "google-research-datasets/mbpp"
    form: Literal["flat", "literal"] = Field("flat", description="How values are read and printed (docs/datasets.md).")
    io_format: bool = Field(True, description="End the statement by a line that says how values are read and printed.")
    same_types: bool = Field(True, description="Only tasks whose asserts agree in the types of the arguments.")
    check_solutions: CheckedWith = 0


LAYOUTS = [[f"full/{split}-*.parquet" for split in ("train", "test", "validation", "prompt")], ["mbpp.jsonl*"]]
COLUMNS = {"task_id": int, "text": str, "code": str, "test_list": [str], "test_setup_code": str}
TEST_IDS = range(11, 511)


def candidates(name: str, config: MbppDataset, funnel: Funnel) -> Iterator[Candidate]:
    rows = funnel.start(hub.table(name, config, LAYOUTS).rows(COLUMNS, ("task_id", "text", "code")))
    tried = funnel.keep("convertible", ((row, calls_of(row)) for row in rows), lambda pair: bool(pair[1]), _task_id)
    parsed: Iterator[tuple[dict[str, Any], list[Call]]] = ((row, asserted) for row, asserted in tried if asserted)
    parsed = funnel.keep(f"{config.form}_form", parsed, lambda pair: _tests(config.form, pair[1]) is not None, _task_id)
    if config.same_types:
        parsed = funnel.keep("same_types", parsed, lambda pair: not calls.types_vary(pair[1]), _task_id)
    return (_candidate(name, config, *pair) for pair in parsed)


def calls_of(row: dict[str, Any]) -> list[Call] | None:
    """The calls that a task's asserts make; None where one cannot be expressed, or needs set-up code."""
    if row["test_setup_code"] or not row["test_list"]:
        return None
    found = [calls.parse_assert(text) for text in row["test_list"]]
    parsed = [call for call in found if call is not None]
    return parsed if len(parsed) == len(found) and len({call.function for call in parsed}) == 1 else None


def _task_id(pair: tuple[dict[str, Any], Any]) -> Any:
    return pair[0]["task_id"]


def _tests(form: str, asserted: Sequence[Call]) -> list[Test] | None:
    return calls.flat_tests(asserted) if form == "flat" else [calls.literal_test(call) for call in asserted]


def _candidate(dataset: str, config: MbppDataset, row: dict[str, Any], asserted: Sequence[Call]) -> Candidate:
    reference = calls.reference_program(row["code"], asserted, config.form)
    line = (
        f"\n{calls.format_line(parameters(row['code'], asserted), asserted, config.form)}" if config.io_format else ""
    )
    problem = Problem(
        f"{dataset}/{row['task_id']}",
        dataset,
        split="test" if row["task_id"] in TEST_IDS else "train",
        statement=row["text"].strip() + line,
        tests=_tests(config.form, asserted) or [],
        checker=calls.LITERAL_CHECKER if config.form == "literal" and calls.has_no_order(asserted) else None,
        reference=reference,
    )
    return Candidate(problem, solutions=[reference], text=row["text"])


def parameters(code: str, asserted: Sequence[Call]) -> list[str]:
    """Names of the arguments, from the function's definition."""
    definitions = [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.FunctionDef) and node.name == asserted[0].function
    ]
    given = [argument.arg for argument in definitions[-1].args.args] if definitions else []
    longest = max(len(call.arguments) for call in asserted)
    return [given[i] if i < len(given) else f"argument {i + 1}" for i in range(longest)]
