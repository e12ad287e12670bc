"""Faults of raw data, in every source where they can occur: one line each, which names the row or the column.

Each source has its rows in one JSON file; `test_rows.py` covers the other formats. That a failed preparation leaves no
file is in `test_sections.py`: nothing is written before all problems are converted.
"""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import raw
from huggingface_hub import constants
from huggingface_hub.errors import RevisionNotFoundError

from maxk import data
from maxk.data import filters
from maxk.errors import UserError

SHA = "0123456789abcdef0123456789abcdef01234567"
Row = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """How to make a raw row of a source, with a given id and given tests."""

    row: Callable[[int], Row]
    id: str
    statement: str
    tests: Callable[[str], Row]  # the columns of a row with one test of this input
    undecodable: Row
    said: str


def mbpp_row(number: int) -> Row:
    with gzip.open(raw.MBPP, "rt") as lines:
        return {**json.loads(next(lines)), "task_id": number + 11, "text": f"Task {number}"}


def mapcoder_row(number: int) -> Row:
    tests = [{"input": stdin, "output": [expected]} for stdin, expected in raw.PAIRS]
    return {
        "id": number,
        "description": f"Task {number}",
        "difficulty": "interview",
        "starter_code": "",
        "test_list": tests,
    }


PAIR_OFF = "1 test input, but 0 outputs"
ONE_INPUT = {"input": ["1"], "output": []}
SOURCES = {
    "code_contests": Source(
        lambda i: raw.code_contests_row(f"task {i}"),
        "name",
        "description",
        lambda text: {"public_tests": {"input": [text], "output": ["1"]}},
        {"public_tests": ONE_INPUT},
        PAIR_OFF,
    ),
    "codeforces": Source(
        lambda i: raw.codeforces_row(f"{i}/A"),
        "id",
        "description",
        lambda text: {"official_tests": [{"input": text, "output": "1"}]},
        {"official_tests": [{"input": "1"}]},
        "column 'official_tests.0' lacks 'output'",
    ),
    "cure": Source(
        raw.cure_row,
        "task_id",
        "question",
        lambda text: {"test_input": [text], "test_output": ["1"]},
        {"test_input": ["1"], "test_output": []},
        PAIR_OFF,
    ),
    "livecodebench": Source(
        lambda i: raw.livecodebench_row(f"q{i}"),
        "question_id",
        "question_content",
        lambda text: {"private_test_cases": raw.packed(raw.cases([(text, "1")]))},
        {"private_test_cases": "?"},
        "its test cases cannot be decoded",
    ),
    "livebench": Source(
        lambda i: raw.livebench_row(f"q{i}", "LCB_generation"),
        "question_id",
        "original_json",
        lambda text: {"private_test_cases": raw.packed(raw.cases([(text, "1")]))},
        {"private_test_cases": "?"},
        "its test cases cannot be decoded",
    ),
    "mbpp": Source(
        mbpp_row,
        "task_id",
        "text",
        lambda text: {"test_list": [f"assert remove_Occ('{text}', '1') == '1'"]},
        {"test_list": 3},
        "column 'test_list' should be a valid list, got int 3",
    ),
    "apps": Source(
        raw.apps_row,
        "id",
        "question",
        lambda text: {"input_output": json.dumps({"inputs": [text], "outputs": ["1"]})},
        {"input_output": "{"},
        "its input_output cannot be decoded",
    ),
    "apps of MapCoder": Source(
        mapcoder_row,
        "id",
        "description",
        lambda text: {"test_list": [{"input": text, "output": ["1"]}]},
        {"test_list": [{"input": "1"}]},
        "column 'test_list.0' lacks 'output'",
    ),
}


@pytest.fixture(params=SOURCES)
def named(request: pytest.FixtureRequest) -> tuple[str, Source]:
    return request.param.split()[0], SOURCES[request.param]


def load(named: tuple[str, Source], folder: Path, *rows: Row) -> tuple[list[str], Any]:
    """Upstream ids of the problems, and the funnel."""
    location = raw.jsonl(folder / "rows.jsonl", rows)
    problems, funnel = data.load("d", raw.section(source=named[0], location=location))
    return [problem.problem_id.removeprefix("d/") for problem in problems], funnel


def fault(named: tuple[str, Source], folder: Path, *rows: Row) -> str:
    with pytest.raises(UserError) as error:
        load(named, folder, *rows)
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


