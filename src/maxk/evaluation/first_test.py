"""Splits verdicts for an imperfect verifier: a problem's first test, and the reward on the other tests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maxk.estimators import Floats
from maxk.evaluation.scoring import rewards
from maxk.grading.verdicts import PASSED


def by_first_test(verdicts: pa.Table, n: int) -> tuple[Floats, Floats] | None:
    """Whether the first test passes and the fraction of other tests passed, both [problems, n], from complete verdicts.

    None if any problem has only one test.
    """
    ordered = verdicts.sort_by([("problem_id", "ascending"), ("sample_index", "ascending")])
    statuses = ordered["statuses"].combine_chunks()
    tests = pc.list_value_length(statuses).to_numpy(zero_copy_only=False).astype(np.float64)
    if (tests < 2).any():
        return None
    first = pc.equal(pc.list_element(statuses, 0), PASSED).to_numpy(zero_copy_only=False).astype(np.float64)
    others = (rewards(pa.chunked_array([statuses])) * tests - first) / (tests - 1)
    return first.reshape(-1, n), others.reshape(-1, n)
