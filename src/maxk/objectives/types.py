"""Names, parameters and labels of the training objectives: the single source of truth, without torch.

The config schema and the Snakefile validate objectives long before a process imports torch; `maxk.objectives`
holds the mathematics under the same names (a test asserts that both agree).

    validate({"type": "bon_loo1", "k": 4})  # ValueError says what is wrong
    list(ks({"type": "bon_loo1", "k": {"schedule": "linear", "start": 4, "end": 1}}))  # [1, 2, 3, 4]
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

BASE_LABEL = "Base model"


@dataclass(frozen=True)
class Parameter:
    """A parameter of an objective besides `type` and `k`: its default, and which values it takes."""

    default: Any
    allowed: str
    accepts: Callable[[Any], bool]


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


CLAMP_DELTA = Parameter(0.2, "a number above 0", _is_positive)
CLAMP_LOG_RATIO = Parameter(
    math.log(1.2),
    "a number above 0, or null for no clamp",
    lambda value: value is None or _is_positive(value),
)
VARIANT = Parameter("surrogate", "surrogate or literal", lambda value: value in ("surrogate", "literal"))
# max@k of 1[r = 1] in place of r, that is pass@k; `grpo_binary` is the same for GRPO.
BINARY = {"binary": Parameter(False, "true or false", lambda value: isinstance(value, bool))}


@dataclass(frozen=True)
class ObjectiveType:
    """What the rest of the project must know of a type without computing anything."""

    label: str  # row name in tables: the paper's, where the paper has the row
    uses_k: bool = False
    off_policy: bool = False  # wants the current log-ratios of the whole group
    batch_scaled: bool = False  # its scale is that of all groups of the batch: they must come together
    flat_at_n: bool = False  # no gradient at k = n: all members of a group get the same weight
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


OBJECTIVE_TYPES: Mapping[str, ObjectiveType] = {
    "grpo": ObjectiveType("GRPO"),
    "grpo_binary": ObjectiveType("GRPO, binary reward"),
    "bon_max_second": ObjectiveType("BoN-max second"),
    "bon_max_mean": ObjectiveType("BoN-max mean"),
    "bon_loo1": ObjectiveType("BoN LOO-1", uses_k=True, parameters=BINARY),
    "bon_loo2": ObjectiveType("BoN leave-two-out", uses_k=True, flat_at_n=True, parameters=BINARY),
    "bon_mean": ObjectiveType("BoN mean", uses_k=True, flat_at_n=True, parameters=BINARY),
    "bon_offpolicy": ObjectiveType(
        "Off-policy BoN (paper)",
        uses_k=True,
        off_policy=True,
        batch_scaled=True,
        flat_at_n=True,
        parameters={"clamp_delta": CLAMP_DELTA, "variant": VARIANT},
    ),
    "bon_offpolicy_exact": ObjectiveType(
        "Off-policy BoN, exact", uses_k=True, off_policy=True, parameters={"clamp_log_ratio": CLAMP_LOG_RATIO}
    ),
    "bon_loo1_firstorder": ObjectiveType(
        "Off-policy BoN, first-order LOO-1",
        uses_k=True,
        off_policy=True,
        parameters={"clamp_log_ratio": CLAMP_LOG_RATIO},
    ),
}


@dataclass(frozen=True)
class Schedule:
    """k as a function of training progress in [0, 1]; a plain k is the constant schedule.

    The paper leaves open whether to move from max@k to max@1 during training or the other way (Section 5).

    constant  start
    linear    start + progress·(end − start), rounded to the nearest integer (halves up)
    cosine    the same along (1 − cos π·progress)/2: slow at both ends
    step      start while progress < at, then end
    """

    kind: str
    start: int
    end: int
    at: float = 0.5

    def __call__(self, progress: float) -> int:
        progress = min(max(progress, 0.0), 1.0)
        along = {
            "constant": 0.0,
            "linear": progress,
            "cosine": (1 - math.cos(math.pi * progress)) / 2,
            "step": float(progress >= self.at),
        }[self.kind]
        return math.floor(self.start + along * (self.end - self.start) + 0.5)

    def __str__(self) -> str:
        """`4`, or `linear 4→1`."""
        return str(self.start) if self.kind == "constant" else f"{self.kind} {self.start}→{self.end}"

    @property
    def values(self) -> Iterable[int]:
        """Every k that the schedule can take."""
        if self.kind in ("linear", "cosine"):
            return range(min(self.start, self.end), max(self.start, self.end) + 1)
        return sorted({self.start, self.end})


# Keys of each kind of schedule beside `schedule`; `at` alone has a default.
SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "constant": ("start",),
    "linear": ("start", "end"),
    "cosine": ("start", "end"),
    "step": ("start", "end", "at"),
}


def kind_of(spec: Mapping[str, Any]) -> ObjectiveType:
    """The type that `spec` names; ValueError with the nearest name where it is none."""
    name = spec.get("type")
    if not isinstance(name, str) or name not in OBJECTIVE_TYPES:
        raise ValueError(f"unknown objective type {name!r}{_nearest(name, OBJECTIVE_TYPES)}")
    return OBJECTIVE_TYPES[name]


def validate(spec: Mapping[str, Any]) -> None:
    """Raise ValueError unless `spec` ({"type": …, "k": …, …}) names a known objective with allowed values."""
    kind, name = kind_of(spec), spec["type"]
    allowed = (*(("k",) if kind.uses_k else ()), *kind.parameters)
    for key, value in spec.items():
        if key == "type":
            continue
        if key not in allowed:
            raise ValueError(f"{name} has no parameter {key!r}{_nearest(key, allowed)}")
        if key in kind.parameters and not kind.parameters[key].accepts(value):
            raise ValueError(f"{name}: {key} must be {kind.parameters[key].allowed}, got {value!r}")
    if kind.uses_k:
        schedule(spec)


def parameters(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a valid spec besides `type` and `k`, defaults filled in."""
    return {key: spec.get(key, p.default) for key, p in OBJECTIVE_TYPES[spec["type"]].parameters.items()}


