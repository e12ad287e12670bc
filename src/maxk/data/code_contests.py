"""CodeContests (Li et al. 2022): deepmind/code_contests, CC-BY-4.0.

The rows of all upstream splits are one pool, because the paper draws its own split (2,490 / 276). Tests are in the
order public, private, generated. Generated tests are mutations of others and may be invalid; `check_solutions` detects
these with the row's own Python 3 solutions. The paper's "complexity ≤ 3" is read as `difficulty` ≤ 3 with 0 (unknown)
included: without it, fewer rows remain than the paper uses (inferred).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Literal, cast

from pydantic import Field
from typing_extensions import TypedDict

from maxk.artifacts.records import Problem
from maxk.data.candidates import Candidate, Funnel
from maxk.data.hub import Layouts
from maxk.data.rows import Text
from maxk.data.sections import CheckSolutions, Location, Planned, PooledBenchmark
from maxk.data.testcases import ParallelTests, parallel_tests, unix

PYTHON3 = 3  # the upstream code of the language
UPSTREAM_SPLITS: tuple[Literal["train", "valid", "test"], ...] = ("train", "valid", "test")


class TimeLimit(TypedDict):
    seconds: int | None
    nanos: int | None


class Solutions(TypedDict):
    """Parallel lists."""

    language: list[int]
    solution: list[Text]


class Row(TypedDict):
    r"""The columns that are read; all but `name` may be null.

    The example row is made up (SYNTHETIC): it has the raw schema of the hub's files, but is not of the benchmark.

    {"name": "1_A. Sum", "description": "Add two numbers.", "difficulty": 1,
     "public_tests": {"input": ["1 2\n"], "output": ["3\n"]}, "private_tests": {"input": ["2 2\n"], "output": ["4\n"]},
     "generated_tests": {"input": [], "output": []}, "time_limit": {"seconds": 1, "nanos": 500000000},
     "memory_limit_bytes": 268435456, "input_file": "", "output_file": "",
     "solutions": {"language": [3], "solution": ["print(sum(map(int, input().split())))"]}}
    """

    name: Text
    description: Text | None
    public_tests: ParallelTests | None
    private_tests: ParallelTests | None
    generated_tests: ParallelTests | None
    difficulty: int | None
    time_limit: TimeLimit | None
    memory_limit_bytes: int | None
    input_file: Text | None
    output_file: Text | None


class SolvedRow(Row):
    """With the solutions, which are most of the data: read only for `check_solutions`."""

    solutions: Solutions | None


class CodeContestsDataset(PooledBenchmark):
    """deepmind/code_contests."""

    planned = Planned(2490, 276, 100, basis="problems of the paper; tests are an estimate")
    tests_mb = 15_000

    source: Literal["code_contests"]
    location: Location = "deepmind/code_contests"
    upstream_splits: tuple[Literal["train", "valid", "test"], ...] = Field(
        UPSTREAM_SPLITS, min_length=1, description="Upstream splits that make up the pool."
    )
    difficulties: tuple[int, ...] = Field(
        (0, 1, 2, 3), description="Values of `difficulty` to keep: 0 unknown, 1 easy, 2 medium, 3 hard, … (inferred)."
    )
    check_solutions: CheckSolutions = 0

    def layouts(self) -> Mapping[str, Layouts]:
        return {"": layouts(self.upstream_splits)}

    def candidates(self, funnel: Funnel) -> Iterator[Candidate]:
        name = itemgetter("name")
        rows = self.rows(funnel, SolvedRow if self.check_solutions else Row, name)
        rows = funnel.keep("difficulty", rows, lambda row: row["difficulty"] in self.difficulties, name)
        rows = funnel.keep("standard_streams", rows, lambda row: not (row["input_file"] or row["output_file"]), name)
        return (_candidate(funnel.dataset, row) for row in rows)


def layouts(splits: tuple[str, ...]) -> Layouts:
    """File patterns of upstream splits."""
    return [[f"*{split}-*.parquet" for split in splits], [f"*{split}.jsonl*" for split in splits]]


def _candidate(dataset: str, row: Row) -> Candidate:
    problem_id = f"{dataset}/{row['name']}"
    kinds = [row["public_tests"], row["private_tests"], row["generated_tests"]]
    tests = [parallel_tests(problem_id, kind) for kind in kinds]
    problem = Problem(
        problem_id,
        dataset,
        split="",
        statement=unix(row["description"] or ""),
        tests=[test for kind in tests for test in kind],
        time_limit_s=_seconds(row["time_limit"]),
        memory_limit_mb=(row["memory_limit_bytes"] or 0) // 2**20 or None,
    )
    return Candidate(problem, len(tests[-1]), _python_solutions(cast(Solutions | None, row.get("solutions"))))


def _seconds(limit: TimeLimit | None) -> float | None:
    if not limit:
        return None
    return (limit["seconds"] or 0) + (limit["nanos"] or 0) / 1e9 or None


def _python_solutions(solutions: Solutions | None) -> list[str]:
    if not solutions:
        return []
    pairs = zip(solutions["language"], solutions["solution"], strict=True)
    return [program for language, program in pairs if language == PYTHON3]
