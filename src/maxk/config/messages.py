"""pydantic's errors in one line each: the key, what was got, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

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
    "union_tag_not_found": "needs the key {discriminator}",
}


def together(faults: Iterable[str]) -> str:
    """Faults as one line; those that differ in the key only are written once, with three keys at most."""
    keys: dict[str, list[str]] = {}
    for fault in faults:
        key, colon, what = fault.partition(": ")
        keys.setdefault(what if colon else fault, []).append(key if colon else "")
    return "; ".join(": ".join(filter(None, (_some(found), what))) for what, found in keys.items())


def _some(keys: Sequence[str]) -> str:
    return ", ".join(keys) if len(keys) <= 3 else f"{', '.join(keys[:2])} and {len(keys) - 2} others"


def explain(error: ErrorDetails, model: type[BaseModel], prefix: str = "") -> str:
    """One pydantic error as `key: what is wrong, what was got`."""
    location, source = _without_source(error["loc"])
    key = prefix + ".".join(str(part) for part in location if part != "[key]")
    if error["type"] == "extra_forbidden":
        if renamed := next((new for old, new in RENAMED.items() if f".{key}".endswith(f".{old}")), None):
            return f"{key}: renamed to {renamed}"
        allowed = _fields_at(model, location[:-1], source)
        known = f"; allowed: {', '.join(allowed)}" if allowed else ""
        return f"{key}: unknown key{suggest(str(location[-1]), allowed)}{known}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return f"{key}: {message}" if key else message
    if error["type"] == "missing":
        return f"{key}: missing"
    message = _PLAIN.get(error["type"], message[0].lower() + message[1:]).format(**error.get("ctx", {}))
    return f"{key}: {message}, got {error['input']!r}"


def _without_source(location: Sequence[Any]) -> tuple[list[Any], str | None]:
    """A location without the `source` that pydantic adds to it (base.hub.model, datasets.NAME.mbpp.form)."""
    place = {"base": 1, "datasets": 2}.get(location[0] if location else "")
    parts = list(location)
    if place is None or len(parts) <= place:
        return parts, None
    return parts, str(parts.pop(place))


def _fields_at(model: type[BaseModel], location: Sequence[Any], source: str | None) -> list[str]:
    """Names of the keys allowed at `location`, found by walking the JSON schema."""
    schema = model.model_json_schema()
    candidates: list[dict[str, Any]] = [schema]
    for part in location:
        candidates = [c for node in candidates for c in _children(schema, node, part)]
    allowed = [_resolve(schema, node).get("properties", {}) for node in candidates]
    names = [name for one in allowed if one.get("source", {}).get("const", source) == source for name in one]
    return list(dict.fromkeys(names))


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
    return node


def _children(schema: dict[str, Any], node: dict[str, Any], part: Any) -> list[dict[str, Any]]:
    node = _resolve(schema, node)
    if part in node.get("properties", {}):
        child = node["properties"][part]
    elif isinstance(part, int) and "items" in node:
        child = node["items"]
    else:
        child = node.get("additionalProperties") or next(iter(node.get("patternProperties", {}).values()), {})
    if not isinstance(child, dict):
        return []
    child = _resolve(schema, child)
    return child.get("oneOf") or child.get("anyOf") or [child]


def suggest(got: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    nearest = difflib.get_close_matches(got, list(known), n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""
