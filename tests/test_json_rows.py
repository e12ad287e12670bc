"""JSON files from elsewhere: read, or refused by file and line."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from maxk.artifacts.json_rows import rows
from maxk.errors import UserError

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
    assert found[2].where == f"{tmp_path}/f.json (row 3)"


def test_integers_beyond_pythons_limit_are_kept_as_text(tmp_path: Path) -> None:
    digits = "9" * 5000
    assert [row.value for row in rows(written(tmp_path, f'{{"a": {digits}, "b": 7}}\n'))] == [{"a": digits, "b": 7}]
    assert [row.value for row in rows(written(tmp_path, f'[{{"a": {digits}}}]'))] == [{"a": digits}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'{"a": 1}\n{"a": \n',
            r"f\.jsonl:2: not JSON \(Expecting value, column 6\); each line must be one object, or the file one array",
        ),
        (b'{"a": 1} {"a": 2}\n', r"f\.jsonl:1: not JSON \(Extra data, column 10\)"),
        (b'{"a": 1}\n7\n', r"f\.jsonl:2: expected a JSON object, got int"),
        (b'{"a":' + b"[" * 100_000 + b"\n", r"f\.jsonl:1: not JSON \(nested too deeply\)"),
        (b'{"a": "\xff"}\n', r"f\.jsonl: not UTF-8 .*; fetch it again or convert it"),
        ('{"a": 1}\n'.encode("utf-16"), r"f\.jsonl: not UTF-8"),
        (b'[{"a": 1}, 2]', r"f\.jsonl \(row 2\): expected a JSON object, got int"),
        (b'[{"a": 1} {"a": 2}]', r"f\.jsonl: not JSON \(Expecting ',' delimiter.*\)"),
        (b'[{"a": 1}, {"a"', r"f\.jsonl: not JSON \(.*\)"),
        (b'[{"a":' + b"[" * 100_000, r"f\.jsonl: not JSON \(nested too deeply\)"),
        (gzip.compress(b'{"a": 1}\n' * 99, mtime=0)[:-9], r"f\.jsonl: a damaged gzip file"),
        (b"\x1f\x8bno gzip", r"f\.jsonl: (cannot be read|a damaged)"),
    ],
)
def test_what_cannot_be_read_is_named_by_file_and_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        list(rows(written(tmp_path, content)))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in [("pipe", "is a pipe or device"), (".", "is a folder"), ("none", "none: no such file")]:
        with pytest.raises(UserError, match=message):
            list(rows(tmp_path / name))


def test_memory_does_not_grow_with_the_number_of_lines(tmp_path: Path) -> None:
    row = json.dumps({"task_id": "a", "solution": "x" * 1000})
    path = written(tmp_path, f"{row}\n" * 20_000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in rows(path)) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 1 << 21  # of 20 MB
    finally:
        tracemalloc.stop()
