"""Distinct programs and outputs among k samples of a problem, and the choice of one by the problem's first test, from
the complete verdicts of one policy, `in_order`.

Programs are compared by their text, outputs on all tests by their digests; where a test left no output, its status
takes the place. A sample without a program, or whose program printed on no test, counts as none
(`maxk.evaluation.selection`, which reads other files in the same way).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maxk.estimators import Floats
from maxk.evaluation.scoring import rewards
from maxk.evaluation.selection import NONE, distinct
from maxk.grading.verdicts import PASSED


def in_order(verdicts: pa.Table) -> pa.Table:
    """Problem by problem, each with its samples by number."""
    return verdicts.sort_by([("problem_id", "ascending"), ("sample_index", "ascending")])


def distinct_programs(verdicts: pa.Table, n: int, ks: Sequence[int]) -> Floats:
    """Expected number of distinct programs among k of a problem's n samples: [problems, ks], exact."""
    return _distinct(verdicts["program"].combine_chunks(), n, ks)


def distinct_outputs(verdicts: pa.Table, n: int, ks: Sequence[int]) -> Floats:
    """Expected number of distinct outputs (clusters) among k of a problem's n samples: [problems, ks], exact."""
    outputs, statuses = (verdicts[name].combine_chunks() for name in ("outputs", "statuses"))
    flat = pc.list_flatten(outputs)
    said = pc.if_else(pc.equal(flat, ""), pc.list_flatten(statuses), flat)
    joined = pc.binary_join(pa.ListArray.from_arrays(outputs.offsets, said), " ")
    printed = pc.not_equal(pc.binary_join(outputs, ""), "")
    return _distinct(pc.if_else(printed, joined, pa.scalar(None, pa.string())), n, ks)


def by_first_test(verdicts: pa.Table, n: int) -> tuple[Floats, Floats] | None:
    """Whether the first test passes and the fraction of other tests passed, both [problems, n].

    None if any problem has only one test.
    """
    statuses = verdicts["statuses"].combine_chunks()
    tests = pc.list_value_length(statuses).to_numpy(zero_copy_only=False).astype(np.float64)
    if (tests < 2).any():
        return None
    first = pc.equal(pc.list_element(statuses, 0), PASSED).to_numpy(zero_copy_only=False).astype(np.float64)
    others = (rewards(pa.chunked_array([statuses])) * tests - first) / (tests - 1)
    return first.reshape(-1, n), others.reshape(-1, n)


def _distinct(values: pa.Array, n: int, ks: Sequence[int]) -> Floats:
    """values: of all samples, problem by problem; null is none."""
    codes = pc.fill_null(values.dictionary_encode().indices, NONE).to_numpy(zero_copy_only=False)
    return np.array([distinct(row, ks) for row in codes.reshape(-1, n)]).reshape(-1, len(ks))
