"""CodeContests (Li et al. 2022): deepmind/code_contests, CC-BY-4.0.

The rows of all upstream splits are one pool, since the paper draws its own split (2,490 / 276). Tests come in the order
public, private, generated; the generated ones are mutations of others and may be invalid, which `check_solutions`
finds out with the row's own Python 3 programs. The paper's "complexity ≤ 3" is read as `difficulty` ≤ 3 with 0
(unknown) included: without it, fewer rows remain than the paper uses (inferred).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from maxk.artifacts.records import Problem, Test
from maxk.data import hub
from maxk.data.filters import Candidate, Funnel
from maxk.data.sections import CheckedWith, Location, PooledBenchmark
from maxk.data.testcases import unix
from maxk.errors import UserError


class CodeContestsDataset(PooledBenchmark):
    """deepmind/code_contests."""

    source: Literal["code_contests"]
    location: Location = "deepmind/code_contests"
    upstream_splits: tuple[Literal["train", "valid", "test"], ...] = Field(
        ("train", "valid", "test"), min_length=1, description="Upstream splits that make up the pool."
    )
    difficulties: tuple[int, ...] = Field(
        (0, 1, 2, 3), description="Values of `difficulty` kept: 0 unknown, 1 easy, 2 medium, 3 hard, … (inferred)."
    )
    check_solutions: CheckedWith = 0


PYTHON3 = 3
KINDS_OF_TESTS = ("public_tests", "private_tests", "generated_tests")
_TESTS = {"input": [str], "output": [str]}
COLUMNS = {
    "name": str,
    "description": str,
    **dict.fromkeys(KINDS_OF_TESTS, _TESTS),
    "difficulty": int,
    "time_limit": {"seconds": int, "nanos": int},
    "memory_limit_bytes": int,
    "input_file": str,
    "output_file": str,
}
SOLUTIONS = {"solutions": {"language": [int], "solution": [str]}}


def layouts(splits: tuple[str, ...]) -> list[list[str]]:
    """File patterns of upstream splits."""
    return [[f"*{split}-*.parquet" for split in splits], [f"*{split}.jsonl*" for split in splits]]


def candidates(name: str, config: CodeContestsDataset, funnel: Funnel) -> Iterator[Candidate]:
    columns = {**COLUMNS, **SOLUTIONS} if config.check_solutions else COLUMNS
    table = hub.table(name, config, layouts(config.upstream_splits))
    rows = funnel.start(table.rows(columns, required=("name",)))
    rows = funnel.keep("difficulty", rows, lambda row: row["difficulty"] in config.difficulties, _name)
    rows = funnel.keep("standard_streams", rows, lambda row: not (row["input_file"] or row["output_file"]), _name)
    return (_candidate(name, row) for row in rows)


def _name(row: dict[str, Any]) -> Any:
    return row["name"]


def _candidate(dataset: str, row: dict[str, Any]) -> Candidate:
    problem_id = f"{dataset}/{row['name']}"
    tests = {kind: parallel_tests(problem_id, row[kind]) for kind in KINDS_OF_TESTS}
    problem = Problem(
        problem_id,
        dataset,
        split="",
        statement=unix(row["description"] or ""),
        tests=[test for kind in KINDS_OF_TESTS for test in tests[kind]],
        time_limit_s=_seconds(row["time_limit"]),
        memory_limit_mb=(row["memory_limit_bytes"] or 0) // 2**20 or None,
    )
    return Candidate(problem, len(tests["generated_tests"]), _python_solutions(row.get("solutions")))


def parallel_tests(problem_id: str, columns: dict[str, list[str]] | None) -> list[Test]:
    """Tests from a struct of parallel lists. Raises UserError where these differ in length."""
    inputs, outputs = (columns or {}).get("input") or [], (columns or {}).get("output") or []
    if len(inputs) != len(outputs):
        raise UserError(f"{problem_id}: {len(inputs)} test inputs, but {len(outputs)} outputs")
    return [Test(unix(stdin), unix(expected)) for stdin, expected in zip(inputs, outputs, strict=True)]


def _seconds(limit: dict[str, int] | None) -> float | None:
    if not limit:
        return None
    return (limit["seconds"] or 0) + (limit["nanos"] or 0) / 1e9 or None


def _python_solutions(solutions: dict[str, list[Any]] | None) -> list[str]:
    if not solutions:
        return []
    pairs = zip(solutions["language"], solutions["solution"], strict=True)
    return [program for language, program in pairs if language == PYTHON3]
