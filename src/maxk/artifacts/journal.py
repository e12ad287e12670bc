"""Append-only journals: store the finished parts of jobs that may be killed at any moment.

A journal is a folder of Arrow streams, one per job that appended to it. A batch of rows counts once it is complete:
readers ignore an incomplete batch that a killed job left at the end of its stream. Every stream carries its provenance;
streams made with other settings or inputs are refused. A column that may be null is null in streams of earlier versions
that lack it.

    journal = Journal(folder, records.DRAWN, source)
    for batch, environment in journal.read(): ...
    for columns in journal.record(parts, environment): ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from maxk.artifacts import files
from maxk.artifacts.provenance import require_equal
from maxk.artifacts.records import Provenance
from maxk.errors import UserError

Columns = Mapping[str, Sequence[Any]]
Environment = Mapping[str, Any]
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True)
class Journal:
    """The streams in `folder`: rows of `schema`, made with the experiment, stage, settings and inputs of `source`."""

    folder: Path
    schema: pa.Schema
    source: Provenance

    def read(self) -> Iterator[tuple[pa.RecordBatch, Environment]]:
        """All complete batches, each with the environment in which it was made; older streams first.

        Raises UserError if a stream has other columns, or was made with other settings or inputs.
        """
        return ((batch, environment) for _, batch, environment in in_order(self))

    def record(self, parts: Iterable[Columns], environment: Callable[[], Environment]) -> Iterator[Columns]:
        """Appends each part as one batch and yields it; `environment` is called when the first part arrives.

        Raises UserError if the disk is full or the folder cannot be written.
        """
        path, stream = self.folder / f"{time.time_ns()}-{uuid4().hex}.arrow", None  # `in_order` sorts by name
        for part in parts:
            try:
                stream = stream or self._stream(path, environment())
                stream.write_batch(pa.record_batch(dict(part), schema=self.schema))
            except OSError as error:
                raise files.unwritten(path, error) from None
            yield part

    def _stream(self, path: Path, environment: Environment) -> pa.ipc.RecordBatchStreamWriter:
        """A new stream. Its file is unbuffered, so a written batch survives the process."""
        labelled = files.labelled(self.schema, dataclasses.replace(self.source, environment=environment))
        path.parent.mkdir(parents=True, exist_ok=True)
        return pa.ipc.new_stream(pa.OSFile(str(path), "wb"), labelled, options=_COMPRESSED)

    def _checked(self, path: Path, schema: pa.Schema) -> Provenance:
        """The provenance of a stream, which must equal this journal's except for the environment."""
        found = files.provenance_of(path, schema)
        remedy = f"delete {path} and run again"
        require_equal(str(path), _identity(found), "the configuration", _identity(self.source), remedy)
        expected = [field for field in self.schema if field.name in schema.names or not field.nullable]
        if not schema.equals(pa.schema(expected)):
            raise UserError(f"{path}: its columns are not those of this version of maxk; {remedy}")
        return found


def _identity(source: Provenance) -> dict[str, Any]:
    """The provenance without the environment, which is only recorded."""
    return {key: value for key, value in dataclasses.asdict(source).items() if key != "environment"}


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The complete batches of a stream."""
    with pa.OSFile(str(path)) as file, contextlib.suppress(pa.ArrowException, OSError):  # cut off by a kill
        yield from pa.ipc.open_stream(file)


def in_order(*journals: Journal) -> Iterator[tuple[Journal, pa.RecordBatch, Environment]]:
    """What `Journal.read` yields, of several journals: their streams in the order in which they were begun."""
    streams = [(path, journal) for journal in journals for path in journal.folder.glob("*.arrow")]
    for path, journal in sorted(streams, key=lambda stream: stream[0].name):
        for batch in _batches(path):
            environment = journal._checked(path, batch.schema).environment
            yield journal, _completed(batch, journal.schema), environment


def _completed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`; null where the batch lacks one."""
    known = batch.schema.names
    columns = [batch.column(one.name) if one.name in known else pa.nulls(len(batch), one.type) for one in schema]
    return pa.record_batch(columns, schema=schema)


def common(environments: Iterable[Environment]) -> dict[str, Any]:
    """Merges environments: values that differ are listed, separated by " and "."""
    values: dict[str, list[Any]] = {}
    for environment in environments:
        for key, value in environment.items():
            known = values.setdefault(key, [])
            if value not in known:
                known.append(value)
    return {key: one[0] if len(one) == 1 else " and ".join(sorted(map(str, one))) for key, one in values.items()}
