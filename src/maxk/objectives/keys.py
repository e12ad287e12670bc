"""Keys of an objective, checked by their annotations: numbers are positive and finite, all else is as annotated."""

from __future__ import annotations

import math
from types import NoneType
from typing import Any, Literal, get_args, get_origin

ALLOWED = {int: "an integer above 0", float: "a number above 0", bool: "true or false", NoneType: "null"}


def accepts(annotation: Any, value: Any) -> bool:
    """Whether a key annotated with int, float, bool, None, a Literal, another class or a union takes the value."""
    if get_origin(annotation) is Literal:
        return value in get_args(annotation)
    if get_args(annotation):
        return any(accepts(part, value) for part in get_args(annotation))
    if annotation in (int, float):
        return isinstance(value, int | annotation) and not isinstance(value, bool) and 0 < value < math.inf
    return isinstance(value, annotation)


def allowed(annotation: Any) -> str:
    """The values that `accepts` takes, in words."""
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    if get_args(annotation):
        return " or ".join(map(allowed, get_args(annotation)))
    return ALLOWED.get(annotation, getattr(annotation, "__name__", str(annotation)))
