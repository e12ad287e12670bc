"""A benchmark's raw rows: from the hub, a mirror or local files, with the columns checked.

Files of the pinned revision are fetched into the Hugging Face cache; no loading script of a repository is ever run.
With HF_HUB_OFFLINE=1 the cache must hold them. A branch or tag is resolved to its commit first, with a warning
(`commit_of`). A local folder is laid out like the hub's repository, or the location is a single file. What is missing,
renamed or of another type is a UserError that says which column, what was expected and what is there. Null may be any
column that is not named as `required`, and any field of a struct, but no item of a list.

    table = hub.table("mbpp", config, [["full/*.parquet"]])
    for row in table.rows({"task_id": int, "test_list": [str]}): ...
"""

from __future__ import annotations

import difflib
import fnmatch
import gzip
import itertools
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from maxk.data.sections import Benchmark
from maxk.errors import UserError

# str, int, float or bool; [kind] for a list; {name: kind} for a struct; object for anything. None: only nulls seen.
Kind = Any
DATA_SUFFIXES = (".parquet", ".json", ".jsonl", ".json.gz", ".jsonl.gz")


class Place(Protocol):
    """A section of the configuration that says where rows are."""

    @property
    def location(self) -> str: ...

    @property
    def revision(self) -> str | None: ...


