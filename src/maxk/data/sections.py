"""Configuration keys that several sources of problems share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from maxk.schema import Count, Fraction, Section

# Readings (most popular, second, rare) of an operation that its statement leaves open, as probabilities.
Popularity = tuple[Fraction, Fraction, Fraction]


class DatasetSection(Section):
    """What every source has in common: how many problems each split gets."""

    def has(self, split: str) -> bool:
        """Whether the dataset gives problems of this split ("train" or "test")."""
        return bool(getattr(self, split))


Size = Annotated[int, Field(ge=0)] | Literal["all"]


Location = Annotated[
    str, Field(description="Hub id, or a local folder or file (parquet, json, jsonl; also .gz) in its place.")
]
Revision = Annotated[str | None, Field(description="Commit of the hub repository; needed unless `location` is local.")]


class TokenLimit(Section):
    """Statements longer than this are left out; the tokenizer is named, so that every base policy gets the same."""

    tokens: Count = Field(512, description="Most tokens of a statement (paper: 512).")
    tokenizer: str = Field(description="Hub id or local folder of the tokenizer.")
    revision: str | None = Field(None, description="Commit of the tokenizer's hub repository; pin it.")


class Benchmark(DatasetSection):
    """What every benchmark taken from the hub or from files has in common."""

    location: Location
    revision: Revision = None
    train: Size = Field(0, description="Training problems, drawn by `seed`; `all` takes every one.")
    test: Size = Field("all", description="Evaluation problems, drawn by `seed`; `all` takes every one.")
    length: TokenLimit | None = Field(None, description="Leaves out long statements.")
    max_tests: Count | None = Field(None, description="Most tests a problem, the source's own order (official first).")
    distinct_outputs: Count = Field(1, description="Fewest distinct outputs among a problem's tests; below is trivial.")
    exclude: tuple[str, ...] = Field((), description="Upstream ids left out: known faults, say.")
    seed: int = Field(0, description="Draws the splits.")
    paper: str | None = Field(None, description="The paper's dataset that this is in the tables.")


class PooledBenchmark(Benchmark):
    """A benchmark whose rows have no split of their own: test is drawn first, train from the rest."""

    @model_validator(mode="after")
    def _one_takes_the_rest(self) -> PooledBenchmark:
        if self.train == self.test == "all":
            raise ValueError("train and test are both `all`, but the source has one pool of rows; give one a number")
        return self


CheckedWith = Annotated[
    int, Field(ge=0, description="Own right programs of a row that its tests are checked with; 0 checks nothing.")
]


class HubCopy(Section):
    """Where another benchmark is found."""

    location: Location
    revision: Revision = None
