"""HumanEval as stdin/stdout: all 164 real tasks, converted here, and solved by their canonical solutions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import raw

from maxk import data
from maxk.data import calls
from maxk.data.humaneval import calls_of
from maxk.grading import CheckerProgram, Grader, Limits, Submission

PATH = raw.HERE / "humaneval" / "HumanEval.jsonl.gz"
# Asserts with a tolerance, in a loop, of a computed value, or without a comparison.
NOT_CONVERTIBLE = [2, 4, 8, 16, 25, 31, 32, 33, 37, 38, 44, 50, 52, 53, 56, 61, 72, 75, 90, 108, 129, 151]


def tasks() -> dict[int, dict]:
    with gzip.open(PATH, "rt", encoding="utf-8") as lines:
        return {int(row["task_id"].split("/")[1]): row for row in map(json.loads, lines)}


def test_142_tasks_convert_and_canonical_solutions_pass_them() -> None:
    parsed = {number: (row, asserted) for number, row in tasks().items() if (asserted := calls_of(row))}
    assert sorted(set(range(164)) - set(parsed)) == NOT_CONVERTIBLE
    submissions = {}
    for number, (row, asserted) in parsed.items():
        program = calls.reference_program(row["prompt"] + row["canonical_solution"], asserted, "literal")
        checker = CheckerProgram(calls.LITERAL_CHECKER) if calls.has_no_order(asserted) else None
        submissions[number] = Submission(program, [calls.literal_test(call) for call in asserted], checker=checker)
    with Grader(Limits(cpu_s=10)) as grader:
        verdicts = grader.grade(list(submissions.values()))
    assert [number for number, verdict in zip(submissions, verdicts, strict=True) if verdict.reward < 1] == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    assert candidate(1) == 2\n    assert True, 'good for debugging'\n", [((1,), 2)]),
        ("    '''Checks.'''\n    assert candidate('a', [1]) == None, 'message'\n", [(("a", [1]), None)]),
        ("    assert candidate(1) == 2\n    assert abs(candidate(2) - 0.5) < 1e-6\n", []),
        ("    for i in range(3):\n        assert candidate(i) == i\n", []),
        ("    assert other(1) == 2\n", []),
        ("    assert candidate(1) ==\n", []),
    ],
)
def test_only_checks_that_assert_literals_convert(body: str, expected: list) -> None:
    row = {**tasks()[0], "test": f"def check(candidate):\n{body}"}
    assert [(call.arguments, call.value) for call in calls_of(row)] == expected


def test_a_problem_shows_signature_docstring_and_form() -> None:
    problems, funnel = data.load("h", raw.section(source="humaneval", location=str(PATH), test="all"))
    assert (funnel["rows"], funnel["convertible"], funnel["train"], funnel["test"]) == (164, 142, 0, 142)
    first = next(problem for problem in problems if problem.problem_id == "h/0")
    assert first.statement.startswith("from typing import List\n\n\ndef has_close_elements(numbers: List[float], thr")
    assert first.statement.endswith(
        "Input: numbers and threshold, each a Python literal on its own line. Output: a Python literal."
    )
    assert first.tests[0] == ("[1.0, 2.0, 3.9, 4.0, 5.0, 2.2]\n0.3\n", "True\n")
    assert "for idx, elem in enumerate" not in first.statement


def test_the_parquet_file_of_the_hub_gives_the_same_problems(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "openai_humaneval"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(list(tasks().values())), folder / "test-00000-of-00001.parquet")
    from_hub, _ = data.load("h", raw.section(source="humaneval", location=str(tmp_path), test="all"))
    from_file, _ = data.load("h", raw.section(source="humaneval", location=str(PATH), test="all"))
    assert from_hub == from_file
