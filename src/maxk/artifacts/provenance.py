"""Compares the provenance of files that are combined.

Every parquet file on disk carries its `records.Provenance`. A stage that combines files refuses a mixture with one line
that names both files and the first key that differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from maxk.errors import UserError


def differences(first: Any, second: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, value in first, value in second) for every difference of nested mappings; absent is None."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for part in dict.fromkeys([*first, *second]):
            yield from differences(first.get(part), second.get(part), f"{key}.{part}" if key else str(part))
    elif first != second:
        yield key, first, second


def require_equal(path: str, content: Any, other_path: str, other: Any, remedy: str) -> None:
    """Raises UserError with both files and the first differing key, unless the contents are equal."""
    for key, value, other_value in differences(content, other):
        raise UserError(
            f"{path} and {other_path} do not belong together: {key} is {value!r} in one and {other_value!r} "
            f"in the other; {remedy}"
        )
