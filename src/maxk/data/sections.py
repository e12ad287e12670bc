"""Base classes of datasets, and the registry of sources.

A dataset is one class: its fields are the keys of `datasets.NAME` in the configuration, its methods turn raw rows into
problems, and its class variables tell other parts what they need to know of the source. A class with
`source: Literal["name"]` is registered under that name.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args

from pydantic import Field, model_validator

from maxk.artifacts.records import Problem
from maxk.data import hub
from maxk.data.candidates import Candidate, Funnel
from maxk.data.hub import Layouts
from maxk.data.rows import table
from maxk.schema import Count, Fraction, Section, Seed

Row = TypeVar("Row")
Size = Annotated[int, Field(ge=0)] | Literal["all"]
Location = Annotated[
    str,
    Field(description="Hub id, or a local file or folder (parquet, arrow, json, jsonl; json and jsonl also as .gz)."),
]
Revision = Annotated[
    str | None, Field(description="Commit of the hub repository; required unless `location` is local.")
]
Functional = Annotated[Literal["convert", "drop"], Field(description="Rows that call a function (LeetCode).")]
CheckSolutions = Annotated[
    int,
    Field(
        ge=0,
        description="How many of a row's reference solutions are run to validate its tests; 0 runs none.",
    ),
]
# How often each reading of an operation (most popular, second, rare) is meant, as probabilities.
Popularity = tuple[Fraction, Fraction, Fraction]


class Planned(NamedTuple):
    """What `maxk plan` assumes of a source until `maxk prepare` has counted.

    `train` and `test` are the problems of a split for which the configuration says `all`; `tests` are per problem.
    """

    train: int
    test: int
    tests: int
    basis: str


SOURCES: dict[str, type[DatasetSection]] = {}


class DatasetSection(Section):
    """What all datasets have in common."""

    source: str
    paper: str | None = Field(None, description="The paper's dataset whose column this one fills in the tables.")

    planned: ClassVar[Planned] = Planned(0, 0, 10, "unknown until `maxk prepare` has counted")
    tests_mb: ClassVar[int] = 0  # main memory for the tests of all rows at the peak of a stage, an estimate; 0 is small
    synthetic: ClassVar[bool] = False  # generated tasks, readable by a model that the pipeline pretrains
    family: ClassVar[str | None] = None  # of the corpus that such a model has to be pretrained on; None: any

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for source in get_args(cls.model_fields["source"].annotation):
            SOURCES[source] = cls

    def has(self, split: str) -> bool:
        """Whether the dataset has problems in a split ("train" or "test")."""
        return bool(getattr(self, split))

    @property
    def tests_per_problem(self) -> int:
        """What `maxk plan` assumes."""
        return self.planned.tests

    @property
    def inputs(self) -> list[str]:
        """Local files that the problems are made from: data, and the module of a class given by its import path."""
        return []


class GeneratedDataset(DatasetSection):
    """A dataset without raw rows."""

    synthetic = True

    @abstractmethod
    def generate(self, name: str) -> tuple[list[Problem], dict[str, int]]:
        """The problems of the dataset `name`, train first, and its funnel."""


class TokenLimit(Section):
    """Drops statements with more tokens. The tokenizer is named here, so that all base policies get the same rows."""

    tokens: Count = Field(512, description="Maximum number of tokens of a statement (paper: 512).")
    tokenizer: str = Field(description="Hub id or local folder of the tokenizer.")
    revision: str | None = Field(None, description="Commit of the tokenizer's hub repository; pin it.")


class HubCopy(Section):
    """The location of another benchmark."""

    location: Location
    revision: Revision = None


class Benchmark(DatasetSection):
    """A dataset with raw rows, from the hub or from files."""

    location: Location
    revision: Revision = None
    train: Size = Field(0, description="Number of training problems, drawn by `seed`, or `all`.")
    test: Size = Field("all", description="Number of evaluation problems, drawn by `seed`, or `all`.")
    length: TokenLimit | None = Field(None, description="Drops long statements.")
    max_tests: Count | None = Field(
        None, description="Maximum number of tests per problem; the first ones are kept, official before generated."
    )
    distinct_outputs: Count = Field(
        1, description="Drops problems whose tests expect fewer distinct outputs, which a constant could solve."
    )
    exclude: tuple[str, ...] = Field((), description="Upstream ids to drop before anything else, such as faulty rows.")
    seed: Seed = Field(0, description="Seed of the draw of the splits.")

    @abstractmethod
    def layouts(self) -> Mapping[str, Layouts]:
        """The files of each split; the split is "" if both are drawn from one pool."""

    @abstractmethod
    def candidates(self, funnel: Funnel) -> Iterator[Candidate]:
        """Converts the raw rows; every filter of the source is a step of the funnel."""

    def rows(self, funnel: Funnel, schema: type[Row], identify: Callable[[Row], Any]) -> Iterator[Row]:
        """The raw rows of the splits that the configuration asks for, without the excluded ones."""
        return funnel.start(self._rows(funnel.dataset, schema), identify, self.exclude)

    def _rows(self, name: str, schema: type[Row]) -> Iterator[Row]:
        for split, layouts in self._parts().items():
            yield from table(name, self, layouts, split).rows(schema)

    def _parts(self) -> Mapping[str, Layouts]:
        """A single local file is one pool."""
        if Path(self.location).expanduser().is_file():
            return {"": []}
        return {split: layouts for split, layouts in self.layouts().items() if not split or self.has(split)}

    @property
    def tests_per_problem(self) -> int:
        return min(self.max_tests or self.planned.tests, self.planned.tests)

    @property
    def inputs(self) -> list[str]:
        code = [inspect.getfile(type(self))] if ":" in self.source else []
        if not Path(self.location).expanduser().exists():
            return code
        return code + [str(path) for layouts in self._parts().values() for path in hub.files("", self, layouts)]


class PooledBenchmark(Benchmark):
    """A benchmark whose rows have no split of their own: test is drawn first, train from the rest."""

    @model_validator(mode="after")
    def _rows_are_left_for_train(self) -> PooledBenchmark:
        if self.train and self.test == "all":
            raise ValueError(
                "test: all takes all rows of the source's one pool and leaves none for train; give a number"
            )
        return self
