"""`base`: the base policy, pretrained inside the pipeline or taken from the hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from maxk.artifacts import models
from maxk.data.arithmetic import ArithmeticCorpus
from maxk.data.pocket import Corpus
from maxk.errors import suggest
from maxk.schema import Count, Positive, Section, Seed


class Architecture(Section):
    """A small Llama-style decoder."""

    hidden_size: Count = 64
    layers: Count = 2
    heads: Count = 4
    intermediate_size: Count = 192
    vocabulary: Count = Field(320, description="Size of the byte-pair vocabulary, learned from the corpus.")

    @model_validator(mode="after")
    def _heads_divide(self) -> Architecture:
        if self.hidden_size % self.heads:
            raise ValueError(f"heads={self.heads} must divide hidden_size={self.hidden_size}")
        return self


def _family(corpus: Any) -> str:
    """The corpus of the pocket tasks has no key that names it."""
    named = corpus.get("family") if isinstance(corpus, Mapping) else getattr(corpus, "family", None)
    return ArithmeticCorpus.__name__ if named == "arithmetic" else Corpus.__name__


def _require_known_family(corpus: Any) -> Any:
    if isinstance(corpus, Mapping) and corpus.get("family", "arithmetic") != "arithmetic":
        named = corpus["family"]
        hint = suggest(str(named), ["arithmetic"])
        raise ValueError(f"family={named!r} is unknown{hint}; known: arithmetic; leave it out for the pocket tasks")
    return corpus


AnyCorpus = Annotated[
    Annotated[Corpus, Tag(Corpus.__name__)] | Annotated[ArithmeticCorpus, Tag(ArithmeticCorpus.__name__)],
    Discriminator(_family),
    BeforeValidator(_require_known_family),
]


class PretrainedBase(Section):
    """A base policy that the pipeline pretrains itself, without a model hub."""

    source: Literal["pretrain"]
    corpus: AnyCorpus = Corpus()
    architecture: Architecture = Architecture()
    steps: Count = Field(600, description="Pretraining steps.")
    batch_size: Count = Field(128, description="Sequences per step.")
    learning_rate: Positive = Field(4e-3, description="Peak learning rate (AdamW, linear warm-up, cosine decay).")
    seed: Seed = 0

    processes: ClassVar[int] = 2  # at most, of the job

    @property
    def inputs(self) -> list[str]:
        """Files that it is made from: none."""
        return []


class HubBase(Section):
    """A base policy from the Hugging Face hub or a local folder."""

    source: Literal["hub"]
    model: str = Field(description="Hub id or local folder.")
    revision: str | None = Field(None, description="Commit of the hub repository; pin it.")
    parameters: Positive = Field(
        8, description="Upper bound of its size in billions of parameters; sets the memory that jobs request."
    )

    processes: ClassVar[int] = 1

    @property
    def inputs(self) -> list[str]:
        """Files of a local model: after a change of one, the base policy is made again."""
        return list(map(str, models.local_files(self.model)))


Base = Annotated[PretrainedBase | HubBase, Field(discriminator="source")]