def schedule(spec: Mapping[str, Any]) -> Schedule:
    """The schedule of k in a spec: an integer, or {"schedule": kind, "start": …, "end": …}."""
    if "k" not in spec:
        raise ValueError(f"{spec['type']} needs k")
    k = spec["k"]
    if not isinstance(k, Mapping):
        k = {"schedule": "constant", "start": k}
    kind = k.get("schedule")
    if not isinstance(kind, str) or kind not in SCHEDULES:
        raise ValueError(f"{spec['type']}: unknown schedule of k {kind!r}{_nearest(kind, SCHEDULES)}")
    for key in k:
        if key not in ("schedule", *SCHEDULES[kind]):
            raise ValueError(f"{spec['type']}: a {kind} schedule has no {key!r}{_nearest(key, SCHEDULES[kind])}")
    ends = [k.get(key) for key in SCHEDULES[kind] if key != "at"]
    if not all(isinstance(end, int) and not isinstance(end, bool) and end >= 1 for end in ends):
        raise ValueError(
            f"{spec['type']}: k must be an integer of at least 1 (or a schedule of such), got {spec['k']!r}"
        )
    at = k.get("at", 0.5)
    if not (_is_positive(at) and at < 1):
        raise ValueError(f"{spec['type']}: `at` of a step schedule must lie between 0 and 1, got {at!r}")
    return Schedule(kind, ends[0], ends[-1], float(at))


def ks(spec: Mapping[str, Any]) -> Iterable[int]:
    """Every k that a valid spec can take during training; none for types without k."""
    return schedule(spec).values if OBJECTIVE_TYPES[spec["type"]].uses_k else ()


def _nearest(got: Any, known: Iterable[str]) -> str:
    known = sorted(known)
    near = difflib.get_close_matches(str(got), known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known) or 'none'}"
