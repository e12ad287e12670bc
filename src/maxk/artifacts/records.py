"""What the stages hand to one another: column names and types, once.

    Problem ──sample──► Sample ──verify──► Verdict ──score──► Score

A dataset is a parquet file of problems; a policy is a `policy.json`. Every parquet file carries a `Provenance` in its
schema metadata: what made it, with which settings, from which inputs. Later stages refuse to mix what does not belong
together (see `maxk.artifacts.files`).
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


Test.__test__ = False  # type: ignore[attr-defined]  # in spite of its name nothing for pytest


@dataclass(frozen=True)
class Task:
    """What a policy gets to see of a problem."""

    problem_id: str
    dataset: str
    split: str
    statement: str


@dataclass(frozen=True)
class Problem(Task):
    """One programming task with its tests, which can be gigabytes in a dataset: `Task` is what sampling reads.

    `time_limit_s` and `memory_limit_mb` override the configured limits where the benchmark states its own. `checker` is
    the Python source of a program that judges answers where several are right. `reference` is a program known to be
    right, where the source has one; it is never shown to a policy.
    """

    tests: Sequence[Test]
    time_limit_s: float | None = None
    memory_limit_mb: int | None = None
    checker: str | None = None
    reference: str | None = None


@dataclass(frozen=True)
class Policy:
    """A model that can be sampled from. The base model is a policy like any other.

    `model` is a Hugging Face folder or hub id. `lineage` holds what decides its weights (settings, data and parent
    digests); `environment` holds what is merely recorded (versions, sandbox tier, source fingerprint).
    """

    name: str
    label: str
    model: str
    revision: str | None = None
    lineage: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Provenance:
    """What made a file: the stage, the settings that decided its content, and digests of its inputs.

    Scores keep the lineage of their policy, too, so that a report can tell what it sets side by side.
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

# What a policy read, a row a problem: in a file beside the samples, since a column of theirs would repeat it n times.
PROMPT = pa.schema([_required("problem_id", pa.string()), _required("prompt", pa.string())])

# A verdict is not a reward: it keeps the status of every test, and `maxk.evaluation.scoring` maps statuses to a reward.
VERDICT = pa.schema(
    [
        _required("problem_id", pa.string()),
        _required("sample_index", pa.int32()),
        _required("extraction", pa.string()),
        _required("statuses", pa.list_(pa.string())),
    ]
)

# One row a problem.
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
        pa.field("entropies", pa.list_(pa.float32())),
    ]
)

# What every column means: a name means the same in every file.
COLUMNS: Mapping[str, str] = {
    "problem_id": "unique within its dataset",
    "dataset": "key of `datasets` in the configuration",
    "split": "`train` or `test`",
    "statement": "the task in words, before the prompt's template",
    "tests": "what a program reads from stdin and what it must print",
    "time_limit_s": "CPU seconds a test; null: the configured limit",
    "memory_limit_mb": "MiB; null: the configured limit",
    "checker": "Python source of a program that judges answers where several are right",
    "reference": "a program known to be right; never shown to a policy",
    "sample_index": "0 … n − 1 within its problem",
    "completion": "what the policy wrote, without the token that ended it",
    "n_tokens": "tokens drawn, the one that ended it included",
    "finish_reason": "`stop` (end of sequence) or `length` (token limit)",
    "entropy": "mean token entropy of the policy in nats (paper, Figure 2); null where the backend was not asked",
    "prompt": "what the policy read: statement, template and chat template",
    "extraction": "where the program stood in the completion: `fenced`, `unclosed`, `bare` or `none`",
    "statuses": "the status of every test, in the order of the tests",
    "n": "samples",
    "c": "samples that pass every test",
    "rewards": "share of tests passed of every sample, sorted ascending",
    "max_at_k": "for every k of the file's provenance (`ks`)",
    "pass_at_k": "for every k of the file's provenance (`ks`)",
    "mean_tokens": "mean of `n_tokens`",
    "truncated": "share of samples that ended by `length`",
    "entropies": "`entropy` of every sample, in their order; null where one has none",
}
