"""What all objectives share: the class to derive from, the registry by `type`, and `make`.

An objective is one frozen dataclass: its fields are the keys of its section in a config, its `advantages` the formula.

    @dataclass(frozen=True, kw_only=True)
    class Shifted(Objective):
        '''A_i = r_i − shift.'''

        type = "shifted"
        label = "Shifted rewards"

        shift: float = 0.5
        '''What is subtracted from every reward.'''

        def advantages(self, rewards: Tensor) -> Tensor:
            return rewards - self.shift

A class that declares a `type` is registered under it. A class without one, or a function from rewards to advantages, is
named by its import path: `type: my_package.my_module:Shifted`.

Only calling an objective imports torch: the configuration, which every command reads, imports this module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

from maxk.errors import unknown
from maxk.objectives import schedule
from maxk.objectives.keys import accepts, allowed
from maxk.objectives.schedule import Schedule
from maxk.objectives.subsets import require_tensors, unusable_groups
from maxk.plugins import imported

if TYPE_CHECKING:
    from torch import Tensor

OBJECTIVES: dict[str, type[Objective]] = {}  # by `type`


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Rewards (and log-ratios) of groups → advantages, with the keys of the objective bound.

    Capabilities are class variables, so that they can be asked for without an instance.
    """

    __pydantic_config__: ClassVar[Any] = {"use_attribute_docstrings": True}  # read by pydantic where there is one

    type: ClassVar[str]  # its name in a config; by default the import path
    label: ClassVar[str]  # row name in tables: the paper's, where the paper has the row; by default the class's name
    off_policy: ClassVar[bool] = False  # `advantages` takes the current log-ratios of whole groups
    batch_scaled: ClassVar[bool] = False  # the scale is that of the batch: all groups must come in one call
    best_of_group: ClassVar[bool] = False  # without a key k, but trained for the best of the whole group: k = n
    zero_gradient_at_n: ClassVar[bool] = False  # at k = n all members of a group get the same weight
    plain_rewards: ClassVar[bool] = False  # a penalty subtracted from the rewards would leave them without meaning

    def __init_subclass__(cls) -> None:
        declared = dict(vars(cls))
        cls.label = declared.get("label", cls.__name__)
        cls.type = declared.get("type", f"{cls.__module__}:{cls.__qualname__}")
        if "type" in declared:
            taken = OBJECTIVES.setdefault(cls.type, cls)
            if taken.__qualname__ != cls.__qualname__:
                raise ValueError(f"objective type {cls.type!r} is taken by {taken.__module__}:{taken.__qualname__}")

    def __post_init__(self) -> None:
        annotations = self.annotations()
        for name, value in self.keys.items():
            if not accepts(annotations[name], value):
                raise ValueError(f"{self.type}: {name} must be {allowed(annotations[name])}, got {value!r}")

    @classmethod
    @functools.cache
    def annotations(cls) -> dict[str, Any]:
        """The types of the class's variables, its keys among them."""
        return get_type_hints(cls)

    @property
    def keys(self) -> dict[str, Any]:
        """The keys with their values, `type` excluded."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def ks(self) -> tuple[int, ...]:
        """Every k that training can meet; none for objectives without k."""
        return ()

    @property
    def log_ratio_range(self) -> tuple[float, float]:
        """The log-ratios that the objective does not clamp."""
        return -float("inf"), float("inf")

    def advantages(self, rewards: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The formula: `rewards` [groups, n] in float64, n ≥ 2, finite, in any order → the same shape.

        An objective with the key `k` also takes the current `k`, an off-policy one `log_ratios` [groups, n].
        """
        raise NotImplementedError

    def __call__(self, rewards: Tensor, log_ratios: Tensor | None = None, progress: float = 0.0) -> Tensor:
        """Advantages of `rewards` [groups, n], same dtype and device; float64 inside.

        `log_ratios` are those of whole completions (token log-ratios summed), None where the samples are on-policy;
        on-policy objectives ignore them. `progress` in [0, 1] drives a schedule of k. A group with a reward that is NaN
        (it could not be graded) or infinite gets all-zero advantages, because every subset that holds this member lacks
        a maximum; so does a group with such a log-ratio, and a group of one. Finite values beyond the dtype saturate at
        its largest. Raises TypeError for what is no tensor, ValueError for shapes, for k > n and for a formula that
        returns NaN or infinity.
        """
        require_tensors(rewards, log_ratios)
        import torch

        rewards = rewards.detach()
        n = _group_size(rewards, log_ratios)
        arguments = self._arguments(progress, n)
        advantages = torch.zeros_like(rewards)
        if not self.off_policy:
            log_ratios = None
        usable = ~unusable_groups(rewards, log_ratios)
        if n == 1 or not usable.any():
            return advantages
        if self.off_policy:
            drift = torch.zeros_like(rewards) if log_ratios is None else log_ratios.detach().to(rewards.device)
            arguments["log_ratios"] = drift[usable].double()
        given = self._values(rewards[usable].double())
        result = self.advantages(given, **arguments)
        self._require_numbers(result, given)
        limit = torch.finfo(rewards.dtype).max
        advantages[usable] = result.clamp(-limit, limit).to(rewards.dtype)
        return advantages

    def _require_numbers(self, result: Tensor, rewards: Tensor) -> None:
        """Raises ValueError for advantages of another shape than the rewards, and for those that are no numbers."""
        if result.shape != rewards.shape:
            raise ValueError(f"{self.type} returned {list(result.shape)} for rewards {list(rewards.shape)}")
        finite = result.isfinite()
        if not finite.all():
            first = rewards[~finite.all(dim=1)][0].tolist()
            raise ValueError(f"{self.type} returned {result[~finite][0].item()} for rewards {first}")

    def _arguments(self, progress: float, n: int) -> dict[str, Any]:
        """What `advantages` takes beside rewards and log-ratios."""
        return {}

    def _values(self, rewards: Tensor) -> Tensor:
        """What `advantages` takes for rewards."""
        return rewards


