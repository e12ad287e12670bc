"""`objectives` and `experiments`: the policies to train, and the questions put to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from maxk.objectives import types
from maxk.schema import Name, Section


class Objective(BaseModel):
    """One policy to train: the objective's `type` and parameters, and training keys that differ from `training`."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    type: str = Field(description="Objective type; see docs/objectives.md.")
    label: str | None = Field(None, description="Row name in tables; by default the paper's.")
    training: Mapping[str, Any] = Field({}, description="Keys of `training` that differ for this policy.")

    @model_validator(mode="before")
    @classmethod
    def _numbers(cls, content: Any) -> Any:
        """YAML 1.1 takes `5e-6` for text; elsewhere the declared types make it a number, here nothing does."""
        return _with_numbers(content)

    @model_validator(mode="after")
    def _parameters_known(self) -> Objective:
        types.validate(self.spec)
        return self

    @property
    def spec(self) -> dict[str, Any]:
        """The mapping that `maxk.objectives.make` takes: type and parameters."""
        return {"type": self.type, **(self.__pydantic_extra__ or {})}

    @property
    def has_schedule(self) -> bool:
        """Whether its k moves during training."""
        return self.kind.uses_k and types.schedule(self.spec).kind != "constant"

    @property
    def kind(self) -> types.ObjectiveType:
        return types.OBJECTIVE_TYPES[self.type]


class Experiment(Section):
    """A question put to some policies: `results/experiments/NAME.{csv,md,png,pdf}`, trained only when asked for."""

    question: str = Field(description="What the experiment is to answer; the heading of its table.")
    policies: tuple[Name, ...] = Field(
        (), description="Keys of `objectives`, of the top level or of another experiment, that take part."
    )
    objectives: Mapping[Name, Objective] = Field({}, description="Policies that are trained for this experiment.")
    reference: Name = Field(description="The policy that all others are compared with.")
    against: Literal["k", "iterations", "temperature", "learning_rate"] | None = Field(
        None, description="Draw the results against this parameter; by default against the k of max@k."
    )
    choose: Literal["learning_rate"] | None = Field(
        None,
        description="Policies that differ in this key alone are candidates: the one with the highest max@headline_k on "
        "one half of every dataset's problems is chosen, and all numbers are those of the other half.",
    )

    @model_validator(mode="after")
    def _rows_differ(self) -> Experiment:
        if self.reference not in self.rows:
            raise ValueError(f"reference={self.reference!r} is none of its policies: {', '.join(self.rows)}")
        if len(set(self.rows)) != len(self.rows):
            raise ValueError(f"a policy is named twice: {', '.join(self.rows)}")
        return self

    @property
    def rows(self) -> tuple[str, ...]:
        """All policies that take part, in order."""
        return (*self.policies, *self.objectives)


_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


def _with_numbers(value: Any) -> Any:
    """The same with texts such as `5e-6` as numbers, in nested mappings too."""
    if isinstance(value, Mapping):
        return {key: _with_numbers(item) for key, item in value.items()}
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
