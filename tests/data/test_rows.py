"""Raw rows: every file format reads alike; a fault names file, row, column, what was expected and what was found."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NotRequired

import datasets
import pytest
import raw
from pydantic import FiniteFloat
from typing_extensions import TypedDict

from maxk.data import rows
from maxk.data.rows import Text
from maxk.errors import UserError


class Case(TypedDict):
    input: Text


class Row(TypedDict):
    id: int
    tests: list[Case]


class Loose(TypedDict):
    a: Text | None
    b: FiniteFloat
    c: NotRequired[int]


OPTIONAL = ("c",)
ROWS = [{"id": 1, "tests": [{"input": "2024-01-01", "more": 3}], "unused": 1}, {"id": 2, "tests": [], "unused": "x"}]
FEATURES = raw.Features({"id": raw.INT, "tests": raw.List({"input": raw.TEXT})})


def read(location: Path, schema: Any = Row) -> Iterator[Any]:
    place = raw.section(source="cure", location=location)
    layouts = [["*.parquet"], ["*.jsonl*"], ["*.arrow"], ["*.json*"]]
    for row in rows.table("d", place, layouts).rows(schema):
        yield {key: row[key] for key in schema.__annotations__ if key in row or key not in OPTIONAL}


def error(location: Path, schema: Any = Row) -> str:
    with pytest.raises(UserError) as caught:
        list(read(location, schema))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"datasets.d: {location}")
    return message


# ------------------------------------------------------------------------------------------------------------ formats
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows.json", "rows.json.gz"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_json_is_read_as_it_is(name: str, mark: str, tmp_path: Path) -> None:
    """Undeclared columns may have mixed types, text like a date stays text, a byte-order mark is skipped."""
    text = mark + ("\n".join(map(json.dumps, ROWS)) + "\n\n" if "jsonl" in name else json.dumps(ROWS, indent=1))
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    expected = [{"id": 1, "tests": [{"input": "2024-01-01"}]}, {"id": 2, "tests": []}]
    assert list(read(tmp_path / name)) == expected
    assert list(read(tmp_path)) == expected


def test_parquet_and_datasets_folders_read_as_json_does(tmp_path: Path) -> None:
    """More rows than a batch holds; ids with more than 32 bits."""
    made = [{"id": 2**40 + i, "tests": [{"input": f"é{i}"}] * (i % 3)} for i in range(3 * rows.BATCH + 1)]
    raw.parquet(tmp_path / "parquet" / "rows.parquet", made, FEATURES)
    datasets.Dataset.from_list(made, features=FEATURES).save_to_disk(tmp_path / "folder")
    raw.jsonl(tmp_path / "rows.jsonl", made)
    for location in ("parquet", "folder", "rows.jsonl"):
        assert list(read(tmp_path / location)) == made


def test_damaged_files_are_named(tmp_path: Path) -> None:
    def written(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    assert "cannot be read as parquet" in error(written("a.parquet", b"PAR1 not really"))
    assert "cannot be read as arrow" in error(written("a.arrow", b"not really"))
    assert "a.jsonl:3: not JSON (Expecting" in error(written("a.jsonl", b'{"id": 1, "tests": []}\n\n{"id": 2'))
    assert "a.jsonl:1: expected a JSON object, got int 1" in error(written("a.jsonl", b"1\n"))
    assert "a.json (row 1): expected a JSON object, got list [1]" in error(written("a.json", b"[[1]]"))
    assert "a.json.gz: a damaged gzip file (" in error(written("a.json.gz", gzip.compress(b"[]")[:-6]))
    assert "a.jsonl: not UTF-8 ('utf-8" in error(written("a.jsonl", b'{"id": "\xff"}'))
    assert "not JSON (nested too deeply)" in error(written("a.jsonl", b"[" * 100_000))


# ------------------------------------------------------------------------------------------------------------ columns
def test_a_renamed_column_is_named(tmp_path: Path) -> None:
    assert "a.jsonl:1: no column 'id', no column 'tests'; it has x (" in error(
        raw.jsonl(tmp_path / "a.jsonl", [{"x": 1}])
    )
    message = error(raw.jsonl(tmp_path / "rows.jsonl", [{"id": 1, "test": []}]))
    assert "rows.jsonl:1: no column 'tests' (renamed to 'test'?); it has id, test" in message
    features = raw.Features({"id": raw.INT, "test": raw.List({"input": raw.TEXT}), "url": raw.TEXT})
    message = error(raw.parquet(tmp_path / "rows.parquet", [{"id": 1, "test": [], "url": ""}], features))
    assert "rows.parquet (row 1): no column 'tests' (renamed to 'test'?); it has id, test, url" in message


@pytest.mark.parametrize(
    ("feature", "value", "said"),
    [
        (raw.TEXT, "x", "column 'tests' should be a valid list, got str 'x'"),
        (raw.List(raw.TEXT), ["x"], "column 'tests.0' should be a valid dictionary, got str 'x'"),
        (raw.List({"stdin": raw.TEXT}), [{"stdin": "x"}], "column 'tests.0' lacks 'input'; it has stdin"),
        (raw.List({"inputs": raw.TEXT}), [{"inputs": "x"}], "lacks 'input' (renamed to 'inputs'?); it has inputs"),
        ({"input": raw.List(raw.TEXT)}, {"input": ["x"]}, "column 'tests' should be a valid list, got dict {'input'"),
        (raw.List({"input": raw.INT}), [{"input": 1}], "column 'tests.0.input' should be a valid string, got int 1"),
        (raw.List({"input": raw.TEXT}), None, "column 'tests' should be a valid list, got null"),
        (raw.List({"input": raw.TEXT}), [{"input": None}], "'tests.0.input' should be a valid string, got null"),
        (raw.List({"input": raw.TEXT}), [None], "column 'tests.0' should be a valid dictionary, got null"),
    ],
)
def test_a_column_of_another_type_is_named(feature: Any, value: Any, said: str, tmp_path: Path) -> None:
    made, good = [{"id": 1, "tests": []}, {"id": 2, "tests": value}], raw.Features(id=raw.INT, tests=feature)
    assert said in error(raw.jsonl(tmp_path / "rows.jsonl", made))
    assert "rows.jsonl:2: " in error(tmp_path / "rows.jsonl")
    assert said in error(raw.parquet(tmp_path / "rows.parquet", made[1:], good))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"a": None, "b": True}, "column 'b' should be a valid number, got bool True"),
        ({"a": None, "b": "1"}, "column 'b' should be a valid number, got str '1'"),
        ({"a": None, "b": float("nan")}, "column 'b' should be a finite number, got float nan"),
        ({"a": 1, "b": 1}, "column 'a' should be a valid string, got int 1"),
        ({"a": "x", "b": 1, "c": 1.0}, "column 'c' should be a valid integer, got float 1.0"),
        ({"a": "\ud83d", "b": 1}, "column 'a': 'utf-8' codec can't encode character '\\ud83d'"),
        ({"a": ["x" * 1000], "b": 1}, "…"),
    ],
)
def test_nothing_is_coerced(row: dict[str, Any], said: str, tmp_path: Path) -> None:
    message = error(raw.jsonl(tmp_path / "rows.jsonl", [row]), Loose)
    assert said in message
    assert len(message) < len(str(tmp_path)) + 250


def test_nulls_missing_keys_and_integers_are_fine_where_the_type_allows_them(tmp_path: Path) -> None:
    path = raw.jsonl(tmp_path / "rows.jsonl", [{"a": None, "b": 1}, {"a": "x", "b": 1.5, "c": 3}])
    assert list(read(path, Loose)) == [{"a": None, "b": 1.0}, {"a": "x", "b": 1.5, "c": 3}]


def test_an_integer_beyond_pythons_limit_is_no_reason_to_stop(tmp_path: Path) -> None:
    digits = "9" * 5000
    (tmp_path / "rows.jsonl").write_text(f'{{"a": null, "b": 1, "rating": {digits}, "c": {digits}}}\n')
    [row] = rows.table("d", raw.section(source="cure", location=tmp_path / "rows.jsonl"), []).rows(Loose)
    assert row["b"] == 1
    with pytest.raises(UserError, match=r"rows\.jsonl:1: column 'c' should be a valid integer, got str '999"):
        row["c"]  # type: ignore[typeddict-item]


def test_only_what_is_read_of_a_row_is_checked(tmp_path: Path) -> None:
    path = raw.jsonl(tmp_path / "rows.jsonl", [{"id": 1, "tests": "none"}, {"id": 2, "tests": []}])
    table = rows.table("d", raw.section(source="cure", location=path), [])
    assert [row["tests"] for row in table.rows(Row) if row["id"] == 2] == [[]]


def test_a_row_of_the_hub_is_to_be_pinned(tmp_path: Path) -> None:
    path = raw.jsonl(tmp_path / "rows.jsonl", [{}])
    [row] = rows.Table("datasets.d: org/set", [path], remote=True).rows(Row)
    with pytest.raises(UserError, match=r"org/set, rows\.jsonl:1: no column 'id'.*; pin the revision"):
        row["id"]


def test_json_columns_refuse_text_that_cannot_be_written() -> None:
    assert rows.parse_json_column('["\\ud83d\\ude00"]') == ["😀"]
    with pytest.raises(ValueError, match="surrogates not allowed"):
        rows.parse_json_column('{"a": ["\\ud83d"]}')
