"""Files that are either whole or absent, and that say where they come from.

Every output is written beside its place and renamed into it, so that its existence means completion, also after
kill -9. Parquet files carry their `Provenance`; reading one checks its columns and types and names the file and the
mend where something is off. A file's identity is `digest(path)`, a SHA-256 of its content.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
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
from maxk.artifacts.digests import canonical
from maxk.artifacts.packing import packed
from maxk.artifacts.records import Policy, Problem, Provenance, Task, Test
from maxk.errors import UserError, lack

_PROVENANCE_KEY = b"maxk"
# Characters of tests in a row group of problems. Groups are written and read one by one: a benchmark's tests can be
# gigabytes, and Arrow reads no nested column of more than 2 GiB at once.
_GROUP_SIZE, _GROUP_ROWS = 2**26, 1024
ALL = slice(None)


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it becomes `path`, on any error it is removed.

    The temporary file has one name and is locked, so a killed writer's is used again and two writers take turns. Raises
    UserError where the folder cannot be written or the disk is full.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = _locked(temporary)
    except OSError as error:
        raise _unwritten(target, error) from None
    try:
        yield temporary
        os.fsync(handle)
        temporary.replace(target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)  # while it is locked: later the name may be another writer's
        if isinstance(error, OSError):
            raise _unwritten(target, error) from error
        raise
    finally:
        handle.close()


def _locked(path: Path) -> IO[bytes]:
    """The emptied file at `path`, held by this process; waits for its turn."""
    while True:
        handle = path.open("ab")
        _lock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle.fileno()), path.stat()):
                handle.truncate(0)
                return handle
        handle.close()  # the one before us has moved the file to its place


def _unwritten(target: Path, error: OSError) -> UserError:
    mend = lack(OSError(error.errno, error.strerror)) or "mend the path and run again"
    return UserError(f"{target}: cannot be written ({error.strerror}), nothing was changed; {mend}")


@contextlib.contextmanager
def exclusive(folder: str | Path) -> Iterator[None]:
    """Holds a folder for this process; waits while another does, such as a job whose Snakemake was killed.

    The lock is the kernel's and ends with its holder, however that ends.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    with Path(folder, ".lock").open("ab") as handle:
        try:
            _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{folder}: another process is at work here; waiting for it to end", file=sys.stderr, flush=True)
            _lock(handle, fcntl.LOCK_EX)
        yield


_claims: list[IO[bytes]] = []  # open until this process ends


def claim(folder: str | Path) -> None:
    """Holds an experiment's folder for this run until the process ends; its jobs share the lock (common.smk).

    Raises UserError while another run, or a job that a killed run left behind, is at work there.
    """
    path = Path(folder, ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("ab")
    except OSError as error:
        raise _unwritten(path, error) from None
    try:
        _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        raise UserError(
            f"{folder}: another run is at work here, or a job that a killed run left (`fuser -v {path}` shows which); "
            "wait for it to end, then type the same command again"
        ) from None
    _lock(handle, fcntl.LOCK_SH)
    _claims.append(handle)


def _lock(handle: IO[bytes], how: int) -> None:
    """Takes a kernel lock; on a file system that has none, work goes on without."""
    try:
        fcntl.flock(handle, how)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise


def write_text(path: str | Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: str | Path) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run the stage that makes it") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); delete it and run again") from None


def digest(path: str | Path) -> str:
    """SHA-256 (16 hex digits) of a file's bytes."""
    with Path(path).open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()[:16]


# ------------------------------------------------------------------------------------------------ parquet
def write_table(path: str | Path, columns: Mapping[str, Sequence[Any]], schema: pa.Schema, source: Provenance) -> None:
    """Writes columns of `schema` with their provenance, atomically."""
    _write_groups(path, [columns], schema, source)


def _write_groups(
    path: str | Path, groups: Iterable[Mapping[str, Sequence[Any]]], schema: pa.Schema, source: Provenance
) -> None:
    """Writes row groups as they come; only one is held at a time."""
    labelled = schema.with_metadata({_PROVENANCE_KEY: canonical(dataclasses.asdict(source)).encode()})
    with atomic(path) as temporary, pq.ParquetWriter(temporary, labelled, compression="zstd") as writer:
        for columns in groups:
            writer.write_table(pa.table(dict(columns), schema=labelled))


def read_table(path: str | Path, schema: pa.Schema) -> pa.Table:
    """The table at `path`. Raises UserError where it is absent, damaged or not of `schema`."""
    file = _checked(path, schema)
    groups = [_group(file, number, schema) for number in range(file.num_row_groups)]
    return pa.concat_tables(groups) if groups else schema.empty_table()


def _checked(path: str | Path, schema: pa.Schema) -> pq.ParquetFile:
    """The file at `path`, with all columns of `schema`."""
    file = _opened(path)
    for field in schema:
        if field.name not in file.schema_arrow.names:
            raise UserError(f"{path}: column {field.name!r} ({field.type}) is missing; delete the file and run again")
        got = file.schema_arrow.field(field.name).type
        if got != field.type:
            raise UserError(
                f"{path}: column {field.name!r} is {got}, expected {field.type}; delete the file and run again"
            )
    return file


def _group(file: pq.ParquetFile, number: int, schema: pa.Schema) -> pa.Table:
    """A row group's columns of `schema`; others are not read."""
    return file.read_row_group(number, columns=schema.names).select(schema.names)


def read_provenance(path: str | Path) -> Provenance:
    """What made the parquet file at `path`."""
    metadata = _opened(path).schema_arrow.metadata or {}
    if _PROVENANCE_KEY not in metadata:
        raise UserError(f"{path}: does not say what made it; delete the file and run again")
    return Provenance(**json.loads(metadata[_PROVENANCE_KEY]))


def _opened(path: str | Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run the stage that makes it") from None
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: not a whole parquet file ({error}); delete it and run again") from None


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
    """The tasks of a split, in file order: no test is read. Raises UserError where the split is empty."""
    return [Task(**row) for row in _rows(path, records.TASK, split, ALL)]


def read_problems(path: str | Path, split: str, share: slice = ALL) -> list[Problem]:
    """The problems of a split, in file order, or a share of them. Raises UserError where the split is empty."""
    rows = _rows(path, records.PROBLEM, split, share)
    return [Problem(**{**row, "tests": [Test(**test) for test in row["tests"]]}) for row in rows]


def _rows(path: str | Path, schema: pa.Schema, split: str, share: slice) -> Iterator[dict[str, Any]]:
    """A share of a split's rows; those of other row groups are not read, and one group is held at a time."""
    splits = read_table(path, pa.schema([schema.field("split")])).column("split").to_pylist()
    positions = [position for position, one in enumerate(splits) if one == split]
    if not positions:
        raise UserError(f"{path}: holds no problem of split {split!r}")
    file, start = _checked(path, schema), 0
    for number in range(file.num_row_groups):
        stop = start + file.metadata.row_group(number).num_rows
        if rows := [position - start for position in positions[share] if start <= position < stop]:
            yield from _group(file, number, schema).take(rows).to_pylist()
        start = stop


def write_policy(path: str | Path, policy: Policy) -> None:
    write_json(path, dataclasses.asdict(policy))


def read_policy(path: str | Path) -> Policy:
    content = read_json(path)
    try:
        return Policy(**content)
    except TypeError as error:
        raise UserError(f"{path}: not a policy ({error}); delete it and run again") from None
