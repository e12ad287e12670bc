"""Computes one row of scores per problem from the samples and verdicts of one policy on one dataset.

A verdict is a status for every test of a completion. Rewards are those of `maxk.grading.Verdict`, computed here for
whole columns:

    continuous  fraction of tests passed               (the paper's reward; max@k is estimated from it)
    binary      1 if all tests passed, else 0          (c counts these; pass@k is estimated from them)
    NaN         if any status is `harness_error`       (could not be graded: never 0, never scored)

Every problem must have exactly its n samples, numbered 0 … n−1, each graded once, and no chunk of samples may repeat
another (`repeated_chunks`); anything else is a `UserError`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from maxk import estimators
from maxk.errors import UserError, counted
from maxk.grading.verdicts import HARNESS_ERROR, PASSED

# A coincidence less likely than this is an error. The threshold is low because every scored file is checked.
REPEAT_CHANCE = 1e-12

Integers = NDArray[np.int64]


# ---------------------------------------------------------------------------------------------------- rewards
def rewards(statuses: pa.ChunkedArray) -> estimators.Floats:
    """Continuous rewards [completions] from a column of statuses; NaN for completions that could not be graded."""
    lists = statuses.combine_chunks()
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    if (counts == 0).any():
        raise ValueError(f"verdict {int(np.argmin(counts))} holds no statuses")
    if not len(counts):  # a shard without problems; reduceat needs a row
        return np.empty(0)
    flat = pc.list_flatten(lists)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])

    def number_of(status: str) -> Integers:
        hits = pc.fill_null(pc.equal(flat, status), False).to_numpy(zero_copy_only=False)
        return np.add.reduceat(hits.astype(np.int64), starts)

    return np.where(number_of(HARNESS_ERROR) > 0, np.nan, number_of(PASSED) / counts)


# ----------------------------------------------------------------------------------------------------- scores
@dataclass(frozen=True)
class Scorer:
    """Scores one policy on one dataset; `policy` and `dataset` are only used in messages."""

    policy: str
    dataset: str
    problem_ids: Sequence[str]
    n: int
    ks: Sequence[int]
    chunk: int  # size of the blocks of samples that are checked for repeats

    def columns(self, samples: pa.Table, verdicts: pa.Table) -> dict[str, Sequence[Any]]:
        """Columns of `records.SCORE`, in the order of `problem_ids`."""
        samples = samples.take(self._order(samples, "samples"))
        verdicts = verdicts.take(self._order(verdicts, "verdicts"))
        self._refuse_repeats(samples["completion"])
        shape = (len(self.problem_ids), self.n)
        graded = np.sort(self._graded(verdicts).reshape(shape), axis=1)
        right = (graded == 1).sum(axis=1)
        return {
            "problem_id": list(self.problem_ids),
            "n": [self.n] * shape[0],
            "c": right.tolist(),
            "rewards": list(graded),
            "max_at_k": list(estimators.max_at_k(graded, list(self.ks))),
            "pass_at_k": list(estimators.pass_at_k(self.n, right, list(self.ks))),
            "mean_tokens": samples["n_tokens"].to_numpy().reshape(shape).mean(axis=1),
            "truncated": self._fraction(samples, "length"),
            "stopped": self._fraction(samples, "stop_string"),
            "entropies": self._entropies(samples["entropy"]),
        }

    @property
    def _name(self) -> str:
        return f"policy {self.policy}, dataset {self.dataset}"

    def _order(self, table: pa.Table, what: str) -> Integers:
        """Row numbers in the order of (problem, sample index); each pair must occur exactly once."""
        ids = pa.array(self.problem_ids, pa.string())
        problem = pc.fill_null(pc.index_in(table["problem_id"], ids), -1).to_numpy().astype(np.int64)
        index = table["sample_index"].to_numpy().astype(np.int64)
        stray = (problem < 0) | (index < 0) | (index >= self.n)
        if stray.any():
            row = int(np.argmax(stray))
            fault = (
                "the dataset does not hold this problem"
                if problem[row] < 0
                else f"got index {index[row]} among the {what}, expected 0 … {self.n - 1}"
            )
            raise UserError(f"{self._name}, problem {table['problem_id'][row]}: {fault}; {self._again(what)}")
        key = problem * self.n + index
        counts = np.bincount(key, minlength=len(self.problem_ids) * self.n).reshape(-1, self.n)
        if (counts != 1).any():
            at = int(np.argmax((counts != 1).any(axis=1)))
            raise UserError(
                f"{self._name}, problem {self.problem_ids[at]}: {self._miscount(counts[at], what)}; {self._again(what)}"
            )
        return np.argsort(key, kind="stable")

    def _miscount(self, counts: Integers, what: str) -> str:
        if (counts > 1).any():
            index = int(np.argmax(counts > 1))
            return f"index {index} occurs {counts[index]} times among the {what}, expected once"
        got = counted(int(counts.sum()), what.removesuffix("s"))
        return f"got {got}, expected {self.n} (index {int(np.argmin(counts))} is missing)"

    def _again(self, what: str) -> str:
        if what == "verdicts":
            return f"delete these verdicts and run `maxk verify {self.policy}` again"
        return (
            f"delete these samples and the experiment's drawn/{self.policy}, and run `maxk sample {self.policy}` again"
        )

    def _graded(self, verdicts: pa.Table) -> estimators.Floats:
        try:
            graded = rewards(verdicts["statuses"])
        except ValueError as error:
            raise UserError(f"{self._name}: {error}; {self._again('verdicts')}") from None
        ungraded = np.flatnonzero(np.isnan(graded))
        if len(ungraded):
            row = int(ungraded[0])
            raise UserError(
                f"{self._name}: {len(ungraded)} of {counted(len(graded), 'sample')} could not be graded "
                f"(harness_error; first: problem {verdicts['problem_id'][row]}, sample {verdicts['sample_index'][row]}"
                f"); {self._again('verdicts')}"
            )
        return graded

    def _refuse_repeats(self, completions: pa.ChunkedArray) -> None:
        size = min(self.chunk, self.n // 2)  # halves, if there are no two whole chunks
        if size == 0:
            return
        codes = completions.combine_chunks().dictionary_encode().indices.to_numpy().reshape(-1, self.n)
        whole = codes[:, : self.n // size * size]  # a last chunk may be shorter
        repeats, chance = repeated_chunks(whole.reshape(len(self.problem_ids), -1, size))
        if chance < REPEAT_CHANCE:
            problem, chunk, earlier = repeats[0]
            raise UserError(
                f"{self._name}, problem {self.problem_ids[problem]}: the {counted(size, 'sample')} from {chunk * size} "
                f"repeat those from {earlier * size} one by one ({counted(len(repeats), 'such repeat')}, chance below "
                f"{REPEAT_CHANCE:g}): random numbers were used twice; {self._again('samples')}"
            )

    def _fraction(self, samples: pa.Table, reason: str) -> estimators.Floats:
        """Fraction of each problem's samples with this finish reason."""
        found = pc.equal(samples["finish_reason"], reason).to_numpy()
        fractions: estimators.Floats = found.reshape(len(self.problem_ids), self.n).mean(axis=1)
        return fractions

    def _entropies(self, column: pa.ChunkedArray) -> list[Any]:
        """Entropies in the order of the samples; null for a problem if any sample has none."""
        values = column.to_numpy().reshape(len(self.problem_ids), self.n)
        return [None if np.isnan(row).any() else row for row in values]


