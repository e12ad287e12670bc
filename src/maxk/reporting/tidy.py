"""Tidy CSV files: one observation a row, blank where something does not apply."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from maxk.artifacts import files


def write_csv(path: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes rows that share their keys, atomically. Floats keep six significant digits or decimals."""
    listed = list(rows)
    out = io.StringIO()
    if listed:
        writer = csv.DictWriter(out, listed[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _text(value) for key, value in row.items()} for row in listed)
    files.write_text(path, out.getvalue())


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
