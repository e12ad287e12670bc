"""The records that stages exchange on disk: column names, types and meanings.

    Problem ──sample──► Sample ──verify──► Verdict ──score──► Score

A dataset is a parquet file of problems; a policy is a `policy.json`. The schema metadata of every parquet file holds a
`Provenance`: stage, settings and inputs. Later stages refuse to combine files that do not belong together
(`maxk.artifacts.provenance`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa


class Test(NamedTuple):
    """One input/output pair: what the program reads from stdin and what it must print."""

    stdin: str
    expected: str


Test.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it by its name


@dataclass(frozen=True)
class Task:
    """The part of a problem that a policy sees."""

    problem_id: str
    dataset: str
    split: str
    statement: str


@dataclass(frozen=True)
class Problem(Task):
    """A programming task with its tests. The tests of a dataset can be gigabytes, so sampling reads only `Task`.

    `time_limit_s` (CPU seconds) and `memory_limit_mb` (MiB) override the configured limits if the benchmark states its
    own. `checker` is the Python source of a program that judges answers if several are right. `reference` is a solution
    known to be right, if the source has one; it is never shown to a policy.
    """

    tests: Sequence[Test]
    time_limit_s: float | None = None
    memory_limit_mb: int | None = None
    checker: str | None = None
    reference: str | None = None


@dataclass(frozen=True)
class Policy:
    """A model that can be sampled from. The base model is a policy like any other.

    `model` is a Hugging Face folder or hub id. `lineage` holds what determines its weights (settings, digests of data
    and parent); `environment` is recorded only (versions, sandbox tier, source digest).
    """

    name: str
    label: str
    model: str
    revision: str | None = None
    lineage: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Provenance:
    """How a file was made: the stage, the settings that determine its content, and digests of its inputs.

    Scores also keep the lineage of their policy, so that a report can check what it compares.
    """

    stage: str
    experiment: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    lineage: Mapping[str, Any] = field(default_factory=dict)


def _required(name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, nullable=False)


_TEST = pa.struct([_required("stdin", pa.string()), _required("expected", pa.string())])

TASK = pa.schema([_required(name, pa.string()) for name in ("problem_id", "dataset", "split", "statement")])
PROBLEM = pa.schema(
    [
        *TASK,
        _required("tests", pa.list_(_TEST)),
        pa.field("time_limit_s", pa.float64()),
        pa.field("memory_limit_mb", pa.int32()),
        pa.field("checker", pa.string()),
        pa.field("reference", pa.string()),
    ]
)

SAMPLE = pa.schema(
    [
        _required("problem_id", pa.string()),
        _required("sample_index", pa.int32()),
        _required("completion", pa.string()),
        _required("n_tokens", pa.int32()),
        _required("finish_reason", pa.string()),
        pa.field("entropy", pa.float32()),
    ]
)

# What sampling jobs have drawn so far, and the entropies that were measured afterwards (maxk.artifacts.journal). A row
# is reused while its problem's prompt is the same. The text does not determine the tokens: different tokens can spell
# the same text.
DRAWN = pa.schema(
    [
        *(SAMPLE.field(name) for name in ("problem_id", "sample_index", "completion", "n_tokens", "finish_reason")),
        _required("prompt_digest", pa.string()),
        _required("tokens", pa.list_(pa.int32())),
        SAMPLE.field("entropy"),
    ]
)
MEASURED = pa.schema(
    [
        *(DRAWN.field(name) for name in ("problem_id", "sample_index", "prompt_digest")),
        _required("entropy", pa.float32()),
    ]
)

# Rendered prompts, one row per problem, in their own file: a column in the samples would repeat each n times.
PROMPT = pa.schema([_required("problem_id", pa.string()), _required("prompt", pa.string())])

# A verdict keeps the status of every test; `maxk.evaluation.scoring` maps statuses to a reward.
VERDICT = pa.schema(
    [
        _required("problem_id", pa.string()),
        _required("sample_index", pa.int32()),
        _required("extraction", pa.string()),
        _required("statuses", pa.list_(pa.string())),
    ]
)

# What `verify` writes: with what votes and diversity need. Scores are made of VERDICT, from older files too.
VERDICT_AND_OUTPUTS = VERDICT.append(pa.field("program", pa.string())).append(
    pa.field("outputs", pa.list_(pa.string()))
)

# One row per problem.
SCORE = pa.schema(
    [
        _required("problem_id", pa.string()),
        _required("n", pa.int32()),
        _required("c", pa.int32()),
        _required("rewards", pa.list_(pa.float64())),
        _required("max_at_k", pa.list_(pa.float64())),
        _required("pass_at_k", pa.list_(pa.float64())),
        _required("mean_tokens", pa.float64()),
        _required("truncated", pa.float64()),
        _required("stopped", pa.float64()),
        pa.field("entropies", pa.list_(pa.float32())),
    ]
)

# Meanings of columns; a name means the same in every file.
COLUMNS: Mapping[str, str] = {
    "problem_id": "unique within its dataset",
    "dataset": "key of `datasets` in the configuration",
    "split": "`train` or `test`",
    "statement": "the task in words, without the prompt template",
    "tests": "stdin and expected output of every test",
    "time_limit_s": "CPU seconds per test; null: the configured limit",
    "memory_limit_mb": "MiB; null: the configured limit",
    "checker": "Python source of a program that judges answers, if several are right",
    "reference": "reference solution; never shown to a policy",
    "sample_index": "0 … n − 1 within the problem",
    "completion": "text of the completion, without the token but with the stop string that ended it",
    "n_tokens": "sampled tokens, including the one that ended it",
    "finish_reason": "`stop` (end of sequence), `stop_string` or `length` (token limit)",
    "entropy": "mean over the tokens of the entropy in nats at the sampling temperature, before top-p (paper, Figure "
    "2); null if it was not asked for",
    "prompt": "rendered prompt: statement, template and chat template",
    "tokens": "ids of the sampled tokens, including the one that ended it",
    "prompt_digest": "SHA-256 (16 hex digits) of the rendered prompt",
    "extraction": "how the program was found in the completion: `fenced`, `unclosed`, `bare` or `none`",
    "statuses": "the status of every test, in the order of the tests",
    "program": "digest of the program; null if there is none",
    "outputs": "digest of what the program printed, for every test; empty where it did not end well",
    "n": "samples",
    "c": "samples that pass every test",
    "rewards": "fraction of passed tests of every sample, sorted ascending",
    "max_at_k": "for every k of the file's provenance (`ks`)",
    "pass_at_k": "for every k of the file's provenance (`ks`)",
    "mean_tokens": "mean of `n_tokens`",
    "truncated": "fraction of samples with finish reason `length`",
    "stopped": "fraction of samples with finish reason `stop_string`",
    "entropies": "`entropy` of every sample, in sample order; null if one has none",
}
