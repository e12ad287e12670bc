"""pydantic's errors in one line each: the key, what was got, what is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from maxk.errors import suggest
from maxk.schema import UnknownKey

# Keys that were renamed: a configuration that still uses the old name is refused, and the error names the new one.
RENAMED = {
    "training.completions": "num_generations",
    "training.microbatch_completions": "per_device_batch_size",
}

_MAPPING = "expected keys and values"
# pydantic speaks of tuples and instances of classes; users write YAML.
_PLAIN = {
    "tuple_type": "expected a list",
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "too_short": "at least {min_length} needed",
    "int_parsing": "expected an integer",
    "int_type": "expected an integer",
    "int_from_float": "expected an integer",
    "string_pattern_mismatch": "expected the form {pattern}",
    "union_tag_not_found": "needs the key {discriminator}",
}


def brief(value: Any) -> str:
    """A value for readers: a mapping as `key value, key value`, a list with commas, a flag as `yes` or `no`."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {brief(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(brief, value))
    return str(value) if not isinstance(value, bool) else "yes" if value else "no"


def together(faults: Iterable[str]) -> str:
    """Faults as one line; those that differ in the key only are written once, with three keys at most."""
    keys: dict[str, list[str]] = {}
    for fault in faults:
        key, colon, what = fault.partition(": ")
        keys.setdefault(what if colon else fault, []).append(key if colon else "")
    return "; ".join(": ".join(filter(None, (_some(found), what))) for what, found in keys.items())


def _some(keys: Sequence[str]) -> str:
    return ", ".join(keys) if len(keys) <= 3 else f"{', '.join(keys[:2])} and {len(keys) - 2} others"


def explain(error: ErrorDetails, prefix: str = "") -> str:
    """One pydantic error as `key: what is wrong, what was got`."""
    key = prefix + ".".join(_part(part) for part in _without_source(error["loc"]) if part != "[key]")
    if isinstance(error["input"], UnknownKey):
        return _unknown(key, str(error["loc"][-1]), error["input"].allowed)
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        return f"{key}: missing"
    if error["type"] != "value_error":
        message = _PLAIN.get(error["type"], message[0].lower() + message[1:]).format(**error.get("ctx", {}))
        message = f"{message}, got {error['input']!r}"
    return f"{key}: {message}" if key else message


def _part(part: Any) -> str:
    """A part of a key; quoted where it could not be told from its neighbours: an empty one, or one with dots."""
    return repr(part) if part == "" or "." in str(part) else str(part)


def _unknown(key: str, name: str, allowed: Sequence[str]) -> str:
    first, *inner = name.split(".")
    if first in allowed and all(inner) and inner:
        return f"{key}: unknown key; nest it: `{first}: {{{': {'.join(inner)}: …{'}' * len(inner)}`"
    if renamed := next((new for old, new in RENAMED.items() if f".{key}".endswith(f".{old}")), None):
        return f"{key}: renamed to {renamed}"
    return f"{key}: unknown key{suggest(name, allowed)}; allowed: {', '.join(allowed)}"


def _without_source(location: Sequence[Any]) -> list[Any]:
    """A location without the names of classes that pydantic adds to it.

    They are those of a `source` (base.hub.model, datasets.NAME.mbpp.form) and of the class of a corpus, which follows
    base.pretrain.corpus.
    """
    place = {"base": 1, "datasets": 2}.get(location[0] if location else "", len(location))
    short = [*location[:place], *location[place + 1 :]]
    return [*short[:2], *short[3:]] if short[:2] == ["base", "corpus"] else short
