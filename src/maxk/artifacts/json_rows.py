"""Reads the objects of an external JSON file one at a time, each with its location for error messages.

Reads JSON lines, of which one is in memory at a time, and JSON arrays of objects, which are read whole; plain or
gzipped, with or without a byte order mark. Unreadable input is a UserError that names the file and the line (or array
row). Standard library only.

    for row in rows(Path("samples.jsonl")):
        row.where, row.value    # "samples.jsonl:1", {"task_id": …}
"""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from maxk.artifacts.json_text import parsed
from maxk.errors import UserError, described, no_such_file

_PIECE = 1 << 16  # characters, among which an array must begin


class Row(NamedTuple):
    """A JSON object and its location: "samples.jsonl:3", or "samples.json (row 3)"."""

    where: str
    value: dict[str, Any]


def rows(path: Path, unique: bool = False, name: str = "") -> Iterator[Row]:
    """Yields the rows. Raises UserError if the file cannot be read or a row is not a JSON object.

    unique: refuse objects with duplicate keys, of which JSON readers keep only the last. name: of the file, in errors.
    """
    name = name or str(path)
    with _opened(path, name) as file:
        is_array = file.read(_PIECE).lstrip().startswith("[")
        file.seek(0)
        for where, value in _items(file, name, unique) if is_array else _lines(file, name, unique):
            if not isinstance(value, dict):
                raise UserError(f"{where}: expected a JSON object, got {described(value)}")
            yield Row(where, value)


def first_row(path: Path) -> Row:
    """The first row. Raises UserError if there is none."""
    if (first := next(rows(path), None)) is None:
        raise UserError(f"{path}: the file is empty")
    return first


@contextlib.contextmanager
def _opened(path: Path, name: str) -> Iterator[IO[str]]:
    try:
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "a pipe or device"
            raise UserError(f"{name}: is {kind}; give a regular file, because it is read several times")
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        opener: Any = gzip.open if zipped else open
        with opener(path, "rt", encoding="utf-8-sig") as file:
            yield file
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: not UTF-8 ({error}); fetch it again or convert it") from None
    except (EOFError, zlib.error) as error:
        raise UserError(f"{name}: a damaged gzip file ({error}); fetch it again") from None
    except FileNotFoundError:
        raise UserError(f"{name}: {no_such_file(path)}") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror or error})") from None


def _lines(file: IO[str], name: str, unique: bool) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(file, 1):
        if not line.isspace():
            where = f"{name}:{number}"
            try:
                yield where, parsed(line, unique)
            except ValueError as error:
                raise UserError(
                    f"{where}: not JSON ({_reason(error, line)}); each line must be one object, or the file one array"
                ) from None


def _reason(error: ValueError, line: str) -> str:
    """Why a line is no JSON, and at which column; the decoder counts lines within it, and its end as another line."""
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    return f"{error.msg}, column {min(error.pos, len(line.rstrip())) + 1}"


def _items(file: IO[str], name: str, unique: bool) -> Iterator[tuple[str, Any]]:
    try:
        items = parsed(file.read(), unique)
    except ValueError as error:
        raise UserError(f"{name}: not JSON ({error})") from None
    yield from ((f"{name} (row {number})", item) for number, item in enumerate(items, 1))


# ------------------------------------------------------------------------------------------------------ fields
def text(row: Row, key: str) -> str:
    """A text field of a row. Raises UserError if it is missing or contains a lone surrogate."""
    value = row.value.get(key)
    if not isinstance(value, str):
        found = f"got {described(value)}" if key in row.value else f"got the keys {', '.join(row.value) or 'none'}"
        raise UserError(f"{row.where}: {key} must be text, {found}")
    return encodable(value, f"{row.where}: {key}")


def first_given(row: Row, *keys: str) -> str:
    """The first of `keys` with a value that is not null, else the first that is present."""
    for key in keys:
        if row.value.get(key) is not None:
            return key
    return next(key for key in keys if key in row.value)


def encodable(value: str, where: str) -> str:
    """Returns the value. Raises UserError if it contains a lone surrogate, which JSON's escapes allow."""
    try:
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where} has half of a surrogate pair at character {error.start}: not valid text") from None
    return value


def identifier(row: Row, *keys: str) -> str:
    """The first of `keys` that a row has, as text. Raises UserError if it is neither text nor a whole number."""
    key = keys[0] if len(keys) == 1 else next((key for key in keys if key in row.value), keys[0])
    value = row.value.get(key)
    if isinstance(value, str) and value.isascii():
        return value
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UserError(f"{row.where}: {key} must be text or a whole number, got {described(value)}")
    return encodable(str(value), f"{row.where}: {key}")


def list_of(row: Row, key: str, of: type, optional: bool = False) -> list[Any]:
    """A list field; if `optional`, an empty list for a missing or null one."""
    value = row.value.get(key)
    if value is None and optional:
        return []
    if not isinstance(value, list) or not all(isinstance(item, of) for item in value):
        raise UserError(f"{row.where}: {key} must be a list of {of.__name__}, got {described(value)}")
    return value


def number(row: Row, key: str, default: float, most: float) -> float:
    """A positive number, or the default if it is missing or null."""
    value = row.value.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most or math.isnan(value):
        raise UserError(f"{row.where}: {key} must be a number above 0 and at most {most:.0f}, got {described(value)}")
    return value
