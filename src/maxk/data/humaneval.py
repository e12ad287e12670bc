r"""HumanEval (Chen et al. 2021, arXiv 2107.03374): openai/openai_humaneval, MIT, as stdin/stdout problems.

A task is converted if its `check` function consists of asserts `candidate(literals) == literal` (and of the constant
asserts that decorate many of them): 142 of 164 tasks. The others compute their expected values, or compare with a
tolerance. There is one split, test. For HumanEval's own rule, asserts beside the solution, see `maxk grade`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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


class Row(TypedDict):
    r"""The columns that are read. A row, complete:

    {"task_id": "HumanEval/45", "entry_point": "triangle_area",
     "prompt": "\n\ndef triangle_area(a, h):\n    \"\"\"Given length of a side and high return area for a triangle.\n    >>> triangle_area(5, 3)\n    7.5\n    \"\"\"\n",
     "canonical_solution": "    return a * h / 2.0\n",
     "test": "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate(5, 3) == 7.5\n    assert candidate(2, 2) == 2.0\n    assert candidate(10, 8) == 40.0\n\n"}
    """  # noqa: E501

    task_id: Text
    prompt: Text
    canonical_solution: Text
    test: Text
    entry_point: Text


class HumanEvalDataset(Benchmark):
    """HumanEval, its asserts converted to stdin/stdout tests; a test split only."""

    planned = Planned(train=0, test=142, tests=7, basis="the convertible tasks in the literal form")

    source: Literal["humaneval"]
    location: Location = "openai/openai_humaneval"
    form: Literal["flat", "literal"] = Field(
        "literal", description="How values are read and printed (docs/datasets.md)."
    )
    check_solutions: CheckSolutions = 0

    def layouts(self) -> Mapping[str, Layouts]:
        return {"test": [["openai_humaneval/test-*.parquet"], ["HumanEval.jsonl*"]]}

    def candidates(self, funnel: Funnel) -> Iterator[Candidate]:
        tried = ((row, calls_of(row)) for row in self.rows(funnel, Row, itemgetter("task_id")))
        parsed = funnel.keep("convertible", tried, lambda pair: bool(pair[1]), _task_id)
        fitting = funnel.keep(f"{self.form}_form", parsed, lambda pair: self._tests(pair[1]) is not None, _task_id)
        return (self._candidate(funnel.dataset, *pair) for pair in fitting)

    def _tests(self, asserted: Sequence[Call]) -> list[Test] | None:
        return calls.flat_tests(asserted) if self.form == "flat" else [calls.literal_test(call) for call in asserted]

    def _candidate(self, dataset: str, row: Row, asserted: Sequence[Call]) -> Candidate:
        code = row["prompt"] + row["canonical_solution"]
        reference = calls.reference_program(code, asserted, self.form)
        line = calls.format_line(calls.parameters(code, asserted), asserted, self.form)
        problem = Problem(
            f"{dataset}/{row['task_id'].rpartition('/')[2]}",
            dataset,
            split="test",
            statement=f"{row['prompt'].strip()}\n\n{line}",
            tests=self._tests(asserted) or [],
            checker=calls.LITERAL_CHECKER if self.form == "literal" and calls.has_no_order(asserted) else None,
            reference=reference,
        )
        return Candidate(problem, solutions=[reference], text=row["prompt"])


def calls_of(row: Row) -> list[Call]:
    """The calls that a task's `check` asserts; empty if it does anything else."""
    try:
        functions = [node for node in ast.parse(row["test"]).body if isinstance(node, ast.FunctionDef)]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    body = [node for function in functions if function.name == "check" for node in function.body]
    found = [calls.parse_assert(ast.unparse(node)) for node in body if not _is_constant(node)]
    parsed = [replace(call, function=row["entry_point"]) for call in found if call and call.function == "candidate"]
    return parsed if len(parsed) == len(found) else []


def _is_constant(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, or `assert True, …`."""
    return isinstance(node.test if isinstance(node, ast.Assert) else getattr(node, "value", None), ast.Constant)


def _task_id(pair: tuple[Row, object]) -> str:
    return pair[0]["task_id"]
