"""A verdict cache on disk, shared by processes: grading the same submission again costs one look-up.

The key of a verdict hashes everything it depends on: the program, every test, limits, checker and comparison rule, the
interpreter, the tier, and a fingerprint of the grader's own sources (`GRADER_VERSION`), so a changed grader never uses
old verdicts. Verdicts that depend on the machine's load (a wall-clock stop) or on a failure of the harness are never
stored.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from maxk.errors import UserError, resource_error
from maxk.grading.verdicts import Verdict

_QUERY_KEYS = 500  # SQLite's oldest limit on variables is 999
_BUSY_TIMEOUT_S = 60.0


class VerdictCache:
    """Verdicts by key in one SQLite file (write-ahead log: many processes may read and write it at once).

    path: the file; made if missing. Raises UserError if it cannot be opened as a verdict store. If it fails
    later (full disk, damaged file), this is reported once and the cache is no longer used: grading goes on without it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._failed = False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._database = _opened(self.path)
        except (sqlite3.Error, OSError) as error:
            fix = resource_error(error) or "delete it: it is only a cache"
            raise UserError(f"the verdict cache {self.path} cannot be used ({error}); {fix}") from error

    def __enter__(self) -> VerdictCache:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def __len__(self) -> int:
        count: int = self._database.execute("SELECT count(*) FROM graded").fetchone()[0]
        return count

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Verdict]:
        """The stored verdicts of `keys`, with one query per few hundred keys."""
        found: dict[bytes, Verdict] = {}
        with self._told():
            for start in range(0, len(keys), _QUERY_KEYS):
                part = keys[start : start + _QUERY_KEYS]
                marks = ",".join("?" * len(part))
                query = f"SELECT key, statuses, cpu_s, outputs FROM graded WHERE key IN ({marks})"
                for key, statuses, cpu_s, outputs in self._database.execute(query, part):
                    words = (tuple(column.split(" ")) for column in (statuses, outputs))
                    found[key] = Verdict(next(words), tuple(json.loads(cpu_s)), next(words), cached=True)
        return found

    def put_many(self, verdicts: Mapping[bytes, Verdict]) -> None:
        """Stores verdicts in one transaction; keys that are already stored keep their verdicts."""
        rows = [
            (key, " ".join(v.statuses), json.dumps([round(s, 6) for s in v.cpu_s]), " ".join(v.outputs))
            for key, v in verdicts.items()
        ]
        if self._failed:
            return
        with self._told(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany("INSERT OR IGNORE INTO graded VALUES (?, ?, ?, ?)", rows)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if not self._failed:
                print(f"the verdict cache {self.path} failed ({error}); work goes on without it", file=sys.stderr)
            self._failed = True


def _opened(path: Path) -> sqlite3.Connection:
    """Retries by itself: SQLite does not wait for its turn to switch to the write-ahead log, which jobs that start
    together do at the same time.
    """
    deadline = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            return _made(path)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _made(path: Path) -> sqlite3.Connection:
    # One thread at a time uses the connection, but not always the one that opened it: training grades in a thread.
    database = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")  # a crash may lose verdicts, never corrupt them
        database.execute(
            "CREATE TABLE IF NOT EXISTS graded "
            "(key BLOB PRIMARY KEY, statuses TEXT, cpu_s TEXT, outputs TEXT) WITHOUT ROWID"
        )
    except sqlite3.Error:
        database.close()
        raise
    return database
