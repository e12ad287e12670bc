"""Reads and writes the files of an experiment: text, JSON, and parquet with its provenance; locks folders.

Every file is written beside its target and renamed, so that a file that exists is complete, also after kill -9. Reading
a parquet file checks its columns and types; the error names the file and the fix. A file's identity is `digest(path)`,
a SHA-256 of its content.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from maxk.artifacts import records
from maxk.artifacts.digests import canonical, digest_of
from maxk.artifacts.locking import flock
from maxk.artifacts.packing import packed
from maxk.artifacts.paths import Layout, command
from maxk.artifacts.records import Policy, Problem, Provenance, Task, Test
from maxk.errors import UserError, no_such_file, resource_error

_PROVENANCE_KEY = b"maxk"
# Characters of tests in a row group of problems. Groups are written and read one by one: a benchmark can have gigabytes
# of tests, and Arrow cannot read a nested column of more than 2 GiB at once.
_GROUP_SIZE, _GROUP_ROWS = 2**26, 1024
ALL = slice(None)
_REMEDY = "delete the file and run again"


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it replaces `path`, on any error it is removed.

    The temporary file has one name and is locked: a killed writer's file is reused, and two writers take turns. Raises
    UserError if the folder cannot be written or the disk is full.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = _locked(temporary)
    except OSError as error:
        raise unwritten(target, error) from None
    try:
        yield temporary
        os.fsync(handle)
        temporary.replace(target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)  # while it is locked: later the name may belong to another writer
        if isinstance(error, OSError):
            raise unwritten(target, error) from error
        raise
    finally:
        handle.close()


def _locked(path: Path) -> IO[bytes]:
    """The emptied file at `path`, locked by this process; waits for its turn."""
    while True:
        handle = path.open("ab")
        flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle.fileno()), path.stat()):
                handle.truncate(0)
                return handle
        handle.close()  # the previous writer has moved the file to its target


def unwritten(target: Path, error: OSError) -> UserError:
    """The error for a file that could not be written."""
    fix = resource_error(OSError(error.errno, error.strerror)) or "fix the path and run again"
    return UserError(f"{target}: cannot be written ({error.strerror}), nothing was changed; {fix}")


def lock(folder: str | Path, wait: bool = True) -> IO[bytes]:
    """Locks a folder until the returned handle is closed; use it as a context manager, or keep it.

    The lock is the kernel's, so it ends with this process however that ends. While another process holds it, waits;
    with `wait=False` raises UserError instead.
    """
    path = Path(folder, ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("ab")
    except OSError as error:
        raise unwritten(path, error) from None
    try:
        flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not wait:
            handle.close()
            raise UserError(
                f"{folder}: another run is using it (`fuser -v {path}` shows which); wait for it to end, then run the "
                "same command again"
            ) from None
        print(f"{folder}: waiting for another process that is using it", file=sys.stderr, flush=True)
        flock(handle, fcntl.LOCK_EX)
    return handle


def write_text(path: str | Path, text: str) -> None:
    """Writes a UTF-8 file atomically, as do all functions here that write."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: str | Path) -> Any:
    """The content of a JSON file. Raises UserError if the file is absent or damaged."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise absent(path) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); delete it and run again") from None


def absent(path: str | Path) -> UserError:
    """Names the missing file and, if it is in the folder of a run, the command that makes it."""
    layouts = (Layout(str(folder)) for folder in Path(path).parents if folder.name)
    run = next((layout for layout in layouts if Path(layout.config).is_file()), None)
    if run is None:
        return UserError(f"{path}: {no_such_file(path)}; check the path")
    return UserError(f"{path}: no such file; make it: `{command(run, str(path))}`")


def digest(path: str | Path) -> str:
    """SHA-256 (16 hex digits) of a file's bytes."""
    with Path(path).open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()[:16]


def digest_of_all(paths: Sequence[str | Path], known: str | Path) -> str:
    """Identifies files by their content and by their names below the folder that they share.

    `known` is a JSON file of digests found before: weights can be gigabytes, and every shard asks. A file is read again
    if its size, inode or times differ.
    """
    if not paths:
        return digest_of({})
    with lock(Path(known).parent):
        digests = read_json(known) if Path(known).exists() else {}
        now = {str(Path(path).resolve()): _stamp(path) for path in paths}
        for path, stamp in now.items():
            if digests.get(path, [None])[0] != stamp:
                digests[path] = [stamp, digest(path)]
        write_json(known, digests)
    folder = os.path.commonpath([Path(path).absolute().parent for path in paths])
    return digest_of({os.path.relpath(path, folder): digests[str(Path(path).resolve())][1] for path in paths})


def _stamp(path: str | Path) -> list[int]:
    """Values that change whenever a file is written or replaced."""
    status = Path(path).stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


# ------------------------------------------------------------------------------------------------ parquet
def write_table(path: str | Path, columns: Mapping[str, Sequence[Any]], schema: pa.Schema, source: Provenance) -> None:
    """Writes columns of `schema` with their provenance, atomically."""
    _write_groups(path, [columns], schema, source)


