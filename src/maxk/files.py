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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from maxk import records
from maxk.errors import UserError, lack
from maxk.records import Policy, Problem, Provenance, Test

_PROVENANCE_KEY = b"maxk"
# Arrow reads no nested column of more than 2 GiB at once, and a benchmark's tests can be more: row groups stay below.
_ROW_GROUP_BYTES = 2**30


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


def canonical(content: Any) -> str:
    """JSON with sorted keys: equal content gives equal text."""
    return json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest_of(content: Any) -> str:
    """SHA-256 (16 hex digits) of JSON content."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()[:16]


def digest(path: str | Path) -> str:
    """SHA-256 (16 hex digits) of a file's bytes."""
    with Path(path).open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()[:16]


# ------------------------------------------------------------------------------------------------ parquet
def write_table(
    path: str | Path,
    columns: Mapping[str, Sequence[Any]],
    schema: pa.Schema,
    source: Provenance,
    rows_a_group: int | None = None,
) -> None:
    """Writes columns of `schema` with their provenance, atomically."""
    metadata = {_PROVENANCE_KEY: canonical(dataclasses.asdict(source)).encode()}
    table = pa.table(dict(columns), schema=schema).replace_schema_metadata(metadata)
    with atomic(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", row_group_size=rows_a_group)


def read_table(path: str | Path, schema: pa.Schema) -> pa.Table:
    """The table at `path`. Raises UserError where it is absent, damaged or not of `schema`."""
    file = _opened(path)
    groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    table = pa.concat_tables(groups) if groups else file.schema_arrow.empty_table()
    for field in schema:
        if field.name not in table.column_names:
            raise UserError(f"{path}: column {field.name!r} ({field.type}) is missing; delete the file and run again")
        got = table.schema.field(field.name).type
        if got != field.type:
            raise UserError(
                f"{path}: column {field.name!r} is {got}, expected {field.type}; delete the file and run again"
            )
    return table.select(schema.names)


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
def write_problems(path: str | Path, problems: Sequence[Problem], source: Provenance) -> None:
    columns = {
        name: [getattr(problem, name) for problem in problems] for name in records.PROBLEM.names if name != "tests"
    }
    columns["tests"] = [[test._asdict() for test in problem.tests] for problem in problems]
    largest = max((sum(len(stdin) + len(expected) for stdin, expected in p.tests) for p in problems), default=0)
    write_table(path, columns, records.PROBLEM, source, max(1, min(1024, _ROW_GROUP_BYTES // max(largest, 1))))


def read_problems(path: str | Path, split: str) -> list[Problem]:
    """The problems of a split, in file order. Raises UserError where the split is empty."""
    rows = [row for row in read_table(path, records.PROBLEM).to_pylist() if row["split"] == split]
    if not rows:
        raise UserError(f"{path}: holds no problem of split {split!r}")
    return [Problem(**{**row, "tests": [Test(**test) for test in row["tests"]]}) for row in rows]


def write_policy(path: str | Path, policy: Policy) -> None:
    write_json(path, dataclasses.asdict(policy))


def read_policy(path: str | Path) -> Policy:
    content = read_json(path)
    try:
        return Policy(**content)
    except TypeError as error:
        raise UserError(f"{path}: not a policy ({error}); delete it and run again") from None