def fetch(named: tuple[str, Source]) -> str:
    keys = {"source": named[0], "location": "org/set", "revision": SHA}
    with pytest.raises(UserError) as error:
        data.load("d", raw.section(**keys))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_hub_is_offline(named: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert f"datasets.d: org/set at {SHA} cannot be fetched" in fetch(named)


def test_the_revision_is_gone(named: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RevisionNotFoundError.__new__(RevisionNotFoundError)

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    assert f"datasets.d.revision: org/set has no revision {SHA}" in fetch(named)


def test_a_column_was_renamed(named: Any, tmp_path: Path) -> None:
    source = named[1]
    for column in (source.statement, *source.undecodable):
        row = source.row(1)
        row[f"{column}_v2"] = row.pop(column)
        message = fault(named, tmp_path, source.row(0), row)
        assert f"rows.jsonl:2: no column {column!r} (renamed to '{column}_v2'?)" in message


def test_tests_cannot_be_decoded(named: Any, tmp_path: Path) -> None:
    source = named[1]
    message = fault(named, tmp_path, source.row(0), {**source.row(1), **source.undecodable})
    assert source.said in message
    assert "rows.jsonl:2" in message or str(source.row(1)[source.id]) in message


def test_a_faulty_row_can_be_excluded(named: Any, tmp_path: Path) -> None:
    """Even one whose statement is missing: nothing but the id of an excluded row is read."""
    source = named[1]
    bad = {**source.row(1), **source.undecodable}
    bad.pop(source.statement)
    location = raw.jsonl(tmp_path / "rows.jsonl", [source.row(0), bad])
    section = raw.section(source=named[0], location=location, exclude=[str(bad[source.id])])
    problems, funnel = data.load("d", section)
    assert [problem.problem_id for problem in problems] == [f"d/{source.row(0)[source.id]}"]
    assert funnel.dropped["not_excluded"] == [str(bad[source.id])]  # type: ignore[attr-defined]


def test_half_a_surrogate_pair_is_named(named: Any, tmp_path: Path) -> None:
    source = named[1]
    if source.statement == "original_json":
        bad = raw.livebench_row("q1", "LCB_generation", original_json={"question_content": "\ud83d"})
    else:
        bad = {**source.row(1), source.statement: "\ud83d"}
    message = fault(named, tmp_path, source.row(0), bad)
    assert f"rows.jsonl:2: column {source.statement!r}" in message.replace(".question_content", "")
    assert "surrogates not allowed" in message


@pytest.mark.parametrize("name", ["apps", "livecodebench", "livebench"])
def test_half_a_surrogate_pair_in_json_in_a_column_is_named(name: str, tmp_path: Path) -> None:
    source = SOURCES[name]
    message = fault((name, source), tmp_path, source.row(0), {**source.row(1), **source.tests("\ud83d")})
    assert f"d/{source.row(1)[source.id]}: its " in message
    assert "surrogates not allowed" in message


def test_a_call_based_row_with_a_huge_integer_does_not_end_the_run(tmp_path: Path) -> None:
    cases = '{"fn_name": "inc", "inputs": [[' + "9" * 5000 + ']], "outputs": [1' + "0" * 5000 + "]}"
    kept, funnel = load(("apps", SOURCES["apps"]), tmp_path, raw.apps_row(0), raw.apps_row(1, input_output=cases))
    assert kept == ["0"]
    assert funnel.dropped["no_function_name"] == ["1"]


@pytest.mark.parametrize("name", ["livecodebench", "livebench"])
def test_a_function_row_that_is_dropped_need_not_be_convertible(name: str, tmp_path: Path) -> None:
    source = SOURCES[name]
    bad = {"public_test_cases": json.dumps(raw.cases([("not json", "1")], "functional"))}
    location = raw.jsonl(tmp_path / "rows.jsonl", [source.row(0), {**source.row(1), **bad}])
    problems, _ = data.load("d", raw.section(source=name, location=location, functional="drop"))
    assert [problem.problem_id for problem in problems] == ["d/q0"]
    with pytest.raises(UserError, match="d/q1: a functional row"):
        data.load("d", raw.section(source=name, location=location))


@pytest.mark.parametrize("name", ["livecodebench", "livebench"])
@pytest.mark.parametrize("column", ["public_test_cases", "private_test_cases"])
def test_a_pickle_is_poisoned(name: str, column: str, tmp_path: Path) -> None:
    poison = base64.b64encode(zlib.compress(pickle.dumps(print))).decode()
    source = SOURCES[name]
    message = fault((name, source), tmp_path, source.row(0), {**source.row(1), column: poison})
    assert "d/q1: its test cases cannot be decoded" in message
    assert "only text is admitted" in message


def test_an_id_occurs_twice(named: Any, tmp_path: Path) -> None:
    source = named[1]
    first, second = source.row(0), source.row(1)
    message = fault(named, tmp_path, first, {**second, source.id: first[source.id]})
    assert f"problem d/{first[source.id]}: the id occurs twice" in message


def test_a_test_is_too_large(named: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a lowered limit; 70 MB are read for real in `test_filters.py`."""
    monkeypatch.setattr(filters, "MAX_TEST_BYTES", 1000)
    source = named[1]
    kept, funnel = load(named, tmp_path, source.row(0), {**source.row(1), **source.tests("7" * 2000)})
    assert kept == [str(source.row(0)[source.id])]
    assert funnel.dropped["tests_within_size"] == [f"d/{source.row(1)[source.id]}"]


def test_a_null_is_kept_out_or_named(named: Any, tmp_path: Path) -> None:
    source = named[1]
    for column in source.row(1):
        rows = source.row(0), {**source.row(1), column: None}
        try:
            kept, _ = load(named, tmp_path, *rows)
        except UserError:
            message = fault(named, tmp_path, *rows)
            assert "rows.jsonl:2: " in message or f"d/{source.row(1)[source.id]}:" in message
        else:
            assert str(source.row(0)[source.id]) in kept
            assert "None" not in kept