@dataclass(frozen=True, kw_only=True)
class MaxAtK(Objective):
    """An objective for the best of k: its `advantages` take the current k."""

    k: int | Schedule
    """Size of the subsets whose maximum counts: an integer, or a schedule over the training run."""

    binary: bool = False
    """Replace r by 1[r = 1]: only a full pass counts, and max@k becomes pass@k."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "k", schedule.parse(self.k))
        except ValueError as error:
            raise ValueError(f"{self.type}: {error}") from None
        super().__post_init__()

    @property
    def ks(self) -> tuple[int, ...]:
        return self.k.values if isinstance(self.k, Schedule) else (self.k,)

    def k_at(self, progress: float) -> int:
        """k at a progress in [0, 1]."""
        return self.k(progress) if isinstance(self.k, Schedule) else self.k

    def _arguments(self, progress: float, n: int) -> dict[str, Any]:
        k = self.k_at(progress)
        if k > n:
            raise ValueError(f"k = {k} with n = {n} (completions a group); 1 ≤ k ≤ n is needed")
        return {"k": k}

    def _values(self, rewards: Tensor) -> Tensor:
        return (rewards == 1).double() if self.binary else rewards


def make(config: Mapping[str, Any] | str | Callable[..., Any]) -> Objective:
    """An objective from a config entry, its type alone, or a function from rewards to advantages.

    An objective is returned as it is. A `k` given to a type without one is ignored, so that all types can be made with
    one k for comparison. Raises ValueError for unknown types and keys and for values that are not allowed, TypeError
    for what is none of these.
    """
    if isinstance(config, Objective):
        return config
    if callable(config):
        return _class_of(config)()
    spec = _entry(config)
    kind = kind_of(spec.pop("type", None))
    if not uses_k(kind):
        spec.pop("k", None)
    require_known(kind, spec)
    missing = [field.name for field in fields(kind) if field.default is MISSING and field.name not in spec]
    if missing:
        keys = "".join(f", {name!r}: …" for name in [*spec, *missing])
        raise ValueError(f"{kind.type} needs {', '.join(missing)}: {{'type': {kind.type!r}{keys}}}")
    return kind(**spec)


def _entry(config: Any) -> dict[str, Any]:
    """A config entry, or one of a type alone, as a dictionary of its own."""
    if isinstance(config, str):
        return {"type": config}
    if isinstance(config, Mapping):
        return dict(config)
    raise TypeError(
        "an objective is a type ('bon_loo1'), a mapping ({'type': 'bon_loo1', 'k': 4}), an Objective or a function of "
        f"rewards, got {config!r}"
    )


def uses_k(kind: type[Objective]) -> bool:
    return issubclass(kind, MaxAtK)


def require_known(kind: type[Objective], names: Iterable[str], others: Iterable[str] = ()) -> None:
    """Raises ValueError for a name that is not one of the objective's keys, nor one of the others."""
    known = [*(field.name for field in fields(kind)), *others]
    for name in names:
        if name not in known:
            raise ValueError(f"{kind.type} has no key {name!r}{unknown(name, known)}")


def kind_of(name: Any) -> type[Objective]:
    """The class of a `type`, registered or an import path; ValueError where there is none."""
    if isinstance(name, str) and ":" in name:
        return _imported(name)
    if name is None:
        raise ValueError(f"an objective needs a `type`{unknown(name, sorted(OBJECTIVES))}")
    if not isinstance(name, str) or name not in OBJECTIVES:
        raise ValueError(f"unknown objective type {name!r}{unknown(name, sorted(OBJECTIVES))}")
    return OBJECTIVES[name]


@functools.cache
def _imported(path: str) -> type[Objective]:
    """The class or function at `package.module:name`."""
    return _class_of(imported(path, "objective type "))


def _class_of(function: Any) -> type[Objective]:
    """An objective without keys whose formula is the function; a subclass of Objective stays as it is."""
    if isinstance(function, type) and issubclass(function, Objective):
        return function
    if isinstance(function, type) or not callable(function):
        raise ValueError(f"an objective is a subclass of Objective or a function of rewards, got {function!r}")
    named = function if hasattr(function, "__qualname__") else type(function)
    own = {"__module__": named.__module__, "__qualname__": named.__qualname__, "__doc__": function.__doc__}
    return type(named.__qualname__, (Objective,), {**own, "advantages": staticmethod(function)})


def _group_size(rewards: Tensor, log_ratios: Tensor | None) -> int:
    if rewards.ndim != 2 or rewards.shape[1] == 0 or not rewards.is_floating_point():
        got = f"{rewards.dtype} {list(rewards.shape)}"
        raise ValueError(f"rewards must be a floating-point [groups, n] tensor, got {got}")
    if log_ratios is not None and log_ratios.shape != rewards.shape:
        got = f"{list(log_ratios.shape)} and {list(rewards.shape)}"
        raise ValueError(f"log_ratios and rewards must have the same shape, got {got}")
    return rewards.shape[1]
