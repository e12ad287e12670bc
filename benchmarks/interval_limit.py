"""How large a test's type-I error can be where seeds do not differ, if it is nowhere above 6 %.

    python benchmarks/interval_limit.py       # about a minute on one core

Needs scipy, which `pip install '.[test]'` and `make environment` install.

The table of docs/statistics.md, "A limit for any procedure". Normal components and many problems: the variance of a
difference between trainings, V_P, is known and is 1 here. A part V_I of it is the interaction of seeds and problems.
Seeds add an unknown variance σ², about which only V_S is seen: (V_I + σ²) times a chi-squared variable with 2(S − 1)
degrees of freedom over these. A procedure rejects where the difference exceeds a bound, at random or not. Bounds rise
with V_S and are at least 1.96, that of the trainings at hand.

The best procedure is a linear program: the chances of each bound at each V_S (both discretised), a rejection rate of at
most 6 % at every σ², and the largest rate at σ² = 0. Finer grids change nothing in the digits printed.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse, stats
from scipy.optimize import linprog

from maxk.statistics import Floats

LARGEST, LEAST = 0.06, 1.959964
SPREADS = np.concatenate([[0], np.geomspace(0.02, 2000, 50)])  # σ² in units of V_P
BOUNDS = np.concatenate([LEAST * np.geomspace(1, 400, 60), [np.inf]])
BINS = 60  # of V_S


def main() -> None:
    print("V_I/V_P    S = 2    S = 3    S = 5")
    for interaction in (0.20, 0.35, 0.55, 0.67, 0.75):
        rates = (100 * limit(interaction, seeds) for seeds in (2, 3, 5))
        print(f"{interaction:7.2f}  " + "  ".join(f"{rate:7.2f}" for rate in rates), flush=True)


def limit(interaction: float, seeds: int) -> float:
    """The largest type-I error at σ² = 0, for V_I = `interaction`."""
    df = 2 * (seeds - 1)
    edges = np.concatenate([[0], np.geomspace(interaction / 1000, 20 * SPREADS[-1], BINS), [np.inf]])
    seen = np.diff(stats.chi2.cdf(edges * df / (interaction + SPREADS[:, None]), df), axis=1)  # [σ², V_S]
    rejects = 2 * stats.norm.sf(BOUNDS / np.sqrt(1 + SPREADS[:, None]))  # [σ², bound]
    rates = (seen[:, :, None] * rejects[:, None, :]).reshape(len(SPREADS), -1)
    rising = _rising(seen.shape[1])
    found = linprog(
        -rates[0],
        A_ub=sparse.vstack([sparse.csr_matrix(rates), rising]),
        b_ub=np.concatenate([np.full(len(SPREADS), LARGEST), np.zeros(rising.shape[0])]),
        A_eq=sparse.kron(sparse.eye(seen.shape[1]), np.ones((1, len(BOUNDS)))),
        b_eq=np.ones(seen.shape[1]),
    )
    assert found.success, found.message
    return float(-found.fun)


def _rising(bins: int) -> sparse.spmatrix:
    """Rows ≤ 0 where the chance of a bound of at most any size falls from one V_S to the next."""
    at_most: Floats = np.tril(np.ones((len(BOUNDS), len(BOUNDS))))[:-1]
    steps = sparse.diags([-np.ones(bins - 1), np.ones(bins - 1)], [0, 1], shape=(bins - 1, bins))
    return sparse.kron(steps, at_most)


if __name__ == "__main__":
    main()
