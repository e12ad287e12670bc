"""Raw rows of data files, each column validated when it is read.

A source declares its raw row as a TypedDict (of `typing_extensions`: pydantic needs it before Python 3.12). Validation
is strict: no text becomes a number. It is also lazy, so that a row which an earlier filter drops never ends a run and
its tests are never decoded. Parquet and Arrow files are read in small batches, JSON lines line by line.

    class Row(TypedDict):
        task_id: int
        test_list: list[Text]

    for row in table("mbpp", section, [["full/*.parquet"]]).rows(Row): ...

Errors are UserErrors that name file, row, column, what was expected and what was found.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypeVar, cast, get_origin, get_type_hints

import pyarrow as pa
from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from maxk.artifacts import json_rows
from maxk.artifacts.json_text import parsed
from maxk.data import hub
from maxk.data.hub import Layouts, Place
from maxk.errors import UserError, described

Row = TypeVar("Row")
OURS = ("file_split", "row_number")  # columns that no file has
BATCH = 64  # rows; LiveCodeBench has rows of several MB
Record = tuple[str, Mapping[str, Any]]  # the position of a row in its file, and its columns


def _encodable(text: str) -> str:
    if not text.isascii():
        text.encode()  # a UnicodeEncodeError, which is a ValueError, for half a surrogate pair
    return text


Text = Annotated[str, AfterValidator(_encodable)]
"""Text that can be written to a file: JSON's `\\ud83d` escapes can make text that cannot."""


# ------------------------------------------------------------------------------------------------------------- tables
@dataclass(frozen=True)
class Table:
    """Data files that hold rows of one schema.

    All rows have two further columns: `file_split`, which is `split`, and `row_number`, from 1 on over all files.
    """

    where: str
    paths: Sequence[Path]
    split: str = ""
    remote: bool = False

    def rows(self, schema: type[Row]) -> Iterator[Row]:
        """The rows, as mappings with the columns that `schema`, a TypedDict, declares."""
        declared = Schema.of(schema)
        for number, (where, record) in enumerate(self._records(list(declared.adapters)), 1):
            ours = dict(zip(OURS, (self.split, number), strict=True))
            columns = ChainMap(ours, record)  # type: ignore[arg-type]
            yield cast(Row, LazyRow(where, columns, declared, self.remote))

    def _records(self, columns: Sequence[str]) -> Iterator[Record]:
        for path in self.paths:
            file = self.where if self.where.endswith(path.name) else f"{self.where}, {path.name}"
            yield from _records(file, path, columns)


def table(name: str, place: Place, layouts: Layouts, split: str = "") -> Table:
    """The rows at `place`. `layouts` are alternatives: each is a list of file patterns that all must match."""
    local = Path(place.location).expanduser().exists()
    where = f"datasets.{name}: {place.location}"
    return Table(where, hub.files(name, place, layouts), split, remote=not local)


@dataclass(frozen=True)
class Schema:
    """The columns that a TypedDict declares."""

    adapters: Mapping[str, TypeAdapter[Any]]
    required: Sequence[str]

    @classmethod
    def of(cls, row: Any) -> Schema:
        hints = get_type_hints(row, include_extras=True)
        optional = [name for name, hint in hints.items() if get_origin(hint) is NotRequired or not row.__total__]
        types = {name: hint.__args__[0] if get_origin(hint) is NotRequired else hint for name, hint in hints.items()}
        required = [name for name in hints if name not in optional and name not in OURS]
        return cls({name: TypeAdapter(type_) for name, type_ in types.items()}, required)


