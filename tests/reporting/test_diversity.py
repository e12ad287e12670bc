"""Problems solved and lost, difficulty, clusters, crossings and selection by one test, on made-up scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from made_up import Experiment, N, write_statistics

from maxk.artifacts import files, records
from maxk.artifacts.records import Provenance
from maxk.errors import UserError
from maxk.evaluation.clusters import by_first_test, distinct_outputs, distinct_programs, in_order
from maxk.reporting import diversity
from maxk.reporting.load import load


def passes(*counts: int) -> np.ndarray:
    """Rewards [problems, N]: 1 for so many samples of a problem, 0.5 for the others."""
    return np.where(np.arange(N) < np.array(counts)[:, None], 1.0, 0.5)


@pytest.fixture
def made(experiment: Callable[..., Experiment]) -> Experiment:
    """Base: never, rarely, often and always solves one problem each. GRPO keeps the last two, BoN mean all but one."""
    made = experiment(datasets={"easy": experiment().config.model_dump(mode="json")["datasets"]["easy"]})
    made.score("base", "easy", passes(0, 2, 64, N))
    made.score("grpo/seed0", "easy", passes(0, 0, N, N))
    made.score("bon_mean/seed0", "easy", passes(1, 2, 0, N))
    return made


def test_problems_are_solved_lost_and_gained(made: Experiment) -> None:
    frame = diversity.table(load(made.config), made.config).set_index("policy")
    assert frame.loc["base", ["solved", "lost", "gained"]].tolist() == [3, 0, 0]
    assert frame.loc["grpo", ["solved", "lost", "gained"]].tolist() == [2, 1, 0]
    assert frame.loc["bon_mean", ["solved", "lost", "gained"]].tolist() == [3, 1, 1]


def test_difficulty_is_the_base_model_s(made: Experiment) -> None:
    frame = diversity.table(load(made.config), made.config).set_index("policy")
    assert frame.loc["grpo", ["problems_never", "problems_rarely", "problems_often"]].tolist() == [1, 1, 2]
    assert frame.loc["grpo", ["max_never", "max_rarely", "max_often"]].tolist() == [0.5, 0.5, 1]
    assert frame.loc["bon_mean", ["max_never", "max_rarely", "max_often"]].tolist() == [1, 1, 0.75]


def test_a_crossing_with_grpo_is_found_among_all_k(experiment: Callable[..., Experiment]) -> None:
    """GRPO earns 0.6 always, BoN mean 1 once in 128 samples and else 0.5: above from 0.5·k/128 > 0.1, k = 26."""
    made = experiment()
    made.score("base", "easy", [0.5] * 12)
    made.score("grpo/seed0", "easy", [0.6] * 12)
    made.score("bon_mean/seed0", "easy", passes(*[1] * 12))
    frame = diversity.table(load(made.config), made.config).set_index("policy")
    assert frame.loc["bon_mean", ["crossing_low", "crossing", "crossing_high"]].tolist() == [26, 26, 26]
    assert np.isnan(frame.loc["grpo", "crossing"])
    text = diversity.to_markdown(frame.reset_index())
    assert "One training seed: no claim about methods" in text
    assert "One training seed" not in diversity.to_markdown(frame.reset_index().assign(seeds=3))
    mixed = diversity.to_markdown(frame.assign(seeds=[1, 3, 1]).reset_index())
    assert "One training seed: no claim about methods, only about the trained policies that have no other." in mixed
    assert "| 26 [26, 26] | – |" in text
    made.score("bon_mean/seed0", "easy", [0.5] * 12)
    assert diversity.table(load(made.config), made.config).set_index("policy").crossing["bon_mean"] == math.inf


def test_one_test_chooses_and_the_others_judge(made: Experiment) -> None:
    """Sample 0 passes the first test only, all others the second and third: the first test chooses badly."""
    rows = [(f"easy-{p}", i, ["passed" if (t == 0) == (i == 0) else "wrong_answer" for t in range(3)])
            for p in range(2) for i in reversed(range(N))]  # fmt: skip
    ids, indices, statuses = zip(*rows, strict=True)
    columns = {"problem_id": ids, "sample_index": indices, "extraction": ["ok"] * len(rows), "statuses": statuses}
    path = verdicts(made, 0, columns)
    made.score("grpo/seed0", "easy", passes(0, 0, N, N), inputs={"verdicts/0": files.digest(path)})
    visible, hidden = by_first_test(in_order(files.read_table(path, records.VERDICT)), N)
    np.testing.assert_array_equal(visible, np.arange(N) == np.zeros((2, 1)))
    np.testing.assert_array_equal(hidden, 1 - visible)
    frame = diversity.table(load(made.config), made.config).set_index("policy")
    assert frame.selected["grpo"] == 0  # the only one that passes among all 128
    assert np.isnan(frame.selected["base"])


def verdicts(made: Experiment, shard: int, columns: dict) -> str:
    """A shard of verdicts of GRPO, with programs and outputs if the columns hold them."""
    path = made.config.layout.verdicts("grpo/seed0", "easy", shard)
    schema = records.VERDICT_AND_OUTPUTS if "outputs" in columns else records.VERDICT
    files.write_table(path, columns, schema, Provenance("verify", made.config.name, {}))
    return path


# Of two problems, four samples each: program, outputs and statuses on two tests.
SAMPLES = {
    "p": [
        ("a", ["x", "y"], ["passed", "passed"]),
        ("b", ["x", "y"], ["passed", "passed"]),
        ("c", ["x", ""], ["passed", "runtime_error"]),
        (None, ["", ""], ["unparseable", "unparseable"]),
    ],
    "q": [
        ("a", ["x", ""], ["passed", "time_limit"]),
        ("a", ["x", ""], ["passed", "time_limit"]),
        ("d", ["x", ""], ["passed", "runtime_error"]),
        ("e", ["", ""], ["time_limit", "time_limit"]),
    ],
}
CLUSTERS = {"p": [{0, 1}, {2}], "q": [{0, 1}, {2}]}  # of outputs; a program that prints nothing is in none
PROGRAMS = {"p": [{0}, {1}, {2}], "q": [{0, 1}, {2}, {3}]}


def among(groups: list[set[int]], k: int) -> float:
    """Mean number of groups that a subset of k of four samples meets, over all subsets."""
    subsets = list(itertools.combinations(range(4), k))
    return sum(sum(bool(group & set(subset)) for group in groups) for subset in subsets) / len(subsets)


def test_distinct_programs_and_outputs_are_those_of_all_subsets() -> None:
    rows = [(p, i, "fenced", statuses, program, outputs) for p, samples in SAMPLES.items()
            for i, (program, outputs, statuses) in reversed(list(enumerate(samples)))]  # fmt: skip
    schema = records.VERDICT_AND_OUTPUTS
    table = pa.table(dict(zip(schema.names, zip(*rows, strict=True), strict=True)), schema=schema)
    for count, groups in ((distinct_programs, PROGRAMS), (distinct_outputs, CLUSTERS)):
        expected = [[among(groups[problem], k) for k in (1, 2, 4)] for problem in "pq"]
        np.testing.assert_allclose(count(in_order(table), 4, [1, 2, 4]), expected)


def test_clusters_are_shown_by_k(made: Experiment) -> None:
    """Half of the samples print one thing, half another; all programs differ."""
    columns = {"problem_id": ["p"] * N, "sample_index": range(N), "extraction": ["fenced"] * N}
    columns |= {"statuses": [["passed", "passed"]] * N, "program": [str(i) for i in range(N)]}
    path = verdicts(made, 0, columns | {"outputs": [[str(i % 2), "z"] for i in range(N)]})
    made.score("grpo/seed0", "easy", passes(0, 0, N, N), inputs={"verdicts/0": files.digest(path)})
    write_statistics(made)
    long = diversity.outputs_by_k(load(made.config), made.config)
    assert long[["policy", "k"]].values.tolist() == [["grpo", 1], ["grpo", 2], ["grpo", 128]]
    both = 1 - 2 * math.comb(N // 2, 2) / math.comb(N, 2)
    np.testing.assert_allclose(long["mean"], [1, 1 + both, 2], atol=1e-4)
    frame = diversity.table(load(made.config), made.config).set_index("policy")
    assert frame.loc["grpo", ["programs_at_1", "programs_at_128"]].tolist() == [1, 128]
    assert "| 128.0 | 2.0 |" in diversity.to_markdown(frame.reset_index())
    assert np.isnan(frame.outputs_at_128["base"])


def test_the_verdicts_are_those_that_were_scored(made: Experiment) -> None:
    """One problem in the first of two shards and none in the second, while the config has one shard by now."""
    columns = {"problem_id": ["p"] * N, "sample_index": range(N), "extraction": ["ok"] * N}
    first = verdicts(made, 0, columns | {"statuses": [["passed", "passed", "wrong_answer"]] * N})
    second = verdicts(made, 1, {name: [] for name in records.VERDICT.names})
    digests = {f"verdicts/{i}": files.digest(path) for i, path in enumerate((first, second))}
    made.score("grpo/seed0", "easy", passes(0, 0, N, N), inputs=digests)
    frame = diversity.table(load(made.config), made.config).set_index("policy")
    assert frame.selected["grpo"] == 0.5  # one of the two tests that judge
    verdicts(made, 0, columns | {"statuses": [["passed", "passed", "passed"]] * N})
    with pytest.raises(
        UserError, match=r"easy.parquet: made from another version of .*/0.parquet; run `maxk score grpo/"
    ):
        diversity.table(load(made.config), made.config)


def test_a_single_test_leaves_nothing_to_judge_by() -> None:
    columns = {"problem_id": ["a"], "sample_index": [0], "extraction": ["ok"], "statuses": [["passed"]]}
    assert by_first_test(records.VERDICT.empty_table().from_pydict(columns, schema=records.VERDICT), 1) is None
