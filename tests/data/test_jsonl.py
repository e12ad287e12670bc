"""Own problems: all forms of a row, the same problems from every file format, and faults by file, line and key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import raw

from maxk import data
from maxk.artifacts.records import Problem, Test
from maxk.errors import UserError
from maxk.evaluation import problem_grader
from maxk.grading import Grader, Limits

ADD = {"id": "sum", "statement": "Print the sum.", "tests": [{"stdin": "1 2\n", "expected": "3\n"}, ["4 5\r\n", "9\n"]]}


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {**ADD, "id": f"p{number}", "statement": f"Print the sum, {number}.", **changes}


def load(location: Path, **keys: Any) -> tuple[dict[str, Problem], Any]:
    problems, funnel = data.load("d", raw.section(source="jsonl", location=location, **keys))
    return {problem.problem_id.removeprefix("d/"): problem for problem in problems}, funnel


def fault(folder: Path, *rows: Any) -> str:
    path = raw.jsonl(folder / "own.jsonl", rows)
    with pytest.raises(UserError) as error:
        load(path)
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < len(str(path)) + 300
    return message.removeprefix(f"datasets.d: {path}")


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(Limits(cpu_s=2), workers=1) as one:
        yield one


def rewards(grader: Grader, problem: Problem, *programs: str) -> list[float]:
    submissions = [problem_grader.submission(program, problem, grader.limits) for program in programs]
    return [verdict.reward for verdict in grader.grade(submissions)]


# -------------------------------------------------------------------------------------------------------------- rows
def test_all_keys_of_a_row(tmp_path: Path, grader: Grader) -> None:
    keys = {
        "time_limit_s": 1,
        "memory_limit_mb": 64,
        "checker": "print(1)",
        "difficulty": "easy",
        "split": "train",
        "solutions": [raw.ADD, "pass"],
    }
    problems, _ = load(raw.jsonl(tmp_path / "own.jsonl", [{**ADD, **keys}, row(1, split="test")]), train=1)
    tests = [Test("1 2\n", "3\n"), Test("4 5\n", "9\n")]
    assert problems["sum"] == Problem("d/sum", "d", "train", "Print the sum.", tests, 1.0, 64, "print(1)", raw.ADD)
    assert problems["p1"] == Problem("d/p1", "d", "test", "Print the sum, 1.", tests)
    assert rewards(grader, problems["p1"], raw.ADD, "print(3)") == [1.0, 0.5]


def test_nulls_are_absent_and_ids_default_to_row_numbers(tmp_path: Path) -> None:
    optional = ("id", "checker", "time_limit_s", "memory_limit_mb", "solutions", "difficulty", "split")
    problems, _ = load(raw.jsonl(tmp_path / "own.jsonl", [row(1, **dict.fromkeys(optional)), row(2, id=7)]))
    assert problems["1"] == Problem("d/1", "d", "test", "Print the sum, 1.", problems["7"].tests)
    assert set(problems) == {"1", "7"}


def test_an_id_has_its_name_in_the_files_of_maxk_grade_too(tmp_path: Path) -> None:
    named = {**row(1), "problem_id": "mine"}
    named.pop("id")
    assert set(load(raw.jsonl(tmp_path / "own.jsonl", [named]))[0]) == {"mine"}


def test_rows_without_a_split_are_one_pool(tmp_path: Path) -> None:
    path = raw.jsonl(tmp_path / "own.jsonl", [row(i) for i in range(10)])
    _, funnel = load(path, train="all", test=3)
    assert (funnel["train"], funnel["test"]) == (7, 3)
    with pytest.raises(UserError, match="no row is left for train; give the other split a smaller number"):
        load(path, train="all", test="all")


def test_difficulties_are_filtered(tmp_path: Path) -> None:
    rows = [row(1, difficulty="easy"), row(2, difficulty=1500), row(3)]
    path = raw.jsonl(tmp_path / "own.jsonl", rows)
    assert set(load(path, difficulties=["easy", 1500])[0]) == {"p1", "p2"}
    assert set(load(path)[0]) == {"p1", "p2", "p3"}


def test_solutions_are_validated(tmp_path: Path) -> None:
    path = raw.jsonl(tmp_path / "own.jsonl", [row(1, solutions=["right"]), row(2, solutions=["wrong"])])
    section = raw.section(source="jsonl", location=path, check_solutions=1)

    def validate(programs: Any) -> list[list[str]]:
        return [["passed" if program == "right" else "wrong_answer"] * len(p.tests) for program, p in programs]

    problems, funnel = data.load("d", section, validate)
    assert [problem.problem_id for problem in problems] == ["d/p1"]
    assert funnel.dropped["confirmed_by_solutions"] == ["d/p2"]  # type: ignore[attr-defined]


# ----------------------------------------------------------------------------------------------------- function calls
@pytest.mark.parametrize(
    "tests",
    [
        ["assert add([1, 2], 3) == [4, 5]", "assert add([], -1) == []"],
        [
            {"function": "add", "arguments": [[1, 2], 3], "value": [4, 5]},
            {"function": "add", "arguments": [[], -1], "value": []},
        ],
    ],
)
def test_function_calls_become_literals_on_standard_streams(tests: list[Any], tmp_path: Path, grader: Grader) -> None:
    solution = "def add(terms, more):\n    return [term + more for term in terms]\n"
    path = raw.jsonl(tmp_path / "own.jsonl", [row(1, tests=tests, solutions=[solution]), row(2, tests=tests)])
    problems, _ = load(path)
    line = "each a Python literal on its own line. Output: a Python literal."
    assert problems["p1"].statement == f"Print the sum, 1.\nInput: terms and more, {line}"
    assert problems["p2"].statement == f"Print the sum, 2.\nInput: argument 1 and argument 2, {line}"
    assert problems["p1"].tests == [("[1, 2]\n3\n", "[4, 5]\n"), ("[]\n-1\n", "[]\n")]
    own = "import ast\nterms, more = ast.literal_eval(input()), int(input())\nprint([term + more for term in terms])"
    assert rewards(grader, problems["p1"], str(problems["p1"].reference), own, "print([])") == [1.0, 1.0, 0.5]


def test_calls_of_methods_without_arguments_and_of_unordered_values(tmp_path: Path, grader: Grader) -> None:
    calls = [{"function": "Solution().pick", "arguments": [], "value": {"b": 1, "a": None}}]
    solution = "class Solution:\n    def pick(self):\n        return {'a': None, 'b': 1}\n"
    problems, _ = load(raw.jsonl(tmp_path / "own.jsonl", [row(1, tests=calls, solutions=[solution])]))
    assert problems["p1"].statement.endswith("\nInput: nothing. Output: a Python literal.")
    assert rewards(grader, problems["p1"], str(problems["p1"].reference), "print({'a': 1})") == [1.0, 0.0]


# -------------------------------------------------------------------------------------------------------------- files
def test_every_format_gives_the_same_problems(tmp_path: Path) -> None:
    rows = [row(i, tests=[{"stdin": f"{i}\n", "expected": f"{i}\n"}], time_limit_s=None) for i in range(8)]
    by_split = {"train": rows[:5], "test": rows[5:]}
    made = {name: datasets.Dataset.from_list(part) for name, part in by_split.items()}
    datasets.DatasetDict(made).save_to_disk(tmp_path / "folder")
    for name, part in by_split.items():
        (tmp_path / "lines").mkdir(exist_ok=True)
        raw.jsonl(tmp_path / "lines" / f"{name}.jsonl", part)
        path = tmp_path / "parquet" / "data" / f"{name}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        made[name].to_parquet(path)
        upper = tmp_path / "UPPER" / f"{name}-00000-of-00001.PARQUET"
        upper.parent.mkdir(exist_ok=True)
        upper.write_bytes(path.read_bytes())
    listed = [{**one, "split": split} for split, part in by_split.items() for one in part]
    (tmp_path / "list.json").write_text(json.dumps(listed))
    places = ("folder", "lines", "parquet", "UPPER", "list.json")
    found = [load(tmp_path / place, train="all")[0] for place in places]
    assert all(one == found[0] for one in found)
    assert sum(problem.split == "train" for problem in found[0].values()) == 5


def test_a_folder_without_splits_is_one_pool(tmp_path: Path) -> None:
    datasets.Dataset.from_list([row(i, tests=[["1\n", "1\n"]]) for i in range(4)]).save_to_disk(tmp_path / "folder")
    assert len(load(tmp_path / "folder", train=1, test=3)[0]) == 4


def test_rows_without_ids_in_two_splits_have_different_ids(tmp_path: Path) -> None:
    for split in ("train", "test"):
        raw.jsonl(tmp_path / f"{split}.jsonl", [row(i, id=None, statement=f"{split} {i}") for i in range(2)])
    assert set(load(tmp_path, train="all")[0]) == {"train-1", "train-2", "test-1", "test-2"}


# -------------------------------------------------------------------------------------------------------------- faults
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"statement": None}, "column 'statement' should be a valid string, got null"),
        ({"tests": "1"}, "column 'tests' should be a valid list, got str '1'"),
        ({"tests": {"input": ["1"], "output": ["1"]}}, "column 'tests' should be a valid list, got dict"),
        ({"tests": [{"input": "1", "output": "1"}]}, "column 'tests.0' lacks 'stdin'; it has input, output"),
        ({"tests": [["1", "2"], {"stdin": "1"}]}, "column 'tests.1' lacks 'expected'; it has stdin"),
        ({"tests": [{"stdin": 1, "expected": "1"}]}, "column 'tests.0.stdin' should be a valid string, got int 1"),
        ({"tests": [["1", None]]}, "column 'tests.0.expected' should be a valid string, got null"),
        ({"tests": [["1", "2", "3"]]}, "column 'tests.0' should be a valid dictionary, got list"),
        ({"tests": [{"stdin": "1", "expected": "1", "points": 3}]}, "column 'tests.0.points': unknown key"),
        ({"tests": [["\ud83d", "1"]]}, "column 'tests.0.stdin': 'utf-8' codec can't encode"),
        ({"tests": ["f(1) == 2"]}, "column 'tests.0': expected `assert function(literals) == literal`, got str"),
        ({"tests": ["assert f(1) == 2", ["1", "1"]]}, "all tests of a problem must be stdin/stdout pairs, or calls of"),
        ({"tests": ["assert f(1) == 2", "assert g(1) == 2"]}, "or calls of one function"),
        ({"tests": [{"function": "f", "arguments": 1, "value": 1}]}, "'tests.0.arguments' should be a valid list"),
        ({"tests": [{"function": "f", "arguments": [], "value": float("nan")}]}, "column 'tests.0': malformed node"),
        ({"time_limit_s": "2 seconds"}, "column 'time_limit_s' should be a valid number, got str"),
        ({"time_limit_s": float("nan")}, "column 'time_limit_s' should be a finite number, got float nan"),
        ({"time_limit_s": -1}, "column 'time_limit_s' should be greater than 0, got int -1"),
        ({"memory_limit_mb": 10**13}, "column 'memory_limit_mb' should be less than or equal to 1048576, got int"),
        ({"memory_limit_mb": 0.5}, "column 'memory_limit_mb' should be a valid integer, got float 0.5"),
        ({"solutions": "print()"}, "column 'solutions' should be a valid list, got str"),
        ({"checker": 1}, "column 'checker' should be a valid string, got int 1"),
        ({"id": 1.5}, "column 'id' should be a valid string, got float 1.5"),
        ({"split": "validation"}, "column 'split' should be 'train' or 'test', got str 'validation'"),
        ({"time_limit": 3}, "unknown key 'time_limit' (did you mean 'time_limit_s'?); known: id, "),
    ],
)
def test_a_fault_names_file_line_and_key(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    message = fault(tmp_path, row(1), row(2, **changes))
    assert message.startswith(f":2: {said}") or (message.startswith(":2: ") and said in message), message


def test_missing_keys_are_named(tmp_path: Path) -> None:
    without = {key: value for key, value in ADD.items() if key != "tests"}
    assert fault(tmp_path, without).startswith(":1: no column 'tests'; it has id, statement (")
    assert fault(tmp_path, {**without, "test": []}).startswith(
        ":1: unknown key 'test' (did you mean 'tests'?); known: id"
    )
    assert fault(tmp_path, [1]).startswith(" (row 1): expected a JSON object, got int 1")


def test_further_keys_are_named_to_be_ignored(tmp_path: Path) -> None:
    path = raw.jsonl(tmp_path / "own.jsonl", [row(1, url="x", tags=[1])])
    assert set(load(path, ignore=["url", "tags"])[0]) == {"p1"}
    datasets.Dataset.from_list([row(1, url="x", tests=[["1", "1"]])]).to_parquet(tmp_path / "own.parquet")
    with pytest.raises(UserError, match=r"own\.parquet \(row 1\): unknown key 'url' \(name it in `ignore`"):
        load(tmp_path / "own.parquet")


@pytest.mark.parametrize("source", ["apps", "humaneval", "livecodebench", "mbpp"])
def test_rows_of_a_published_dataset_name_its_source(source: str) -> None:
    [path] = (Path(__file__).parent / source).glob("*.jsonl.gz")
    with pytest.raises(UserError, match=rf": these are keys of {source}; give --problems {source}=FILE, or `source: "):
        load(path)


def test_what_cannot_be_graded_is_left_out_by_id(tmp_path: Path) -> None:
    _, funnel = load(raw.jsonl(tmp_path / "own.jsonl", [row(1), row(2, tests=[]), row(3, statement=" ")]))
    assert funnel.dropped["with_tests"] == ["d/p2"]
    assert funnel.dropped["with_statement"] == ["d/p3"]


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """Otherwise the last one would count, and the other be lost in silence."""
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(ADD) + "\n" + json.dumps(ADD)[:-1] + ', "statement": "another"}\n')
    with pytest.raises(UserError, match=r"own\.jsonl:2: not JSON \(key 'statement' appears twice\)"):
        load(path)
