"""`objectives` and `experiments`: the policies to train, and questions about them.

The keys of an objective are the fields of its class in `maxk.objectives`; this module adds what only a config knows
(`label`, `training`) and lets pydantic read the values.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    SerializeAsAny,
    TypeAdapter,
    create_model,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue

from maxk import objectives
from maxk.artifacts.digests import digest_of_text
from maxk.artifacts.paths import at_milestone
from maxk.objectives import Schedule, schedule
from maxk.objectives.objective import kind_of, require_known
from maxk.schema import Count, Name, Section


class _AnyK:
    """The JSON schema of a k, built when it is asked for: pydantic parses the source of `Schedule` for it."""

    @staticmethod
    def __get_pydantic_json_schema__(_: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema: TypeAdapter[Any] = TypeAdapter(int | Schedule)
        return handler(schema.core_schema)


class Objective(Section):
    """One policy to train: the objective's `type` and keys, and training keys that differ from `training`."""

    type: str = Field(
        description="Objective type (docs/objectives.md), or the import path of your own, `my_package.my_module:name`."
    )
    label: str | None = Field(None, description="Row name in tables; by default the paper's.")
    training: Mapping[str, Any] = Field({}, description="Keys of `training` that differ for this policy.")

    @field_validator("k", mode="plain", check_fields=False, json_schema_input_type=Annotated[Any, _AnyK])
    @classmethod
    def _parse_k(cls, value: Any) -> int | Schedule:
        return schedule.parse(value)

    @field_serializer("k", check_fields=False)
    def _k_as_given(self, value: int | Schedule) -> Any:
        return value.mapping if isinstance(value, Schedule) else value

    @model_validator(mode="after")
    def _values_allowed(self) -> Objective:
        _ = self.objective
        return self

    @property
    def kind(self) -> builtins.type[objectives.Objective]:
        return kind_of(self.type)

    @property
    def objective(self) -> objectives.Objective:
        """The objective with its keys bound. Raises ValueError if a value is not allowed."""
        return self.kind(**{field.name: getattr(self, field.name) for field in fields(self.kind)})

    @property
    def spec(self) -> dict[str, Any]:
        """The mapping that `maxk.objectives.make` takes: the type, and the keys that differ from their defaults."""
        return self.model_dump(exclude_defaults=True, exclude={"label", "training"})

    @property
    def own_code(self) -> dict[str, str]:
        """The digest of the module of an objective given by its import path: after an edit, it is trained again."""
        if ":" not in self.type:
            return {}
        return {"code": digest_of_text(Path(inspect.getfile(self.kind)).read_text(encoding="utf-8"))}

    @property
    def has_schedule(self) -> bool:
        """Whether its k changes during training."""
        return len(self.objective.ks) > 1


@functools.cache
def section(type_: str) -> type[Objective]:
    """The config section of an objective type: its class's keys beside those of `Objective`.

    Raises ValueError for an unknown type.
    """
    kind = kind_of(type_)
    annotations = kind.annotations() | {"k": Any}  # `_parse_k` knows what it may be
    keys: dict[str, Any] = {"type": (Literal[type_], ...)}
    keys |= {
        field.name: (
            annotations[field.name],
            Field(
                ... if field.default is MISSING else field.default,
                json_schema_extra=functools.partial(_describe, kind, field.name),
            ),
        )
        for field in fields(kind)
    }
    return create_model(kind.__name__, __base__=Objective, __doc__=kind.__doc__, **keys)


def _describe(kind: type, name: str, node: dict[str, Any]) -> None:
    """Adds a field's docstring to its JSON schema. Only then: it is found by parsing source, which takes long."""
    if (text := _descriptions(kind).get(name)) is not None:
        node["description"] = text


def _descriptions(kind: type) -> dict[str, str]:
    """The docstrings of a dataclass's fields; pydantic reads those of one class at a time."""
    return {name: text for part in reversed(kind.__mro__) for name, text in _own_descriptions(part).items()}


@functools.cache
def _own_descriptions(part: type) -> dict[str, str]:
    if not is_dataclass(part) or "__annotations__" not in vars(part):
        return {}
    properties = TypeAdapter(part).json_schema()["properties"]
    return {n: " ".join(node["description"].split()) for n, node in properties.items() if "description" in node}


def _validate(content: Any) -> Objective:
    """The section of the type that the content names."""
    if isinstance(content, Objective):
        return content
    if not isinstance(content, Mapping):
        raise ValueError(f"an objective is a mapping such as {{type: grpo}}, got {content!r}")
    content = _with_scalars(content)
    kind = kind_of(content.get("type"))
    require_known(kind, content.keys() - {"type"}, others=Objective.model_fields.keys() - {"type"})
    return section(content["type"]).model_validate(content)


