"""Statuses become rewards, and rewards become scores only where every sample is there, once, and graded."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from maxk import estimators
from maxk.artifacts import records
from maxk.errors import UserError
from maxk.evaluation.scoring import Scorer, repeated_chunks, rewards

REWARDS = [
    (["passed", "passed"], 1.0),
    (["passed", "wrong_answer", "time_limit", "passed"], 0.5),
    (["unparseable"] * 3, 0.0),
    (["passed", "harness_error"], math.nan),
    (["runtime_error"], 0.0),
    (["passed"], 1.0),
]


def test_a_column_of_verdicts_gives_the_rewards_of_its_rows() -> None:
    statuses, expected = zip(*REWARDS, strict=True)
    column = pa.chunked_array([pa.array(statuses[:2]), pa.array(statuses[2:])])
    np.testing.assert_array_equal(rewards(column), expected)


@pytest.mark.parametrize("empty", [[], None])
def test_a_verdict_without_statuses_is_refused(empty: list[str] | None) -> None:
    with pytest.raises(ValueError, match="verdict 1 holds no statuses"):
        rewards(pa.chunked_array([pa.array([["passed"], empty], pa.list_(pa.string()))]))


def test_no_completions_have_no_rewards() -> None:
    for chunks in ([], [[]]):
        assert rewards(pa.chunked_array(chunks, pa.list_(pa.string()))).shape == (0,)


# ----------------------------------------------------------------------------------------------------- tables
PROBLEMS = ["p1", "p0"]


def scorer(n: int = 4, chunk: int = 4) -> Scorer:
    return Scorer(policy="grpo/seed0", dataset="toy", problem_ids=PROBLEMS, n=n, ks=[1, 2], chunk=chunk)


def samples(n: int = 4, entropy: float | None = 0.5) -> list[list[object]]:
    reasons = ["length", "stop_string", "stop_string"]
    return [
        [problem, i, f"print({problem!r}, {i})", 10 + i, reasons[i] if i < 3 else "stop", entropy]
        for problem in ("p0", "p1")
        for i in range(n)
    ]


def verdicts(n: int = 4, passed: tuple[int, int] = (1, 3)) -> list[list[object]]:
    """Sample i of a problem passes both tests where i is below its `passed`, else one of two."""
    return [
        [problem, i, "fenced", ["passed", "passed" if i < right else "wrong_answer"]]
        for problem, right in zip(("p0", "p1"), passed, strict=True)
        for i in range(n)
    ]


def table(rows: list[list[object]], schema: pa.Schema) -> pa.Table:
    return pa.table(dict(zip(schema.names, map(list, zip(*rows, strict=True)), strict=True)), schema=schema)


def columns(of: Scorer, sampled: list[list[object]], verified: list[list[object]]) -> dict[str, object]:
    return of.columns(table(sampled, records.SAMPLE), table(verified, records.VERDICT))


def test_scores_stand_in_the_order_of_the_problems_whatever_the_order_of_the_rows() -> None:
    got = columns(scorer(), samples()[::-1], verdicts()[::-1])
    made = pa.table(got, schema=records.SCORE).to_pylist()
    p1, p0 = made
    assert [row["problem_id"] for row in made] == PROBLEMS
    assert (p0["c"], p1["c"]) == (1, 3)
    assert p0["rewards"] == [0.5, 0.5, 0.5, 1.0]
    # max@2 of p0: 3 of the 6 pairs hold the right sample: (3·1 + 3·0.5)/6; pass@2 = 3/6.
    assert p0["max_at_k"] == pytest.approx([0.625, 0.75])
    assert p0["pass_at_k"] == pytest.approx([0.25, 0.5])
    assert p1["pass_at_k"] == pytest.approx([0.75, 1.0])
    assert p0["mean_tokens"] == 11.5
    assert (p0["truncated"], p0["stopped"]) == (0.25, 0.5)
    assert p0["entropies"] == [0.5] * 4
    assert made == pa.table(columns(scorer(), samples(), verdicts()), schema=records.SCORE).to_pylist()


def test_scores_without_entropies_are_null() -> None:
    made = pa.table(columns(scorer(), samples(entropy=None), verdicts()), schema=records.SCORE)
    assert made["entropies"].null_count == 2


def drop(rows: list[list[object]]) -> list[list[object]]:
    return rows[:2] + rows[3:]


def repeat(rows: list[list[object]]) -> list[list[object]]:
    return [*rows, rows[2]]


def renamed(rows: list[list[object]]) -> list[list[object]]:
    return [*rows[:-1], ["p7", *rows[-1][1:]]]


def shifted(rows: list[list[object]]) -> list[list[object]]:
    return [*rows[:-1], [rows[-1][0], 4, *rows[-1][2:]]]


@pytest.mark.parametrize("what", ["samples", "verdicts"])
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (drop, "problem p0: got 3 {what}, expected 4 (index 2 is missing)"),
        (lambda rows: rows[4:], "problem p0: got 0 {what}, expected 4 (index 0 is missing)"),
        (repeat, "problem p0: index 2 occurs 2 times among the {what}, expected once"),
        (renamed, "problem p7: the dataset does not hold this problem"),
        (shifted, "problem p1: got index 4 among the {what}, expected 0 … 3"),
    ],
)
def test_miscounts_name_policy_dataset_problem_and_command(what: str, damage: object, says: str) -> None:
    sampled, verified = samples(), verdicts()
    rows = damage(sampled if what == "samples" else verified)  # type: ignore[operator]
    with pytest.raises(UserError) as error:
        columns(scorer(), *((rows, verified) if what == "samples" else (sampled, rows)))
    message = str(error.value)
    assert message.startswith("policy grpo/seed0, dataset toy, ")
    assert says.format(what=what) in message
    assert f"run `maxk {'sample' if what == 'samples' else 'verify'} grpo/seed0` again" in message


def test_ungraded_samples_are_refused_not_scored_as_zero() -> None:
    verified = verdicts()
    verified[5][3] = ["passed", "harness_error"]
    with pytest.raises(UserError, match=r"1 of 8 samples could not be graded .*problem p1, sample 1.*maxk verify"):
        columns(scorer(), samples(), verified)


# ----------------------------------------------------------------------------------------------- reused seeds
def with_completions(texts: list[str]) -> list[list[object]]:
    return [[*row[:2], text, *row[3:]] for row, text in zip(samples(len(texts) // 2), texts, strict=True)]


@pytest.mark.parametrize(
    ("n", "chunk", "size"),
    [(32, 16, 16), (32, 32, 16), (40, 16, 16), (100, 20, 20), (32, 20, 16)],
    ids=["chunks", "one chunk", "a shorter last chunk", "five chunks", "no two whole chunks"],
)
def test_a_reused_seed_is_refused(n: int, chunk: int, size: int) -> None:
    copied = [f"a{i % size}" for i in range(2 * size)] + [f"rest{i}" for i in range(n - 2 * size)]
    everything = copied + [f"b{i}" for i in range(n)]
    says = rf"problem p0: the {size} samples from {size} repeat those from 0 .*maxk sample"
    with pytest.raises(UserError, match=says):
        columns(scorer(n, chunk), with_completions(everything), verdicts(n))


@pytest.mark.parametrize("of", ["one", "reordered", "distinct"])
def test_honest_low_entropy_samples_pass(of: str) -> None:
    texts = {
        "one": ["same"] * 64,
        "reordered": [f"a{i % 16 if i < 16 else 31 - i}" for i in range(32)] * 2,
        "distinct": [f"a{i}" for i in range(64)],
    }[of]
    columns(scorer(32, 16), with_completions(texts), verdicts(32))


def test_repeats_in_small_chunks_add_up_over_problems() -> None:
    rng = np.random.default_rng(0)
    once = np.stack([[rng.permutation(12)] * 2 for _ in range(30)])
    assert repeated_chunks(once[:1])[1] > 1e-12  # 12! orders: not beyond chance in one problem alone
    assert repeated_chunks(once)[1] < 1e-12


@pytest.mark.parametrize("concentration", [0.02, 0.2, 1.0])
def test_independent_samples_of_any_entropy_are_never_suspect(concentration: float) -> None:
    """Nearly deterministic policies repeat whole chunks all the time; that is no evidence."""
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.full(6, concentration), size=200)
    codes = np.stack([rng.choice(6, size=(16, 8), p=share) for share in shares])
    repeats, chance = repeated_chunks(codes)
    assert chance > 1e-6, repeats


def test_estimates_are_those_of_the_estimators() -> None:
    rng = np.random.default_rng(2)
    passed = tuple(int(c) for c in rng.integers(0, 33, size=2))
    made = pa.table(columns(scorer(32, 32), samples(32), verdicts(32, passed)), schema=records.SCORE)
    for row, c in zip(made.to_pylist(), passed[::-1], strict=True):
        np.testing.assert_allclose(row["max_at_k"], estimators.max_at_k([0.5] * (32 - c) + [1.0] * c, [1, 2]))
        np.testing.assert_allclose(row["pass_at_k"], estimators.pass_at_k(32, c, [1, 2]))
