"""Raw rows in the exact schemas of the hub, written as the hub has them.

SYNTHETIC: no row here is from a benchmark. The schemas are the hub's; the tasks (add two numbers) are made up, because
real rows of these sets cannot be shipped. Real rows (MBPP, APPS, LiveCodeBench) are in the folders beside this file.
"""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, Features, List, Value
from pydantic import TypeAdapter

from maxk import data

HERE = Path(__file__).parent
MBPP = HERE / "mbpp" / "mbpp.jsonl.gz"
APPS = HERE / "apps" / "apps_selected150.jsonl.gz"
LIVECODEBENCH = HERE / "livecodebench" / "lcb_lite_sample.jsonl.gz"

ADD = "print(sum(map(int, input().split())))\n"  # solves every task below
PAIRS = [("1 2\n", "3\n"), ("2 2\n", "4\n"), ("10 5\n", "15\n")]
TEXT, INT = Value("string"), Value("int64")
_PARALLEL = {"input": List(TEXT), "output": List(TEXT)}
_PAIR = List({"input": TEXT, "output": TEXT})

CODE_CONTESTS = Features(
    {
        "name": TEXT,
        "description": TEXT,
        "public_tests": _PARALLEL,
        "private_tests": _PARALLEL,
        "generated_tests": _PARALLEL,
        "source": ClassLabel(names=["UNKNOWN_SOURCE", "CODECHEF", "CODEFORCES"]),
        "difficulty": ClassLabel(names=["UNKNOWN_DIFFICULTY", "EASY", "MEDIUM", "HARD", "HARDER", "HARDEST"]),
        "solutions": {
            "language": List(ClassLabel(names=["UNKNOWN_LANGUAGE", "PYTHON", "CPP", "PYTHON3", "JAVA"])),
            "solution": List(TEXT),
        },
        "cf_contest_id": INT,
        "cf_index": TEXT,
        "time_limit": {"seconds": INT, "nanos": INT},
        "memory_limit_bytes": INT,
        "input_file": TEXT,
        "output_file": TEXT,
    }
)
LIVEBENCH = Features(
    {
        "question_id": TEXT,
        "category": TEXT,
        "turns": List(TEXT),
        "question_title": TEXT,
        "public_test_cases": TEXT,
        "private_test_cases": TEXT,
        "original_json": {
            "question_title": TEXT,
            "question_content": TEXT,
            "platform": TEXT,
            "question_id": TEXT,
            "contest_id": TEXT,
            "contest_date": Value("timestamp[s]"),
            "starter_code": TEXT,
            "difficulty": TEXT,
            "metadata": TEXT,
        },
        "task": TEXT,
        "remainder": TEXT,
        "solution": TEXT,
        "partial_solution": TEXT,
    }
)
CODEFORCES = Features(
    {
        "id": TEXT,
        "aliases": List(TEXT),
        "contest_id": TEXT,
        "index": TEXT,
        "time_limit": Value("float64"),
        "memory_limit": Value("float64"),
        "title": TEXT,
        "description": TEXT,
        "input_format": TEXT,
        "output_format": TEXT,
        "interaction_format": TEXT,
        "note": TEXT,
        "examples": _PAIR,
        "official_tests": _PAIR,
        "official_tests_complete": Value("bool"),
        "input_mode": TEXT,
        "generated_checker": TEXT,
        "executable": Value("bool"),
        "generated_tests": INT,
    }
)


def section(**keys: Any) -> Any:
    """A validated section `datasets.NAME`."""
    return TypeAdapter(data.Dataset).validate_python({k: str(v) if isinstance(v, Path) else v for k, v in keys.items()})


def parquet(path: Path, rows: Sequence[dict[str, Any]], features: Features) -> Path:
    """Writes rows as `datasets` writes them for the hub."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Dataset.from_list(list(rows), features=features).to_parquet(path)
    return path


def jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def parallel(pairs: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    return {"input": [stdin for stdin, _ in pairs], "output": [expected for _, expected in pairs]}


def code_contests_row(name: str, **changes: Any) -> dict[str, Any]:
    row = {
        "name": name,
        "description": f"Add two numbers, says task {name}.",
        "public_tests": parallel(PAIRS[:1]),
        "private_tests": parallel(PAIRS[1:2]),
        "generated_tests": parallel(PAIRS[2:]),
        "source": 2,
        "difficulty": 1,
        "solutions": {"language": [2, 3], "solution": ["int main() {}", ADD]},
        "cf_contest_id": 0,
        "cf_index": "",
        "time_limit": {"seconds": 1, "nanos": 500_000_000},
        "memory_limit_bytes": 256 * 2**20,
        "input_file": "",
        "output_file": "",
    }
    return {**row, **changes}


def code_contests(folder: Path, rows: Sequence[dict[str, Any]], features: Features = CODE_CONTESTS) -> Path:
    """A folder laid out like the hub's repository: the rows in train, valid and test."""
    for split, part in (("train", rows[:-2]), ("valid", rows[-2:-1]), ("test", rows[-1:])):
        parquet(folder / "data" / f"{split}-00000-of-00001.parquet", part, features)
    return folder