class _AnySection:
    """The JSON schema of the sections of all types, built when it is asked for: it takes half a second."""

    @staticmethod
    def __get_pydantic_json_schema__(_: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        sections: TypeAdapter[Any] = TypeAdapter(
            Annotated[  # type: ignore[arg-type]
                Union[tuple(map(section, objectives.OBJECTIVES))],  # noqa: UP007 - made at run time
                Field(discriminator="type"),
            ]
        )
        return handler(sections.core_schema)


AnyObjective = Annotated[SerializeAsAny[Objective], PlainValidator(_validate), _AnySection]


class Rule(Section):
    """A decision that is fixed before the run: which of two answers the difference between two policies gives.

    The difference counts as shown if it has the sign asked for and its p-value, Holm-corrected over the rules of the
    experiment, is below 1 − `report.confidence`. In an experiment with `milestones` it is the difference at equal KL.
    """

    policy: Name = Field(description="The policy that the rule is about.")
    reference: Name | None = Field(None, description="The policy it is compared with; by default the experiment's.")
    shown: Literal["above", "below", "different"] = Field(
        "above", description="What has to be shown: the sign of the difference, or either."
    )
    k: Count | None = Field(None, description="k of the max@k that decides; by default `report.headline_k`.")
    vote: bool = Field(False, description="Decide by maj@k, with the k of the experiment's `vote`, not by max@k.")
    then: str = Field(description="The answer if the difference is shown.")
    otherwise: str = Field(description="The answer if it is not.")


class Experiment(Section):
    """A question about some policies, trained only on demand: `results/experiments/NAME.{csv,md,png,pdf}`."""

    question: str = Field(description="The question that the experiment answers; the heading of its table.")
    policies: tuple[Name, ...] = Field(
        (), description="Keys of `objectives`, of the top level or of another experiment, that take part."
    )
    objectives: Mapping[Name, AnyObjective] = Field({}, description="Policies that are trained for this experiment.")
    reference: Name = Field(description="The policy that all others are compared with.")
    rules: tuple[Rule, ...] = Field((), description="How the numbers answer the question, written before the run.")
    vote: Count | None = Field(
        None, description="k of a majority vote: maj@k, the reward of the answer that most of k samples agree on."
    )
    milestones: int | None = Field(
        None,
        ge=2,
        description="Evaluate every policy also at this many evenly spaced points of its training, the end included, "
        "and compare policies at equal KL to the base model and at equal numbers of tokens. Their trainings keep the "
        "weights of these points.",
    )
    against: Literal["k", "iterations", "temperature", "learning_rate"] | None = Field(
        None, description="Draw the results against this parameter; by default against the k of max@k."
    )
    choose: Literal["learning_rate"] | None = Field(
        None,
        description="Policies that differ only in this key are candidates: the one with the highest max@headline_k on "
        "one half of every dataset's problems is chosen, and all numbers are those of the other half.",
    )

    @model_validator(mode="after")
    def _rows_differ(self) -> Experiment:
        if self.reference not in self.rows:
            raise ValueError(
                f"reference={self.reference!r} is not one of its policies: {', '.join(self.rows) or 'none'}"
            )
        if len(set(self.rows)) != len(self.rows):
            raise ValueError(f"a policy is named twice: {', '.join(self.rows)}")
        return self

    @model_validator(mode="after")
    def _rules_concern_rows(self) -> Experiment:
        named = [name for rule in self.rules for name in (rule.policy, rule.reference) if name is not None]
        if absent := [name for name in named if name not in self.rows]:
            raise ValueError(f"rules name {absent[0]!r}, which is not one of its policies: {', '.join(self.rows)}")
        return self

    @model_validator(mode="after")
    def _milestones_without_choice(self) -> Experiment:
        if self.milestones and (self.choose or self.against or self.vote):
            raise ValueError("milestones compare points of one training; leave `against`, `choose` and `vote` out")
        if self.vote and self.choose:
            raise ValueError("`vote` counts all problems; leave `choose` out")
        return self

    @model_validator(mode="after")
    def _votes_counted(self) -> Experiment:
        if any(rule.vote and (self.vote is None or rule.k is not None) for rule in self.rules):
            raise ValueError("a rule with `vote` takes its k from the experiment's `vote`; give that, and no k")
        return self

    @property
    def rows(self) -> tuple[str, ...]:
        """All policies that take part, in order."""
        return (*self.policies, *self.objectives)

    @property
    def evaluated(self) -> tuple[str, ...]:
        """All policies with their milestones in order, each before the policy at the end of its training."""
        earlier = range(1, self.milestones or 1)
        return tuple(name for row in self.rows for name in (*(at_milestone(row, i) for i in earlier), row))


_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")
_WORDS = {"null": None, "true": True, "false": False}


def _with_scalars(value: Any) -> Any:
    """Converts texts that are numbers, null, true or false, also in nested mappings.

    YAML 1.1 takes `5e-6` for text, and Snakemake's `--config` every scalar inside a mapping.
    """
    if isinstance(value, Mapping):
        return {key: _with_scalars(item) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    if _NUMBER.fullmatch(value):
        return int(value) if re.fullmatch(r"[-+]?\d+", value) else float(value)
    return _WORDS.get(value, value)
