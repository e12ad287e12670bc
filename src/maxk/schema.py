"""What every part of the configuration is made of: the base class of sections, and the number types."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator


def _no_flag(value: Any) -> Any:
    """Python and pydantic take `true` for 1."""
    if isinstance(value, bool):
        raise ValueError(f"expected an integer, got {str(value).lower()}")
    return value


Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, BeforeValidator(_no_flag), Field(ge=1)]
Seed = Annotated[int, BeforeValidator(_no_flag), Field(ge=0, lt=2**32)]  # what NumPy and transformers take
StopString = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class UnknownKey(NamedTuple):
    """Stands for the value of a key that a section does not have, so that pydantic's error knows those that it has."""

    allowed: list[str]


def _kinds(annotation: Any) -> set[Any]:
    """The types that a field takes, without their conditions."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return set().union(*map(_kinds, get_args(annotation)))
    return {annotation}


class Section(BaseModel):
    """A part of the configuration: immutable, no key beyond those named, and no flag where a number belongs."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _mark_unknown(cls, content: Any) -> Any:
        if not isinstance(content, Mapping):
            return content
        allowed = list(cls.model_fields)
        return {
            key: cls._given(key, value) if key in allowed else UnknownKey(allowed) for key, value in content.items()
        }

    @classmethod
    def _given(cls, key: str, value: Any) -> Any:
        """The value; a flag for a number, which pydantic would take for 1 or 0, as text, which it refuses."""
        kinds = _kinds(cls.model_fields[key].annotation) if isinstance(value, bool) else set()
        return str(value).lower() if kinds & {int, float} and bool not in kinds else value
