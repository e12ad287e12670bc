"""JSON files from elsewhere: read piece by piece, or refused by file and line."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxk.errors import UserError
from maxk.evaluation import json_rows
from maxk.evaluation.json_rows import rows

OBJECTS: list[dict[str, Any]] = [{"a": 1, "text": 'quotes " and ], [ {'}, {}, {"b": [{"c": None}], "é": "\u2028"}]


def written(folder: Path, content: str | bytes, name: str = "f.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_arrays_and_lines_plain_or_gzipped(tmp_path: Path, indent: int | None, zipped: bool, mark: bytes) -> None:
    pack = gzip.compress if zipped else bytes
    lines = "".join(json.dumps(value, ensure_ascii=False) + "\r\n\n" for value in OBJECTS).encode()
    found = list(rows(written(tmp_path, pack(mark + lines))))
    assert [row.value for row in found] == OBJECTS
    assert [row.where for row in found] == [f"{tmp_path}/f.jsonl:{line}" for line in (1, 3, 5)]
    array = json.dumps(OBJECTS, indent=indent).encode()
    found = list(rows(written(tmp_path, pack(mark + b" \n" + array + b"\n"), "f.json")))
    assert [row.value for row in found] == OBJECTS
    assert found[2].where == f"{tmp_path}/f.json, item 3"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=6), st.integers(1, 40), st.sampled_from([None, 1])
)
@settings(max_examples=100)
def test_any_cut_of_an_array_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory, values: list[dict[str, Any]], piece: int, indent: int | None
) -> None:
    path = written(tmp_path_factory.mktemp("cuts"), json.dumps(values, indent=indent))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_rows, "_PIECE", piece)
        assert [row.value for row in rows(path)] == values


def test_integers_beyond_pythons_limit_are_kept_as_text(tmp_path: Path) -> None:
    digits = "9" * 5000
    assert [row.value for row in rows(written(tmp_path, f'{{"a": {digits}, "b": 7}}\n'))] == [{"a": digits, "b": 7}]
    assert [row.value for row in rows(written(tmp_path, f'[{{"a": {digits}}}]'))] == [{"a": digits}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a": \n', r"f\.jsonl:2: not JSON \(.*\); each line must be one object, or the file one array"),
        (b'{"a": 1}\n7\n', r"f\.jsonl:2: expected a JSON object, got int"),
        (b'{"a":' + b"[" * 100_000 + b"\n", r"f\.jsonl:1: not JSON \(nested too deeply\)"),
        (b'{"a": "\xff"}\n', r"f\.jsonl: not UTF-8 .*; convert it"),
        ('{"a": 1}\n'.encode("utf-16"), r"f\.jsonl: not UTF-8"),
        (b'[{"a": 1}, 2]', r"f\.jsonl, item 2: expected a JSON object, got int"),
        (b'[{"a": 1} {"a": 2}]', r"f\.jsonl, item 1: expected a comma or the end of the array behind it, got"),
        (b'[{"a": 1}, {"a"', r"f\.jsonl, item 2: not JSON \(.*\), or the file is cut off"),
        (b'[{"a": 1}, {"a": tru, ' + b" " * 100 + b"}]", r"f\.jsonl, item 2: not JSON"),
        (b'[{"a":' + b"[" * 100_000, r"f\.jsonl, item 1: not JSON \(nested too deeply\)"),
        (b'[{"a": 1}', r"f\.jsonl, item 1: expected a comma or the end"),
        (gzip.compress(b'{"a": 1}\n' * 99, mtime=0)[:-9], r"f\.jsonl: a damaged gzip file"),
        (b"\x1f\x8bno gzip", r"f\.jsonl: (cannot be read|a damaged)"),
    ],
)
def test_what_cannot_be_read_is_named_by_file_and_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        list(rows(written(tmp_path, content)))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in [("pipe", "is a pipe or device"), (".", "is a folder"), ("none", "cannot be read")]:
        with pytest.raises(UserError, match=message):
            list(rows(tmp_path / name))


@pytest.mark.parametrize("form", ["lines", "array"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, form: str) -> None:
    row = json.dumps({"task_id": "a", "solution": "x" * 1000})
    content = f"[{', '.join([row] * 20_000)}]" if form == "array" else f"{row}\n" * 20_000
    path = written(tmp_path, content)
    tracemalloc.start()
    try:
        assert sum(1 for _ in rows(path)) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 1 << 21  # of 20 MB
    finally:
        tracemalloc.stop()