class LazyRow(Mapping[str, Any]):
    """The declared columns of a row, validated when they are read."""

    def __init__(self, where: str, columns: Mapping[str, Any], schema: Schema, remote: bool) -> None:
        self.where = where
        self._columns, self._schema, self._remote = columns, schema, remote

    @property
    def columns(self) -> list[str]:
        """All columns of the file, declared or not."""
        return [column for column in self._columns if column not in OURS]

    def __getitem__(self, column: str) -> Any:
        """The validated value. Raises UserError if the column is missing or of another type."""
        if column not in self._columns:
            raise self._lacks(column)
        try:
            value = self._columns[column]
            return self._schema.adapters[column].validate_python(value, strict=True)
        except ValidationError as error:
            raise self.fault(explain(column, error.errors()[0])) from None
        except UnicodeDecodeError as error:
            raise self.fault(f"column {column!r} is not UTF-8 ({error})") from None

    def get(self, column: str, default: Any = None) -> Any:
        """The validated value, or `default` if the row has no such column."""
        if column in self:
            return self[column]
        return default

    def __contains__(self, column: object) -> bool:
        return column in self._schema.adapters and column in self._columns

    def __iter__(self) -> Iterator[str]:
        return (column for column in self._schema.adapters if column in self._columns)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _lacks(self, column: str) -> UserError:
        """Names all columns that are missing, so that a changed schema is seen at once."""
        found = self.columns
        missing = [name for name in self._schema.required if name not in self] or [column]
        named = ", ".join(f"no column {name!r}{_renamed(name, found)}" for name in missing)
        return self.fault(f"{named}; it has {', '.join(found) or 'none'}")

    def fault(self, what: str) -> UserError:
        """The error that says what is wrong with this row."""
        advice = "; pin the revision that this loader was written for" if self._remote else ""
        return UserError(f"{self.where}: {what}{advice} (docs/datasets.md)")


def explain(column: str, error: ErrorDetails) -> str:
    """A pydantic error in a column: where in it, what was expected, what was found."""
    key = ".".join(map(str, (column, *error["loc"])))
    if error["type"] == "missing":
        parent = ".".join(map(str, (column, *error["loc"][:-1])))
        name, found = str(error["loc"][-1]), list(error["input"])
        return f"column {parent!r} lacks {name!r}{_renamed(name, found)}; it has {', '.join(map(str, found)) or 'none'}"
    if error["type"] == "extra_forbidden":
        return f"column {key!r}: unknown key"
    if error["type"] == "value_error":
        return f"column {key!r}: {error['msg'].removeprefix('Value error, ')}, got {described(error['input'])}"
    return f"column {key!r} {error['msg'].removeprefix('Input ')}, got {described(error['input'])}"


def _renamed(name: str, found: Any) -> str:
    near = difflib.get_close_matches(name, [key for key in found if isinstance(key, str)], n=1)
    return f" (renamed to {near[0]!r}?)" if near else ""


# -------------------------------------------------------------------------------------------------------------- files
def _records(file: str, path: Path, columns: Sequence[str]) -> Iterator[Record]:
    if path.suffix.lower() in (".parquet", ".arrow"):
        return _arrow_records(file, path, columns)
    return json_rows.rows(path, unique=True, name=file)


def _arrow_records(file: str, path: Path, columns: Sequence[str]) -> Iterator[Record]:
    """Rows in batches, of which only the declared columns are read and only the used values are converted."""
    number = itertools.count(1)
    try:
        for names, batch in _batches(path, columns):
            for index in range(batch.num_rows):
                yield f"{file} (row {next(number)})", _ArrowRow(names, batch, index)
    except (pa.ArrowException, OSError) as error:
        kind = path.suffix.removeprefix(".").lower()
        raise UserError(f"{file} cannot be read as {kind} ({hub.first_line(error)}); fetch it again") from error


def _batches(path: Path, columns: Sequence[str]) -> Iterator[tuple[Sequence[str], pa.RecordBatch]]:
    """The names of a file's columns with each of its batches."""
    if path.suffix.lower() == ".arrow":  # what `datasets.Dataset.save_to_disk` writes
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            for batch in stream:
                yield stream.schema.names, batch
        return
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        names = file.schema_arrow.names
        present = [column for column in columns if column in names]
        for batch in file.iter_batches(batch_size=BATCH, columns=present):
            yield names, batch


class _ArrowRow(Mapping[str, Any]):
    """One row of a batch; values are converted when they are read."""

    def __init__(self, names: Sequence[str], batch: pa.RecordBatch, index: int) -> None:
        self._names, self._batch, self._index = names, batch, index

    def __getitem__(self, column: str) -> Any:
        if column not in self._names:
            raise KeyError(column)
        return self._batch.column(column)[self._index].as_py()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


# --------------------------------------------------------------------------------------------------------------- JSON
def parse_json_column(text: str) -> Any:
    """JSON in a column of text, whose own texts are checked as `Text` is. Raises ValueError."""
    content = parsed(text)
    if re.search(r"\\u[dD]", text):
        json.dumps(content, ensure_ascii=False).encode()
    return content