# ----------------------------------------------------------------------------------------------- reused seeds
def repeated_chunks(codes: NDArray[Any]) -> tuple[list[tuple[int, int, int]], float]:
    """Chunks that equal an earlier chunk of their problem, and the probability of so much repetition by chance.

    `codes` [problems, chunks, samples] numbers the distinct completions. A seed used twice repeats a chunk in the same
    order. Independent chunks of a nearly deterministic policy can hold the same completions, but then each of the
    M = m! / Π_y m_y! distinct orders of the m samples was equally likely (m_y: how often completion y occurs), so the
    probability is at most 1/M, whatever the policy's entropy. A chunk of one distinct completion has M = 1 and never
    counts. With T pairs of chunks compared, the probability that any set of repeats reaches Π M/T ≥ e^t is at most
    e^(1−t) (Markov's inequality and a union over the sets).

    Returns (problem, chunk, earlier chunk) of the repeats that count, and this bound.
    """
    problems, chunks, _ = codes.shape
    log_pairs = math.log(max(1, problems * chunks * (chunks - 1) // 2))
    repeats: list[tuple[int, int, int]] = []
    evidence = 0.0
    for problem in range(problems):
        first_seen: dict[bytes, int] = {}
        for chunk, content in enumerate(codes[problem]):
            earlier = first_seen.setdefault(content.tobytes(), chunk)
            if earlier != chunk and (gain := _log_orders(content) - log_pairs) > 0:
                repeats.append((problem, chunk, earlier))
                evidence += gain
    return repeats, min(1.0, math.exp(1 - evidence))


def _log_orders(content: NDArray[Any]) -> float:
    """log of the number of distinct orders of a chunk: log m! − Σ_y log m_y!"""
    counts = np.unique(content, return_counts=True)[1]
    return math.lgamma(len(content) + 1) - sum(math.lgamma(count + 1) for count in counts)