def packed(cases: Sequence[dict[str, Any]]) -> str:
    """Tests as the hub packs private ones: JSON in a pickle, compressed, in base64."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


def cases(pairs: Sequence[tuple[str, str]], testtype: str = "stdin") -> list[dict[str, Any]]:
    return [{"input": stdin, "output": expected, "testtype": testtype} for stdin, expected in pairs]


FUNCTION = "class Solution:\n    def add(self, terms: List[int], more: int) -> int:\n        "
FUNCTION_CASES = cases([("[1, 2]\n3", "6"), ("[ ]\n-1", "-1")], "functional")
FUNCTION_METADATA = json.dumps({"func_name": "add"})


def livecodebench_row(question_id: str, **changes: Any) -> dict[str, Any]:
    row = {
        "question_title": "Add",
        "question_content": f"Add two numbers, says question {question_id}.",
        "platform": "atcoder",
        "question_id": question_id,
        "contest_id": "made_up",
        "contest_date": "2024-01-01T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps(cases(PAIRS[:1])),
        "private_test_cases": packed(cases(PAIRS[1:])),
        "metadata": "{}",
    }
    return {**row, **changes}


def functional_row(question_id: str) -> dict[str, Any]:
    return livecodebench_row(
        question_id,
        platform="leetcode",
        starter_code=FUNCTION,
        public_test_cases=json.dumps(FUNCTION_CASES[:1]),
        private_test_cases=packed(FUNCTION_CASES[1:]),
        metadata=FUNCTION_METADATA,
    )


def livebench_row(question_id: str, task: str, **changes: Any) -> dict[str, Any]:
    original = livecodebench_row(question_id) | changes.pop("original_json", {})
    row = {
        "question_id": question_id,
        "category": "coding",
        "turns": ["Generate a program …"],
        "question_title": original["question_title"],
        "public_test_cases": original["public_test_cases"],
        "private_test_cases": original["private_test_cases"],
        "original_json": {name: original[name] for name in LIVEBENCH["original_json"] if name != "contest_date"}
        | {"contest_date": None},
        "task": task,
        "remainder": "",
        "solution": "",
        "partial_solution": "",
    }
    return {**row, **changes}


def codeforces_row(problem_id: str, **changes: Any) -> dict[str, Any]:
    row = {
        "id": problem_id,
        "aliases": None,
        "contest_id": problem_id.split("/")[0],
        "index": problem_id.split("/")[1],
        "time_limit": 2.0,
        "memory_limit": 256.0,
        "title": f"Sum {problem_id}",
        "description": f"Add two numbers, says problem {problem_id}.",
        "input_format": "Two integers.",
        "output_format": "Their sum.",
        "interaction_format": None,
        "note": None,
        "examples": [{"input": "1 2", "output": "3"}],
        "official_tests": [{"input": a.replace("\n", "\r\n"), "output": b.replace("\n", "\r\n")} for a, b in PAIRS],
        "official_tests_complete": True,
        "input_mode": "stdio",
        "generated_checker": None,
        "executable": True,
        "generated_tests": 0,
    }
    return {**row, **changes}


def cure_row(task_id: int, **changes: Any) -> dict[str, Any]:
    row = {
        "dataset": "MBPP",
        "task_id": task_id,
        "question": f"Add two numbers, says task {task_id}.",
        "exe_method": "stdin",
        "solutions": "",
        "test_time_limit": 1,
        "example_input": ["1 2\n"],
        "example_output": ["3\n"],
        "test_input": [stdin for stdin, _ in PAIRS],
        "test_output": [expected for _, expected in PAIRS],
    }
    return {**row, **changes}


def apps_row(problem_id: int, **changes: Any) -> dict[str, Any]:
    row = {
        "id": problem_id,
        "question": f"Add two numbers, says problem {problem_id}.",
        "solutions": json.dumps([ADD]),
        "input_output": json.dumps({"inputs": [a for a, _ in PAIRS], "outputs": [b for _, b in PAIRS]}),
        "difficulty": "introductory",
        "url": "",
        "starter_code": "",
    }
    return {**row, **changes}
