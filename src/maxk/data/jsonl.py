"""Own problems, without code: JSON lines, parquet files or `datasets` folders (docs/datasets.md, "Own problems").

One row per problem. A row has a statement and tests; all else is optional, and a key that is not known is refused.
Tests are stdin/stdout pairs, or function calls, which become stdin/stdout tests in the literal form of
`maxk.data.calls`. A folder has one file or subfolder per split, or rows with a `split` of their own.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, PlainValidator, TypeAdapter
from typing_extensions import TypedDict

from maxk.artifacts.records import Problem, Test
from maxk.data import calls, hub
from maxk.data.calls import Call
from maxk.data.candidates import Candidate, Funnel
from maxk.data.hub import Layouts
from maxk.data.rows import OURS, LazyRow, Text
from maxk.data.sections import Benchmark, CheckSolutions
from maxk.data.testcases import unix
from maxk.errors import suggest

SUFFIXES = ("jsonl*", "arrow", "parquet", "json*")  # in a `datasets` folder, json files hold no rows

_PUBLISHED = {  # keys by which a source's files are told; the first fit counts, as LiveCodeBench has the keys of APPS
    "humaneval": {"task_id", "entry_point"},
    "mbpp": {"text", "test_list"},
    "livecodebench": {"question_content", "public_test_cases"},
    "apps": {"starter_code", "difficulty"},
}


class Streams(TypedDict):
    """What a program reads, and what it must print."""

    stdin: Text
    expected: Text


class FunctionCall(TypedDict):
    """`function(*arguments) == value`, in JSON values."""

    function: Text
    arguments: list[Any]
    value: Any


@functools.cache
def _adapter(form: type) -> TypeAdapter[Any]:
    return TypeAdapter(form)


def _test(value: Any) -> Test | Call:
    """A test in any of its forms. Raises ValueError."""
    if isinstance(value, str):
        if (call := calls.parse_assert(value)) is None:
            raise ValueError("expected `assert function(literals) == literal`")
        return call
    if isinstance(value, Mapping) and "function" in value:
        return _literals(_adapter(FunctionCall).validate_python(value, strict=True, extra="forbid"))
    if isinstance(value, list) and len(value) == 2:
        value = {"stdin": value[0], "expected": value[1]}
    streams = _adapter(Streams).validate_python(value, strict=True, extra="forbid")
    return Test(streams["stdin"], streams["expected"])


def _literals(call: FunctionCall) -> Call:
    """The call. Raises ValueError if a value has no literal, as NaN has none."""
    made = Call(call["function"], tuple(call["arguments"]), call["value"])
    ast.literal_eval(repr((made.arguments, made.value)))
    return made


def _one_kind(tests: list[Test | Call]) -> list[Test | Call]:
    functions = {test.function if isinstance(test, Call) else None for test in tests}
    if len(functions) > 1:
        raise ValueError("all tests of a problem must be stdin/stdout pairs, or calls of one function")
    return tests


def _as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


Label = Annotated[Text, BeforeValidator(_as_text)]
"""Text or an integer."""


class Row(TypedDict):
    r"""All keys of a row. The example row is made up (SYNTHETIC):

    {"id": "sum", "statement": "Print the sum of two integers.",
     "tests": [{"stdin": "1 2\n", "expected": "3\n"}, ["4 5\n", "9\n"]],
     "time_limit_s": 1.5, "memory_limit_mb": 256, "difficulty": "easy", "split": "train",
     "solutions": ["print(sum(map(int, input().split())))"]}
    """

    file_split: str
    row_number: int
    id: NotRequired[Label | None]
    problem_id: NotRequired[Label | None]  # the same, by its name in the files of `maxk grade`
    statement: Text
    tests: Annotated[list[Annotated[Any, PlainValidator(_test)]], AfterValidator(_one_kind)]
    checker: NotRequired[Text | None]
    time_limit_s: NotRequired[Annotated[FiniteFloat, Field(gt=0, le=3600)] | None]
    memory_limit_mb: NotRequired[Annotated[int, Field(gt=0, le=2**20)] | None]
    solutions: NotRequired[list[Text] | None]
    difficulty: NotRequired[Label | None]
    split: NotRequired[Literal["train", "test"] | None]


class JsonlDataset(Benchmark):
    """Your own problems: JSON lines, parquet files or `datasets` folders (docs/datasets.md)."""

    source: Literal["jsonl"]
    difficulties: tuple[Label, ...] = Field((), description="Values of `difficulty` to keep; empty keeps all.")
    ignore: tuple[str, ...] = Field((), description="Further keys of the rows, which are not read.")
    check_solutions: CheckSolutions = 0

    def layouts(self) -> Mapping[str, Layouts]:
        """Files or subfolders named after splits if there are any, else all files as one pool."""
        folder = Path(self.location).expanduser()
        names = {path.relative_to(folder).as_posix() for path in hub.data_files(folder)} if folder.is_dir() else set()
        if names and not any(re.search(r"(^|/)(train|test)", name) for name in names):
            return {"": [[f"*.{suffix}"] for suffix in SUFFIXES]}
        return {split: _layouts(split) for split in ("train", "test")}

    def candidates(self, funnel: Funnel) -> Iterator[Candidate]:
        rows = self.rows(funnel, Row, _id)
        if self.difficulties:
            rows = funnel.keep("difficulty", rows, lambda row: row.get("difficulty") in self.difficulties, _id)
        return (_candidate(funnel.dataset, self._known(row)) for row in rows)

    def _known(self, row: Row) -> Row:
        """Refuses unknown keys, since a misspelt one would be lost silently."""
        lazy = cast(LazyRow, row)
        known = [key for key in Row.__annotations__ if key not in OURS]
        for key in lazy.columns:
            if key not in known and key not in self.ignore:
                raise lazy.fault(f"unknown key {key!r}{_published(lazy.columns) or _hint(key, known)}")
        return row


def _published(columns: Sequence[str]) -> str:
    """The end of a message on rows of a published dataset, which has a source of its own; "" for other rows."""
    source = next((name for name, keys in _PUBLISHED.items() if keys <= set(columns)), None)
    return f": these are keys of {source}; give --problems {source}=FILE, or `source: {source}`" if source else ""


def _hint(key: str, known: Sequence[str]) -> str:
    hint = suggest(key, known) or " (name it in `ignore` if it is not needed)"
    return f"{hint}; known: {', '.join(known)}"


def _layouts(split: str) -> Layouts:
    return [[f"{start}{split}*.{suffix}"] for suffix in SUFFIXES for start in ("", "*/")]


def _id(row: Row) -> str:
    """The row's own id, else its number, which is unique in its split."""
    split = f"{row['file_split']}-" if row["file_split"] else ""
    return row.get("id") or row.get("problem_id") or f"{split}{row['row_number']}"


def _candidate(dataset: str, row: Row) -> Candidate:
    given = row["tests"]
    tests = [Test(unix(test.stdin), unix(test.expected)) for test in given if isinstance(test, Test)]
    asserted = [test for test in given if isinstance(test, Call)]
    statement, solutions, checker = unix(row["statement"]), row.get("solutions") or [], row.get("checker")
    if asserted:
        names = calls.parameters("\n".join(solutions[:1]), asserted)
        statement = f"{statement.strip()}\n{calls.format_line(names, asserted, 'literal')}"
        solutions = [calls.reference_program(solution, asserted, "literal") for solution in solutions]
        tests = [calls.literal_test(call) for call in asserted]
        checker = checker or (calls.LITERAL_CHECKER if calls.has_no_order(asserted) else None)
    problem = Problem(
        f"{dataset}/{_id(row)}",
        dataset,
        row.get("split") or row["file_split"],
        statement,
        tests,
        time_limit_s=row.get("time_limit_s"),
        memory_limit_mb=row.get("memory_limit_mb"),
        checker=checker or None,
        reference=solutions[0] if solutions else None,
    )
    return Candidate(problem, solutions=solutions, text=row["statement"])
