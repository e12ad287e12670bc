"""Encoded test cases: what is read, and that a pickle can run nothing."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
import raw

from maxk.artifacts import packed_tests
from maxk.data.testcases import decode, function_name
from maxk.errors import UserError


def encoded(content: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(content))).decode()


def test_plain_and_packed_columns_are_read_in_order() -> None:
    found = decode("d/1", [json.dumps(raw.cases([("1\r\n2", "3\r\n")])), raw.packed(raw.cases(raw.PAIRS))])
    assert found.tests() == [("1\n2", "3\n"), *raw.PAIRS]
    assert not found.functional


class Poison:
    """Writes a file when it is unpickled by an ordinary unpickler."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_poisoned_pickle_is_refused_and_does_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    content = encoded(Poison(mark))
    pickle.loads(zlib.decompress(base64.b64decode(content)))
    assert mark.exists()
    mark.unlink()
    with pytest.raises(UserError, match=r"d/1: its test cases cannot be decoded .*only text is admitted"):
        decode("d/1", [content])
    assert not mark.exists()


@pytest.mark.parametrize("callable_", [eval, exec, print, json.loads, zlib.decompress, dict, bytearray])
def test_no_callable_at_all_is_admitted(callable_: Any) -> None:
    with pytest.raises(UserError, match="only text is admitted"):
        decode("d/1", [encoded(callable_)])


@pytest.mark.parametrize(
    "column",
    [
        "",
        "null",
        "{}",
        "[1]",
        '[{"input": "1"}]',
        '[{"input": 1, "output": "2", "testtype": "stdin"}]',
        "not base64!",
        base64.b64encode(b"not zlib").decode(),
        base64.b64encode(zlib.compress(b"not a pickle")).decode(),
        base64.b64encode(zlib.compress(b"")).decode(),
        base64.b64encode(zlib.compress(pickle.dumps("[]"))[:-8]).decode(),
        encoded(["a list"]),
        encoded("not json"),
        json.dumps(raw.cases([("[1", "2")], "functional")),
    ],
)
def test_what_cannot_be_decoded_names_the_row(column: str) -> None:
    with pytest.raises(UserError, match="d/1: its test cases cannot be decoded") as error:
        decode("d/1", [column]).tests()
    assert "\n" not in str(error.value)


def test_a_bomb_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_tests, "MAX_DECODED_BYTES", 1000)
    with pytest.raises(UserError, match="longer than 1000 bytes"):
        decode("d/1", [encoded("x" * 10_000)])


@pytest.mark.parametrize("metadata", ["", "{}", "[]", "not json"])
def test_a_function_without_a_name_is_an_error(metadata: str) -> None:
    with pytest.raises(UserError, match=r"d/1: a functional row .* has no func_name"):
        function_name("d/1", metadata)
