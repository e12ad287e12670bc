"""Parses JSON of unknown origin, for data files and for files of samples alike. Standard library only.

An integer with more digits than Python parses becomes text; everything else that is not JSON is a ValueError.
"""

from __future__ import annotations

import json
from typing import Any


def parsed(text: str, unique: bool = False) -> Any:
    """The value of `text`. Raises ValueError.

    unique: refuse a key that appears twice in an object; otherwise the last one counts.
    """
    try:
        return _DECODERS[unique].decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # perhaps Python's limit on digits
        return _ANY_LENGTH[unique].decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _integer(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits


def _with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} appears twice")
    return found


_DECODERS = {False: json.JSONDecoder(), True: json.JSONDecoder(object_pairs_hook=_with_unique_keys)}
_ANY_LENGTH = {  # slower, for integers of any length
    False: json.JSONDecoder(parse_int=_integer),
    True: json.JSONDecoder(parse_int=_integer, object_pairs_hook=_with_unique_keys),
}
