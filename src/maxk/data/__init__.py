"""Datasets: one module per source, all behind `load`.

A source is one class: its fields are the keys of `datasets.NAME` in the configuration, its method `candidates` converts
raw rows to problems. All modules of this package are imported, and every class with `source: Literal["name"]` is
known by that name (`maxk.data.sections`); a class elsewhere is named by its import path,
`source: my_package.my_module:MyDataset`. Filters and the draw of the splits are shared (`maxk.data.filters`).

    problems, funnel = load("mbpp", config.datasets["mbpp"])
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, Union, cast

from pydantic import Field, GetJsonSchemaHandler, PlainValidator, SerializeAsAny, TypeAdapter, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import InitErrorDetails

from maxk.artifacts.records import Problem
from maxk.data import hub
from maxk.data.candidates import Funnel
from maxk.data.filters import MAX_TEST_BYTES, Validate, complete, largest_test
from maxk.data.sections import SOURCES, Benchmark, DatasetSection, GeneratedDataset, HubCopy, TokenLimit
from maxk.errors import UserError, suggest
from maxk.plugins import imported

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

SPLITS = ("train", "test")


# ------------------------------------------------------------------------------------------------ the configuration
def _by_source(value: Any) -> DatasetSection:
    """Validates a section with the class that its `source` names."""
    if isinstance(value, DatasetSection):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"expected keys and values, got {value!r}")
    source = value.get("source")
    if source is None:
        raise ValueError(f"needs the key 'source', got {value!r}")
    if isinstance(source, str) and (source in SOURCES or ":" in source):
        return _validated(SOURCES.get(source) or _imported(source), value)
    raise ValueError(
        f"source={source!r} is unknown{suggest(str(source), SOURCES)}; known: {', '.join(SOURCES)}, and import paths "
        "`package.module:Class`"
    )


def _validated(section: type[DatasetSection], value: Mapping[str, Any]) -> DatasetSection:
    """Puts the source in the location of every error, as pydantic does for `base`."""
    try:
        return section.model_validate(value)
    except ValidationError as error:
        found = [{**item, "loc": (value["source"], *item["loc"])} for item in error.errors()]
        raise ValidationError.from_exception_data(section.__name__, cast(list[InitErrorDetails], found)) from None


def _imported(source: str) -> type[DatasetSection]:
    """The dataset class at an import path. Raises ValueError."""
    found = imported(source, "source=")
    if not (isinstance(found, type) and issubclass(found, DatasetSection)):
        raise ValueError(f"source={source!r} is no dataset class: it must derive from maxk.data.sections.Benchmark")
    return found


class _AnySource:
    """The JSON schema of the sections of all sources, built when it is asked for, like the sections themselves."""

    @staticmethod
    def __get_pydantic_json_schema__(_: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        sections: TypeAdapter[Any] = TypeAdapter(
            Annotated[  # type: ignore[arg-type]
                Union[tuple(SOURCES.values())],  # noqa: UP007 - made at run time
                Field(discriminator="source"),
            ]
        )
        return handler(sections.core_schema)


if TYPE_CHECKING:
    Dataset: TypeAlias = DatasetSection
else:
    Dataset = Annotated[SerializeAsAny[DatasetSection], PlainValidator(_by_source), _AnySource]


# ------------------------------------------------------------------------------------------------------------ problems
def load(name: str, config: DatasetSection, validate: Validate | None = None) -> tuple[list[Problem], dict[str, int]]:
    """The problems of the dataset `name`, train first, and its funnel. Raises UserError if rows cannot be used.

    `validate` runs programs on a benchmark's tests: it detects broken checkers, and `check_solutions` needs it.
    """
    funnel: dict[str, int]
    if isinstance(config, Benchmark):
        counted = Funnel(name)
        problems, funnel = complete(config, config.candidates(counted), counted, validate), counted
    else:
        problems, funnel = cast(GeneratedDataset, config).generate(name)
    check(problems)
    return problems, funnel


class Need(NamedTuple):
    """What a configuration reads: its key, a local path or a repository of the hub, and what it holds (`hub.fault`)."""

    key: str
    where: str
    revision: str | None
    kind: str = "dataset"
    holds: str | None = None


def needs(name: str, config: DatasetSection) -> Iterator[Need]:
    """Everything that the dataset `name` reads."""
    for field, place in _places(config):
        key = ".".join(["datasets", name, *filter(None, [field])])
        if isinstance(place, TokenLimit):
            yield Need(f"{key}.tokenizer", place.tokenizer, place.revision, "model", "tokenizer*")
        else:
            yield Need(f"{key}.location", place.location, place.revision)


def _places(config: DatasetSection) -> Iterator[tuple[str, Benchmark | HubCopy | TokenLimit]]:
    """What names a place, by its field: the dataset itself (""), and its parts."""
    if isinstance(config, Benchmark):
        yield "", config
    yield from ((field, value) for field, value in config if isinstance(value, HubCopy | TokenLimit))


def at_commits(name: str, config: DatasetSection) -> tuple[DatasetSection, dict[str, str]]:
    """The section with commits in place of branches and tags, and the commits by location."""
    commits: dict[str, str] = {}
    changes: dict[str, Any] = {}
    for (field, place), need in zip(_places(config), needs(name, config), strict=True):
        if (commit := hub.commit_of(need.key.rpartition(".")[0], need.where, need.revision, need.kind)) is not None:
            commits[need.where] = commit
            pinned = {"revision": commit}
            changes |= {field: place.model_copy(update=pinned)} if field else pinned
    return config.model_copy(update=changes), commits


def lines(name: str, funnel: dict[str, int]) -> Iterator[str]:
    """A funnel as text, one line per filter, with the ids of the first rows that it dropped."""
    for step, count in funnel.items():
        dropped = funnel.dropped.get(step, []) if isinstance(funnel, Funnel) else []
        named = ", ".join(dropped[:5]) + (", …" if len(dropped) > 5 else "")
        yield f"{name}: {step} {count}" + (f" (without {len(dropped)}: {named})" if dropped else "")


def check(problems: Sequence[Problem]) -> None:
    """Raises UserError naming the first problem that could not be graded properly."""
    seen: set[str] = set()
    for problem in problems:
        row = f"dataset {problem.dataset}, problem {problem.problem_id}"
        if problem.problem_id in seen:
            raise UserError(f"{row}: the id occurs twice; ids must be unique")
        seen.add(problem.problem_id)
        if problem.split not in SPLITS:
            raise UserError(f"{row}: split {problem.split!r} is not one of {', '.join(SPLITS)}")
        if not problem.statement.strip():
            raise UserError(f"{row}: the statement is empty")
        if not problem.tests:
            raise UserError(f"{row}: has no tests, so every program would pass; drop the row")
        if (size := largest_test(problem)) > MAX_TEST_BYTES:
            number = max(range(len(problem.tests)), key=lambda i: len("".join(problem.tests[i])))
            raise UserError(f"{row}: test {number} has {size} characters, more than {MAX_TEST_BYTES}; drop the row")
