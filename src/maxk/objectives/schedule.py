"""k as a function of training progress.

    k = Schedule("linear", start=4, end=1)
    [k(progress) for progress in (0, 0.5, 1)]  # [4, 3, 1]

The paper leaves open whether k should change during training (Section 5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeGuard, get_args

from maxk.errors import unknown

Shape = Literal["linear", "cosine", "step"]


@dataclass(frozen=True)
class Schedule:
    """k as a function of progress in [0, 1], rounded to the nearest integer (halves up).

    linear    start + progress·(end − start)
    cosine    the same along (1 − cos π·progress)/2: slow at both ends
    step      start while progress < at, then end
    """

    __pydantic_config__: ClassVar[Any] = {"use_attribute_docstrings": True}  # read by pydantic where there is one

    schedule: Shape
    """Shape of the way from `start` to `end`."""

    start: int
    """k when training starts."""

    end: int
    """k when training ends."""

    at: float | None = None
    """Progress in (0, 1) at which `step` switches (default 0.5); only for `step`."""

    def __post_init__(self) -> None:
        if self.schedule not in get_args(Shape):
            raise ValueError(f"unknown schedule of k {self.schedule!r}{unknown(self.schedule, get_args(Shape))}")
        if not (_is_k(self.start) and _is_k(self.end)):
            raise ValueError(f"start and end of k must be integers above 0, got {self.start!r} and {self.end!r}")
        if self.at is not None and self.schedule != "step":
            raise ValueError(f"a {self.schedule} schedule of k has no `at`; only a step has")
        if self.at is not None and not (isinstance(self.at, float) and 0 < self.at < 1):
            raise ValueError(f"`at` of a step in k must lie between 0 and 1, got {self.at!r}")

    def __call__(self, progress: float) -> int:
        progress = min(max(progress, 0.0), 1.0)
        along = {
            "linear": progress,
            "cosine": (1 - math.cos(math.pi * progress)) / 2,
            "step": float(progress >= (self.at or 0.5)),
        }[self.schedule]
        return math.floor(self.start + along * (self.end - self.start) + 0.5)

    def __str__(self) -> str:
        """`linear 4→1`."""
        return f"{self.schedule} {self.start}→{self.end}"

    @property
    def values(self) -> tuple[int, ...]:
        """Every k that the schedule can take, ascending."""
        low, high = sorted((self.start, self.end))
        return tuple(sorted({low, high})) if self.schedule == "step" else tuple(range(low, high + 1))

    @property
    def mapping(self) -> dict[str, Any]:
        """The mapping that `parse` reads back."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def parse(k: Any) -> int | Schedule:
    """An integer above 0, or a schedule from {"schedule": …, "start": …, "end": …}; ValueError for all else."""
    if isinstance(k, Mapping):
        names = [field.name for field in fields(Schedule)]
        for name in k:
            if name not in names:
                raise ValueError(f"a schedule of k has no key {name!r}{unknown(name, names)}")
        for name in names[:3]:
            if name not in k:
                raise ValueError(f"a schedule of k needs {name!r}, got {dict(k)!r}")
        return Schedule(**k)
    if isinstance(k, Schedule) or _is_k(k):
        return k
    raise ValueError(f"k must be an integer above 0, or a schedule, got {k!r}")


def _is_k(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