class Table(Protocol):
    """Rows of one schema."""

    @property
    def columns(self) -> Sequence[str]: ...

    def rows(self, columns: Mapping[str, Kind], required: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        """The rows with just these columns. Raises UserError where one is missing, of another kind or null."""


@dataclass(frozen=True)
class ParquetTable:
    """Parquet files, read by `datasets`: memory-mapped, and the schema is checked before the first row."""

    where: str
    dataset: Any

    @property
    def columns(self) -> Sequence[str]:
        return list(self.dataset.column_names)

    def rows(self, columns: Mapping[str, Kind], required: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        for column, expected in columns.items():
            if column not in self.columns:
                raise _missing(self.where, column, expected, self.columns)
            got = kind_of(self.dataset.features[column])
            if not _fits(got, expected):
                raise _mismatch(self.where, column, expected, _shown(got))
        for number, row in enumerate(self.dataset.select_columns(list(columns)), 1):
            yield _whole(f"{self.where} (row {number})", row, columns, required)


@dataclass(frozen=True)
class JsonTable:
    """JSON files: a row a line, or one list. Read row by row with Python's own reader and checked as the rows come.

    `datasets` infers one type a column over the whole file: it refuses files with a mixed column that nobody asked
    for (MapCoder's `sample_io`), and turns text that looks like a date into a date.
    """

    where: str
    paths: Sequence[Path]

    @property
    def columns(self) -> Sequence[str]:
        return list(next(self._read(), ("", {}))[1])

    def rows(self, columns: Mapping[str, Kind], required: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        for where, row in self._read():
            for column, expected in columns.items():
                if column not in row:
                    raise _missing(where, column, expected, list(row))
                if not _value_fits(row[column], expected):
                    raise _mismatch(where, column, expected, _described(row[column]))
            yield _whole(where, row, columns, required)

    def _read(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Rows with where they stand."""
        for path in self.paths:
            file = self.where if self.where.endswith(path.name) else f"{self.where}, {path.name}"
            number = 0
            try:
                for number, row in enumerate(_json_rows(path), 1):
                    if not isinstance(row, dict):
                        raise UserError(f"{file}: row {number} is {_described(row)}, expected an object")
                    yield f"{file} (row {number})", row
            except (OSError, EOFError, ValueError) as error:
                reason = _first_line(error)
                raise UserError(
                    f"{file} cannot be read as json after row {number} ({reason}); fetch it again"
                ) from error


def _json_rows(path: Path) -> Iterator[Any]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        first = next(lines, "")
        if first.lstrip().startswith("["):
            yield from json.loads(first + lines.read())
            return
        for line in itertools.chain([first], lines):
            if line.strip():
                yield json.loads(line)


def _whole(where: str, row: Mapping[str, Any], columns: Mapping[str, Kind], required: Sequence[str]) -> dict[str, Any]:
    """The row's `columns`. Raises UserError where a required one, or an item of a list, is null."""
    for column, kind in columns.items():
        if (row[column] is None and column in required) or (kind is not object and _has_hole(row[column])):
            raise UserError(f"{where}: column {column!r} is null or holds null in a list; drop the row, or {_PIN}")
    return {column: row[column] for column in columns}


def _has_hole(value: Any, in_list: bool = False) -> bool:
    if isinstance(value, list):
        return any(_has_hole(item, in_list=True) for item in value)
    if isinstance(value, dict):
        return any(_has_hole(item, in_list) for item in value.values())
    return value is None and in_list


def _missing(where: str, column: str, expected: Kind, columns: Sequence[str]) -> UserError:
    near = difflib.get_close_matches(column, columns, n=1)
    hint = f" (renamed to {near[0]!r}?)" if near else ""
    return UserError(
        f"{where} has no column {column!r}{hint}: expected {_shown(expected)}, got the columns {', '.join(columns)}; "
        f"{_PIN}"
    )


def _mismatch(where: str, column: str, expected: Kind, got: str) -> UserError:
    return UserError(f"{where}: column {column!r} is {got}, expected {_shown(expected)}; {_PIN}")


_PIN = "pin the revision that this loader was written for (docs/datasets.md)"


def table(name: str, place: Place, layouts: Sequence[Sequence[str]]) -> Table:
    """The rows at `place`. `layouts` are alternatives: each a list of file patterns that all must match."""
    paths = files(name, place, layouts)
    where = f"datasets.{name}: {place.location}"
    if paths[0].suffix != ".parquet":
        return JsonTable(where, paths)
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)  # it logs what it raises as well
    try:
        dataset = datasets.load_dataset("parquet", data_files=[str(path) for path in paths], split="train")
    except Exception as error:
        raise UserError(f"{where} cannot be read as parquet ({_first_line(error.__cause__ or error)})") from error
    return ParquetTable(where, dataset)


def split_tables(
    name: str, config: Benchmark, layouts: Callable[[str], Sequence[Sequence[str]]]
) -> Iterator[tuple[str, Table]]:
    """The table of each split that the configuration asks for; a single local file is one pool without splits."""
    if Path(config.location).expanduser().is_file():
        yield "", table(name, config, [])
        return
    for split in ("train", "test"):
        if config.has(split):
            yield split, table(name, config, layouts(split))


# ------------------------------------------------------------------------------------------------------------- files
def files(name: str, place: Place, layouts: Sequence[Sequence[str]]) -> list[Path]:
    """Local paths of the files that hold the rows, fetched where they are on the hub."""
    local = Path(place.location).expanduser()
    if local.is_file():
        return [local]
    folder = local if local.is_dir() else _fetch(name, place, layouts)
    present = sorted(path for path in folder.rglob("*") if path.is_file() and path.name.endswith(DATA_SUFFIXES))
    for patterns in layouts:
        found = [[p for p in present if fnmatch.fnmatch(str(p.relative_to(folder)), pattern)] for pattern in patterns]
        if all(found):
            paths = list(dict.fromkeys(path for matched in found for path in matched))
            _check_whole(name, paths)
            return paths
    wanted = " or ".join(" and ".join(patterns) for patterns in layouts)
    there = ", ".join(str(path.relative_to(folder)) for path in present[:5]) or "none"
    raise UserError(f"datasets.{name}: {place.location} lacks data files {wanted}; it holds {there}")


def _check_whole(name: str, paths: Sequence[Path]) -> None:
    """Raises UserError where a file says `-of-00039` and not all of these are there."""
    parts: dict[str, set[int]] = {}
    for path in paths:
        if match := re.fullmatch(r"(.*-)(\d+)(-of-\d+)[^/]*", str(path)):
            parts.setdefault(match[1] + match[3], set()).add(int(match[2]))
    for series, numbers in parts.items():
        count = int(series.rsplit("-", 1)[1])
        if absent := sorted(set(range(count)) - numbers):
            raise UserError(
                f"datasets.{name}: part {absent[0]} of {count} is missing beside {paths[0]}; fetch the data again"
            )


def _fetch(name: str, place: Place, layouts: Sequence[Sequence[str]]) -> Path:
    """The snapshot of the hub repository in the local cache, downloaded where it is not there yet."""
    where = place.location
    if where.startswith((".", "/", "~")) or where.endswith(DATA_SUFFIXES):
        raise UserError(f"datasets.{name}.location: no file or folder {where}")
    if place.revision is None:
        raise UserError(
            f"datasets.{name}.revision: missing; pin a commit of {where}, or set location to a local folder"
        )
    patterns = [pattern for layout in layouts for pattern in layout]
    return _snapshot(f"datasets.{name}", where, place.revision, "dataset", patterns)


def _snapshot(key: str, where: str, revision: str, kind: str, patterns: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        folder = snapshot_download(where, repo_type=kind, revision=revision, allow_patterns=list(patterns))
    except HFValidationError:
        raise UserError(f"{key}.location: {where!r} is neither a file, a folder nor a hub id") from None
    except RevisionNotFoundError:
        raise UserError(
            f"{key}.revision: {where} has no revision {revision} (any more); pin another commit, or "
            "set location to a mirror or a local copy"
        ) from None
    except RepositoryNotFoundError:
        raise UserError(f"{key}.location: the hub has no public {kind} {where}; log in or name a mirror") from None
    except Exception as error:
        raise UserError(
            f"{key}: {where} at {revision} cannot be fetched ({_first_line(error)}); it is not in the "
            "local cache either. Go online (unset HF_HUB_OFFLINE), or set location to a mirror or a local copy"
        ) from error
    return Path(folder)


def commit_of(key: str, where: str, revision: str | None, kind: str = "dataset") -> str | None:
    """The commit that a revision of a hub repository stands for now; None where there is nothing to resolve.

    A branch or tag can move, so that the same configuration gives other data: it is warned of.
    """
    if revision is None or Path(where).expanduser().exists():
        return None
    if re.fullmatch(r"[0-9a-f]{40}", revision):
        return revision
    commit = _snapshot(key, where, revision, kind, []).name
    warn_of_movable(key, where, revision, commit)
    return commit


def warn_of_movable(key: str, where: str, revision: str, commit: str) -> None:
    """Says that a branch or tag was named where only a commit stays what it is."""
    print(
        f"warning: {key}.revision: {revision!r} of {where} is no commit and can change; it is {commit} now: pin that "
        "to repeat this run",
        file=sys.stderr,
    )


# ------------------------------------------------------------------------------------------------------------- kinds
def kind_of(feature: Any) -> Kind:
    """The kind of a feature of `datasets`."""
    import datasets

    if isinstance(feature, Mapping):
        return {name: kind_of(child) for name, child in feature.items()}
    if isinstance(feature, datasets.ClassLabel):
        return int
    if isinstance(feature, datasets.List | datasets.LargeList):
        return [kind_of(feature.feature)]
    dtype = str(getattr(feature, "dtype", feature))
    for prefix, kind in (("bool", bool), ("int", int), ("uint", int), ("float", float), ("large_string", str)):
        if dtype.startswith(prefix):
            return kind
    return {"string": str, "null": None}.get(dtype, dtype)


def _value_fits(value: Any, expected: Kind) -> bool:
    if value is None or expected is object:
        return True
    if isinstance(expected, list):
        return isinstance(value, list) and all(_value_fits(item, expected[0]) for item in value)
    if isinstance(expected, Mapping):
        return isinstance(value, dict) and all(n in value and _value_fits(value[n], k) for n, k in expected.items())
    return type(value) is expected or (expected is float and type(value) is int)


def _fits(got: Kind, expected: Kind) -> bool:
    if got is None or expected in (got, object):
        return True
    if isinstance(expected, list):
        return isinstance(got, list) and _fits(got[0], expected[0])
    if isinstance(expected, Mapping):
        return isinstance(got, Mapping) and all(_fits(got.get(name, ""), kind) for name, kind in expected.items())
    return expected is float and got is int


def _shown(kind: Kind) -> str:
    if isinstance(kind, list):
        return f"list[{_shown(kind[0])}]"
    if isinstance(kind, Mapping):
        return "{" + ", ".join(f"{name}: {_shown(child)}" for name, child in kind.items()) + "}"
    return "null" if kind is None else getattr(kind, "__name__", str(kind))


def _described(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '…'}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