def _write_groups(
    path: str | Path, groups: Iterable[Mapping[str, Sequence[Any]]], schema: pa.Schema, source: Provenance
) -> None:
    """Writes row groups one by one; only one is in memory at a time."""
    own = labelled(schema, source)
    with atomic(path) as temporary, pq.ParquetWriter(temporary, own, compression="zstd") as writer:
        for columns in groups:
            writer.write_table(pa.table(dict(columns), schema=own))


def labelled(schema: pa.Schema, source: Provenance) -> pa.Schema:
    """The schema with the provenance in its metadata."""
    return schema.with_metadata({_PROVENANCE_KEY: canonical(dataclasses.asdict(source)).encode()})


def read_table(path: str | Path, schema: pa.Schema, remedy: str = _REMEDY) -> pa.Table:
    """The table at `path`. Raises UserError, which ends with `remedy`, if it is absent, damaged or not of `schema`."""
    file = _checked(path, schema, remedy)
    groups = [_group(file, number, schema) for number in range(file.num_row_groups)]
    return pa.concat_tables(groups) if groups else schema.empty_table()


def _checked(path: str | Path, schema: pa.Schema, remedy: str = _REMEDY) -> pq.ParquetFile:
    """The file at `path`, with all columns of `schema`."""
    file = _opened(path, remedy)
    for field in schema:
        if field.name not in file.schema_arrow.names:
            raise UserError(f"{path}: column {field.name!r} ({field.type}) is missing; {remedy}")
        got = file.schema_arrow.field(field.name).type
        if got != field.type:
            raise UserError(f"{path}: column {field.name!r} is {got}, expected {field.type}; {remedy}")
    return file


def _group(file: pq.ParquetFile, number: int, schema: pa.Schema) -> pa.Table:
    """The columns of `schema` in one row group."""
    return file.read_row_group(number, columns=schema.names).select(schema.names)


def read_provenance(path: str | Path, remedy: str = _REMEDY) -> Provenance:
    """The provenance of the parquet file at `path`. Raises UserError, which ends with `remedy`, if it has none."""
    return provenance_of(path, _opened(path, remedy).schema_arrow, remedy)


def provenance_of(path: str | Path, schema: pa.Schema, remedy: str = _REMEDY) -> Provenance:
    """The provenance in the schema of the file at `path`."""
    metadata = schema.metadata or {}
    if _PROVENANCE_KEY not in metadata:
        raise UserError(f"{path}: has no provenance; {remedy}")
    return Provenance(**json.loads(metadata[_PROVENANCE_KEY]))


def _opened(path: str | Path, remedy: str = _REMEDY) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise absent(path) from None
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: not a complete parquet file ({error}); {remedy}") from None


# ------------------------------------------------------------------------------------------------ records
def write_problems(path: str | Path, problems: Iterable[Problem], source: Provenance) -> None:
    groups = (_columns_of(group) for group in packed(problems, _size, _GROUP_SIZE, _GROUP_ROWS))
    _write_groups(path, groups, records.PROBLEM, source)


def _size(problem: Problem) -> int:
    return sum(len(stdin) + len(expected) for stdin, expected in problem.tests)


def _columns_of(problems: Sequence[Problem]) -> dict[str, list[Any]]:
    columns = {name: [getattr(problem, name) for problem in problems] for name in records.PROBLEM.names}
    columns["tests"] = [[test._asdict() for test in tests] for tests in columns["tests"]]
    return columns


def read_tasks(path: str | Path, split: str) -> list[Task]:
    """The tasks of a split, in file order, without their tests. Raises UserError if the split is empty."""
    return [Task(**row) for row in _rows(path, records.TASK, split, ALL)]


def read_problems(path: str | Path, split: str, part: slice = ALL) -> list[Problem]:
    """The problems of a split, in file order, or a slice of them. Raises UserError if the split is empty."""
    rows = _rows(path, records.PROBLEM, split, part)
    return [Problem(**{**row, "tests": [Test(**test) for test in row["tests"]]}) for row in rows]


def _rows(path: str | Path, schema: pa.Schema, split: str, part: slice) -> Iterator[dict[str, Any]]:
    """A slice of a split's rows; reads only the row groups that hold them, one at a time."""
    splits = read_table(path, pa.schema([schema.field("split")])).column("split").to_pylist()
    positions = [position for position, one in enumerate(splits) if one == split]
    if not positions:
        raise UserError(f"{path}: contains no problem of split {split!r}")
    file, start = _checked(path, schema), 0
    for number in range(file.num_row_groups):
        stop = start + file.metadata.row_group(number).num_rows
        if rows := [position - start for position in positions[part] if start <= position < stop]:
            yield from _group(file, number, schema).take(rows).to_pylist()
        start = stop


def write_policy(path: str | Path, policy: Policy) -> None:
    write_json(path, dataclasses.asdict(policy))


def read_policy(path: str | Path) -> Policy:
    """The policy in a `policy.json`. Raises UserError if the file is absent, damaged, or of something else."""
    content = read_json(path)
    try:
        return Policy(**content)
    except TypeError as error:
        raise UserError(f"{path}: not a policy ({error}); delete it and run again") from None
