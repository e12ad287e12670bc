"""Where two things that must agree do not: which key differs, and which files hold it.

Every parquet file carries its `records.Provenance`. Stages that combine files compare the parts that must be
equal and refuse a mixture in one line that names both files and the first differing key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from maxk.errors import UserError


def differences(first: Any, second: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, value in first, value in second) wherever nested mappings differ; absent is None."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for part in dict.fromkeys([*first, *second]):
            yield from differences(first.get(part), second.get(part), f"{key}.{part}" if key else str(part))
    elif first != second:
        yield key, first, second


def require_equal(path: str, content: Any, other_path: str, other: Any, remedy: str) -> None:
    """Raises UserError naming both files and the first differing key, unless the contents agree."""
    for key, value, other_value in differences(content, other):
        raise UserError(
            f"{path} and {other_path} do not belong together: {key} is {value!r} in one and {other_value!r} "
            f"in the other; {remedy}"
        )
