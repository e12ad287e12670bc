"""`maxk compare`: what it reads, and its numbers against SciPy and enumeration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import combinations, permutations, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from maxk import cli
from maxk.artifacts import files, records
from maxk.artifacts.records import Provenance
from maxk.errors import UserError
from maxk.evaluation.comparing import Crossing, compare
from maxk.evaluation.result_files import beside
from maxk.evaluation.systems import files_of, paired, read_results, read_system
from maxk.reporting.systems import _crossed, to_markdown

PROBLEM = {"problem_id": "double", "tests": [{"stdin": "2", "expected": "4"}, {"stdin": "5", "expected": "10"}]}
SEEDED = "problem,n,c,seed"
RIGHT, HALF, WRONG = "print(2 * int(input()))", "print(4)", "print(0)"
VERDICT = {"sample": 0, "problem_id": "p", "key": "0", "judged": "outputs", "reward": 1.0, "statuses": ["passed"] * 2}


def csv(path: Path, rows: list[tuple], head: str = "problem,n,c") -> Path:
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def jsonl(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def verdicts(path: Path, rewards: dict[str, list[float]], tests: int = 4) -> Path:
    """Verdicts of samples that pass so large a fraction of their tests."""
    rows = []
    for name, each in rewards.items():
        for reward in each:
            passed = round(reward * tests)
            statuses = ["passed"] * passed + ["wrong_answer"] * (tests - passed)
            rows.append({**VERDICT, "sample": len(rows), "problem_id": name, "reward": reward, "statuses": statuses})
    return jsonl(path, rows)


def read(*given: object) -> list:
    return [read_system(*files_of(str(one)), read_results) for one in given]


def run(*arguments: object) -> int:
    return cli.main(["compare", *map(str, arguments)])


def best_of(rewards: list[float], k: int) -> float:
    """max@k by enumeration of all subsets."""
    return float(np.mean([max(subset) for subset in combinations(rewards, k)]))


# ------------------------------------------------------------------------------------------------------ numbers
def test_estimates_are_those_of_all_subsets(tmp_path: Path) -> None:
    rewards = {"p": [0.25, 1.0, 0.0, 0.5], "q": [0.0, 0.0, 0.75, 0.75], "r": [1.0, 1.0, 0.5, 0.25]}
    other = {"p": [0.5, 0.5, 0.5], "q": [1.0, 0.0, 0.0], "r": [0.25, 0.0, 0.0]}  # fewer samples
    found = compare(
        paired(read(verdicts(tmp_path / "a.jsonl", rewards), verdicts(tmp_path / "b.jsonl", other))), [1, 2, 3]
    )
    values = {(one.system, one.metric, one.k): one for one in found.estimates}
    for name, given in (("a", rewards), ("b", other)):
        for k in (1, 2, 3):
            each = [best_of(one, k) for one in given.values()]
            assert values[name, "max", k].mean == pytest.approx(np.mean(each))
            passed = [best_of([float(reward == 1) for reward in one], k) for one in given.values()]
            assert values[name, "pass", k].mean == pytest.approx(np.mean(passed))
            half = stats.t.ppf(0.975, 2) * stats.sem(each)
            assert values[name, "max", k].low == pytest.approx(max(0, np.mean(each) - half), abs=1e-4)
    assert {one.k for one in found.estimates} == {1, 2, 3}


def test_one_seed_is_tested_by_sign_flips_and_says_so(tmp_path: Path) -> None:
    a = {f"p{i}": c for i, c in enumerate([5, 7, 8, 3, 6, 8, 2, 7])}
    b = {f"p{i}": c for i, c in enumerate([4, 3, 8, 1, 5, 2, 3, 1])}
    files_ = [csv(tmp_path / f"{name}.csv", [(p, 8, c) for p, c in of.items()]) for name, of in (("a", a), ("b", b))]
    found = compare(paired(read(*files_)), [1])
    differences = np.array([(a[p] - b[p]) / 8 for p in a])
    flipped = [np.mean(np.array(signs) * differences) for signs in product([-1, 1], repeat=8)]
    exact = np.mean(np.abs(flipped) >= abs(differences.mean()) - 1e-12)
    [one] = found.differences
    assert (one.a, one.b, one.test, one.about) == ("a", "b", "sign flips", "sets of samples")
    assert one.p == pytest.approx(exact, abs=0.01)
    interval = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (one.low, one.high) == pytest.approx((interval.low, interval.high), abs=1e-4)
    assert (
        "There is one set of samples of each system: there, intervals and tests are about these samples"
        in found.notes[0]
    )
    text = to_markdown(found)
    assert text.startswith("**a against b**\n")
    assert "seed" not in text
    assert "| pass@k | a − b | p |\n" in text  # one pair: nothing to correct
    assert text.endswith("\n\na − b: a statement about sets of samples; p is two-sided, by sign flips.\n")


def test_seeds_widen_the_interval_and_change_what_it_is_about(tmp_path: Path) -> None:
    """Two methods that differ on every problem by as much as their seeds do: no claim about methods."""
    rng = np.random.default_rng(1)
    ease = rng.uniform(0.3, 0.7, 60)
    paths = {}
    for name, seeds in {"a": (-0.15, 0.15), "b": (0.0, 0.3)}.items():
        for seed, shift in enumerate(seeds):
            counts = rng.binomial(64, np.clip(ease + shift, 0, 1))
            paths[name, seed] = csv(tmp_path / f"{name}{seed}.csv", [(f"p{i}", 64, c) for i, c in enumerate(counts)])
    one = compare(paired(read(paths["a", 0], paths["b", 0])), [1]).differences[0]
    many = compare(
        paired(read(*(f"{name}={paths[name, 0]},{paths[name, 1]}" for name in "ab"))), [1]
    )  # the same files, two seeds each
    assert one.high < 0
    assert one.p < 0.001
    assert many.differences[0].low < 0 < many.differences[0].high
    assert many.differences[0].p > 0.05
    assert many.differences[0].about == "methods"
    assert not any("one set of samples" in note for note in many.notes)
    assert [system["seeds"] for system in many.systems] == [2, 2]
    assert to_markdown(many).startswith("**a (2 seeds) against b (2 seeds)**\n")
    assert to_markdown(many).endswith("\n\na − b: a statement about methods; p is two-sided, by crossed t.\n")


def test_a_seed_column_is_read(tmp_path: Path) -> None:
    rows = [(p, 4, c, seed) for seed, counts in ((7, (1, 2)), (8, (3, 4))) for p, c in zip("pq", counts, strict=True)]
    [system] = read(csv(tmp_path / "a.csv", rows, "problem,n,c,seed"))
    assert system.estimates("pass", [1]).tolist() == [[[0.25], [0.5]], [[0.75], [1.0]]]


def test_an_upper_case_suffix_is_the_same_suffix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    csv(Path("a.csv"), [("p", 4, 1), ("q", 4, 2)])
    csv(Path("B.CSV"), [("p", 4, 2), ("q", 4, 2)])
    assert [one.name for one in read("a.csv", "B.CSV")] == ["a", "B"]
    assert run("a.csv", "B.CSV", "--plot", "C.PNG") == 0
    assert Path("C.PNG").read_bytes().startswith(b"\x89PNG")
    assert beside(Path("S.JSONL.GZ"), ".verdicts.jsonl") == Path("S.verdicts.jsonl")


def test_a_file_is_not_two_seeds(tmp_path: Path) -> None:
    """Not under another name either: equal seeds would show no spread between trainings."""
    file = csv(tmp_path / "a.csv", [("p", 4, 1), ("q", 4, 2)])
    (tmp_path / "b.csv").symlink_to(file)
    for second in (file, tmp_path / "b.csv", tmp_path / "x" / ".." / "a.csv"):
        with pytest.raises(UserError, match=r"a.csv: given twice; give each seed of a system its own file"):
            read(f"x={file},{second}")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_copy_is_no_other_seed(tmp_path: Path, suffix: str) -> None:
    """It is refused before any file is read or graded."""
    for name, content in (("a", "1"), ("b", "2"), ("c", "1")):
        (tmp_path / f"{name}.{suffix}").write_text(content)
    a, b, c = (f"{tmp_path}/{name}.{suffix}" for name in "abc")
    assert files_of(f"x={a},{b}") == ("x", [a, b])
    said = f"{c}: the same file content as {a}; give the results of another seed, or leave one out"
    with pytest.raises(UserError, match=f"^{said}$"):
        files_of(f"x={a},{b},{c}")


@pytest.mark.parametrize(
    ("change", "options"),
    [({"tests": [{"stdin": "2", "expected": "4"}, {"stdin": "5", "expected": "9"}]}, []), ({}, ["--cpu-s", "1.5"])],
)
def test_verdicts_of_other_tests_or_limits_are_not_compared(
    change: dict, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, problem, given in (("a", PROBLEM, []), ("b", {**PROBLEM, **change}, options)):
        jsonl(Path(f"{name}.problems.jsonl"), [problem])
        jsonl(Path(f"{name}.jsonl"), [{"problem_id": "double", "program": one} for one in (RIGHT, WRONG)])
        assert cli.main(["grade", f"{name}.problems.jsonl", f"{name}.jsonl", "--workers", "1", *given]) == 0
    capsys.readouterr()
    pair = ["a.verdicts.jsonl", "b.verdicts.jsonl"]
    said = (
        "problem 'double' has other tests, checker or limits in b.verdicts.jsonl than in a.verdicts.jsonl; grade both "
        "with the same problems and options\n"
    )
    for command in ("compare", "select"):
        assert cli.main([command, *pair]) == 2
        assert capsys.readouterr().err == f"maxk {command}: {said}"
    rows = [json.loads(line) for path in pair for line in Path(path).read_text().splitlines()]
    jsonl(Path("both.jsonl"), [{**row, "sample": i} for i, row in enumerate(rows)])
    assert run("both.jsonl", "a.verdicts.jsonl") == 2
    assert (
        "both.jsonl:3: problem 'double' has other tests, checker or limits here than before" in capsys.readouterr().err
    )
    # Files of earlier versions have no task: they are read, alone and beside others, and continued.
    jsonl(Path("b.verdicts.jsonl"), [{key: row[key] for key in row if key != "task"} for row in rows[2:3]])
    assert run(*pair) == 0
    assert cli.main(["grade", "b.problems.jsonl", "b.jsonl", "--workers", "1", *options]) == 0
    assert ["task" in json.loads(line) for line in Path("b.verdicts.jsonl").read_text().splitlines()] == [False, True]


def test_seeds_of_equal_counts_are_told(tmp_path: Path) -> None:
    """Few samples often give the same counts, so that these are no proof of a copy."""
    first = verdicts(tmp_path / "a.jsonl", {"p": [1.0], "q": [0.0], "r": [1.0]})
    second, other = tmp_path / "b.jsonl", verdicts(tmp_path / "c.jsonl", {"p": [1.0], "q": [0.5], "r": [1.0]})
    second.write_text(first.read_text().replace('"key": "0"', '"key": "1"'))
    rows = [("p", 1, 1), ("q", 1, 0), ("r", 1, 1)]
    counts = [csv(tmp_path / f"{name}.csv", rows) for name in "de"]
    columns = csv(tmp_path / "f.csv", [(*row, seed) for seed in (7, 8) for row in rows], "problem,n,c,seed")
    for given, one, another in (
        (f"x={first},{other},{second}", first, second),
        (f"x={counts[0]},{counts[1]}", *counts),
        (f"x={columns}", f"{columns} (seed 7)", f"{columns} (seed 8)"),
    ):
        assert paired(read(given)).notes == [
            f"Seeds {one} and {another} of x have equal counts; if one is a copy, the spread between seeds is "
            "understated."
        ]
    assert paired(read(f"x={first},{other}", f"y={counts[0]}", f"z={counts[1]}")).notes == []


@pytest.mark.parametrize("right", [0, 4])
def test_two_seeds_that_always_fail_or_never_are_rightly_equal(tmp_path: Path, right: int) -> None:
    paths = [csv(tmp_path / f"{name}.csv", [("p", 4, right), ("q", 4, right)]) for name in "ab"]
    assert paired(read(f"x={paths[0]},{paths[1]}")).notes == []


def test_holm_is_over_the_pairs_at_one_k(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    each = [
        csv(tmp_path / f"{name}.csv", [(f"p{i}", 16, c) for i, c in enumerate(rng.binomial(16, rate, 30))])
        for name, rate in (("a", 0.3), ("b", 0.36), ("c", 0.6))
    ]
    found = compare(paired(read(*each)), [1, 4])
    for k in (1, 4):
        family = [one for one in found.differences if one.k == k]
        assert [(one.a, one.b) for one in family] == [("a", "b"), ("a", "c"), ("b", "c")]
        order = sorted(family, key=lambda one: one.p)
        corrected = np.maximum.accumulate([min(1, one.p * (3 - i)) for i, one in enumerate(order)])
        assert [one.p_holm for one in order] == pytest.approx(corrected)
    assert "| pass@k | a − c | p | p (Holm) |" in to_markdown(found)
    assert "Holm's correction is over the 3 pairs at the same k" in to_markdown(found)


@pytest.mark.parametrize("swap", [False, True])
def test_where_curves_cross(tmp_path: Path, swap: bool) -> None:
    """One solves half of the problems always, the other all of them with one sample of eight: 1/8, 2/8, … 8/8."""
    sure = csv(tmp_path / "sure.csv", [(f"p{i}", 8, 8 * (i % 2)) for i in range(40)])
    broad = csv(tmp_path / "broad.csv", [(f"p{i}", 8, 1) for i in range(40)])
    given = [broad, sure] if swap else [sure, broad]
    [one] = compare(paired(read(*given)), [1, 8]).crossings
    assert (one.upper, one.lower, one.k, one.largest) == ("broad", "sure", 5, 8)  # at k = 4 both are 1/2
    assert one.low <= 4 < one.high
    [never] = compare(
        paired(read(sure, csv(tmp_path / "worse.csv", [(f"p{i}", 8, 0) for i in range(40)]))), [1]
    ).crossings
    assert (never.upper, never.k, never.low, never.high) == ("worse", None, None, None)


def test_solved_and_lost(tmp_path: Path) -> None:
    a = csv(tmp_path / "a.csv", [("p", 4, 1), ("q", 4, 0), ("r", 4, 0), ("s", 4, 2)])
    b = csv(tmp_path / "b.csv", [("s", 4, 0), ("r", 4, 0), ("q", 4, 4), ("p", 4, 4)])  # another order
    [one] = compare(paired(read(a, b)), [1]).solved
    assert (one.both, one.neither, one.only_a, one.only_b) == (1, 1, ["s"], ["q"])


def test_more_samples_or_seeds_solve_more_problems_and_are_not_compared_in_this(tmp_path: Path) -> None:
    """Two systems that are equally good: 256 samples of a problem find what 16 do not, and so do two seeds."""
    rng = np.random.default_rng(0)
    rates = rng.beta(0.3, 3, 100)
    each = {"few": 16, "other": 16, "more": 16, "many": 256}
    few, other, more, many = (
        csv(tmp_path / f"{name}.csv", [(f"p{i}", n, c) for i, c in enumerate(rng.binomial(n, rates))])
        for name, n in each.items()
    )
    found = compare(paired(read(few, other, many)), [1])
    assert [(one.a, one.b) for one in found.solved] == [("few", "other")]
    text = to_markdown(found)
    assert text.count("Solved by both") == 1
    assert "few − many, other − many: problems solved are not compared, because the numbers of samples or" in text
    assert "Holm's correction is over the 3 pairs" in text
    assert compare(paired(read(few, f"x={other},{more}")), [1]).solved == []
    [one] = compare(paired(read(f"w={few},{more}", f"x={other},{few}")), [1]).solved
    assert one.both + one.neither + len(one.only_a) + len(one.only_b) == 100
    assert "not compared" not in to_markdown(compare(paired(read(few, other)), [1]))


def test_equal_curves_do_not_cross(tmp_path: Path) -> None:
    """pass@2 is 5/6 for both, and the means are sums of other numbers."""
    flat = csv(tmp_path / "flat.csv", [("p", 4, 2), ("q", 4, 2), ("r", 4, 2)])
    uneven = csv(tmp_path / "uneven.csv", [("p", 4, 2), ("q", 3, 1), ("r", 2, 1)])
    for pair in ([flat, uneven], [uneven, flat]):
        [one] = compare(paired(read(*pair)), [1]).crossings
        assert (one.k, one.largest) == (None, 2)
    same = csv(tmp_path / "same.csv", [("p", 4, 2), ("q", 4, 2), ("r", 4, 2)])
    assert compare(paired(read(flat, same)), [1]).crossings == []  # equal at every k: neither is behind


# ------------------------------------------------------------------------------------------------------ what is read
def test_other_problems_and_other_n_are_told(tmp_path: Path) -> None:
    a = csv(tmp_path / "a.csv", [("p", 4, 1), ("q", 4, 0), ("only-a", 4, 4)])
    b = csv(tmp_path / "b.csv", [("q", 8, 3), ("p", 16, 3)])
    given = paired(read(a, b))
    assert (given.problem_ids, given.n) == (["p", "q"], 4)
    assert given.notes == [
        "Only problems that all have are compared: 2 of 3 (with results: a 3, b 2).",
        "Samples per problem differ (a 4, b 8 to 16): no k above 4; estimates use all samples.",
    ]
    with pytest.raises(UserError, match=r"no problem in common; problems of a: 'p', 'q', 'only-a', c: 'x'"):
        paired(read(a, csv(tmp_path / "c.csv", [("x", 4, 1)])))


def test_the_same_id_with_other_tests_is_refused(tmp_path: Path) -> None:
    a = verdicts(tmp_path / "a.jsonl", {"p": [0.5], "q": [0.0]}, tests=4)
    b = verdicts(tmp_path / "b.jsonl", {"p": [0.5], "q": [0.0]}, tests=2)
    with pytest.raises(UserError, match=r"problem 'p' has 4 tests in .*a.jsonl and 2 in .*b.jsonl"):
        paired(read(a, b))


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_every_pair_of_seeds_is_checked(order: tuple[str, ...], tmp_path: Path) -> None:
    """The first seed may know nothing of the problem that the others differ in."""
    verdicts(tmp_path / "a.jsonl", {"q": [1.0]})
    verdicts(tmp_path / "b.jsonl", {"q": [1.0], "p": [1.0]}, tests=4)
    verdicts(tmp_path / "c.jsonl", {"q": [1.0], "p": [1.0]}, tests=4)
    given = [tmp_path / f"{name}.jsonl" for name in order]
    assert paired(read(*given)).problem_ids == ["q"]
    rows = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text().splitlines()]
    jsonl(tmp_path / "c.jsonl", [rows[0], {**rows[1], "statuses": ["passed"] * 3}])
    with pytest.raises(UserError, match=r"problem 'p' has \d tests in .*[bc].jsonl and \d in .*[bc].jsonl"):
        paired(read(*given))


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_every_pair_of_datasets_is_checked(order: tuple[str, ...], tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", [("p", 2, 1)])  # knows no dataset
    schema = pa.schema([records.SCORE.field(name) for name in ("problem_id", "rewards")])
    for name in "bc":
        made = Provenance("score", "x", {}, {"problems": f"digest {name}"})
        files.write_table(tmp_path / f"{name}.parquet", {"problem_id": ["p"], "rewards": [[1.0]]}, schema, made)
    given = [tmp_path / (f"{name}.csv" if name == "a" else f"{name}.parquet") for name in order]
    with pytest.raises(UserError, match=r"[bc].parquet and .*[bc].parquet were made from different problems"):
        paired(read(*given))


def test_counts_leave_no_max_at_k(tmp_path: Path) -> None:
    a = verdicts(tmp_path / "a.jsonl", {"p": [0.5, 1.0], "q": [0.0, 0.5]})
    found = compare(paired(read(a, csv(tmp_path / "b.csv", [("p", 2, 1), ("q", 2, 0)]))), [1, 2])
    assert {one.metric for one in found.estimates} == {"pass"}
    assert "No max@k: a system has only counts of correct samples." in found.notes


def test_scores_of_the_pipeline(tmp_path: Path) -> None:
    rewards = {"p": [0.0, 0.5, 1.0, 1.0], "q": [0.0, 0.0, 0.0, 0.5]}
    columns = {"problem_id": list(rewards), "rewards": list(rewards.values())}
    schema = pa.schema([records.SCORE.field(name) for name in columns])
    made = Provenance("score", "x", {}, {"problems": "digest"})
    files.write_table(tmp_path / "scores.parquet", columns, schema, made)
    [first] = read(tmp_path / "scores.parquet")
    expected = [[[best_of(rewards[name], k) for k in (1, 3)] for name in rewards]]
    assert first.estimates("max", [1, 3]) == pytest.approx(np.array(expected))
    other = Provenance("score", "x", {}, {"problems": "another digest"})
    files.write_table(tmp_path / "other.parquet", columns, schema, other)
    with pytest.raises(UserError, match="were made from different problems"):
        paired(read(tmp_path / "scores.parquet", tmp_path / "other.parquet"))
    made = Provenance("verify", "x", {}, {"problems": "digest"})
    files.write_table(tmp_path / "verdicts.parquet", columns, schema, made)
    with pytest.raises(UserError, match=r"written by the stage verify; expected scores"):
        read(tmp_path / "verdicts.parquet")
    with pytest.raises(UserError, match="is a folder; give the scores"):
        read(tmp_path)


def test_spaces_around_a_seed_make_no_other_seed(tmp_path: Path) -> None:
    path = csv(tmp_path / "a.csv", [("p", 4, 1, "0"), ("q", 4, 1, "0 "), ("p", 4, 2, " 1"), ("q", 4, 2, "1")], SEEDED)
    [system] = read(path)
    assert [seed.source for seed in system.seeds] == [f"{path} (seed 0)", f"{path} (seed 1)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("problem,n\np,1\n", r"a.csv:1: expected the columns problem, n, c and perhaps seed, got problem, n"),
        ("problem,n,c,k\np,1,1,1\n", r"a.csv:1: expected the columns"),
        ("problem,n,c,c\np,1,1,1\n", r"a.csv:1: expected the columns"),
        ("problem,n,c\np,4,x\n", r"a.csv:2: c must be a whole number of at most 12 digits, got str 'x'"),
        ("problem,n,c\np,4,-1\n", r"a.csv:2: c must be a whole number"),
        ("problem,n,c\np,4.0,1\n", r"a.csv:2: n must be a whole number"),
        ("problem,n,c\np,4\n", r"a.csv:2: c must be a whole number of at most 12 digits, got null"),
        ("problem,n,c\np,4,1,9\n", r"a.csv:2: expected 3 columns"),
        ("problem,n,c\np,4,5\n", r"a.csv:2: expected 1 ≤ n and 0 ≤ c ≤ n, got n = 4, c = 5"),
        ("problem,n,c\np,0,0\n", r"a.csv:2: expected 1 ≤ n"),
        ("problem,n,c\np,4,1\np,4,1\n", r"a.csv:3: problem 'p' appears twice"),
        ("problem,n,c\n,4,1\n", r"a.csv:2: problem '' has no name"),
        ("problem,n,c\n", r"a.csv: contains no problem"),
        ("", r"a.csv:1: expected the columns problem, n, c and perhaps seed, got none"),
        ('problem,n,c\n"p,4,1\n', r"a.csv: not a CSV file"),
    ],
)
def test_faults_of_csv_are_named_by_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": None, "statuses": ["harness_error"]}, "sample 0 of problem 'p'.* could not be graded"),
        ({"reward": "1"}, r"v.jsonl:1: reward must be 1.0 by the statuses, got str '1'"),
        ({"reward": 1.5}, r"v.jsonl:1: reward must be 1.0 by the statuses, got float 1.5"),
        ({"reward": True}, r"v.jsonl:1: reward must be 1.0 by the statuses, got bool True"),
        ({"reward": None}, r"v.jsonl:1: reward must be 1.0 by the statuses, got null"),
        ({"statuses": ["passed", "time_limit"]}, r"v.jsonl:1: reward must be 0.5 by the statuses, got float 1.0"),
        ({"statuses": ["passed", "harness_error"]}, r"v.jsonl:1: reward must be null by the statuses, got float 1.0"),
        ({"statuses": []}, r"v.jsonl:1: statuses must be a list of passed"),
        ({"statuses": ["fine"]}, r"v.jsonl:1: statuses must be a list of passed"),
        ({"statuses": [["passed"]]}, r"v.jsonl:1: statuses must be a list of passed"),
        ({"problem_id": 7}, r"v.jsonl:1: not a verdict; problem_id must be text, got int 7"),
        ({"sample": -1}, r"v.jsonl:1: not a verdict; sample must be a whole number from 0, got int -1"),
        ({"task": 3}, "v.jsonl:1: not a verdict; task must be text, got int 3"),
        ({"judged": []}, r"v.jsonl:1: not a verdict; judged must be outputs or asserts, got list \[\]"),
        ({"program": ["x"]}, r"v.jsonl:1: not a verdict; program must be text or null, got list"),
    ],
)
def test_odd_verdicts_are_refused_by_line(tmp_path: Path, change: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(jsonl(tmp_path / "v.jsonl", [{**VERDICT, **change}]))


@pytest.mark.parametrize("command", ["compare", "select", "grade"])
def test_a_verdict_that_appears_twice_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would count as two samples. Samples of several problems need not be together."""
    monkeypatch.chdir(tmp_path)
    program = {"problem_id": "double", "program": RIGHT}
    jsonl(Path("p.jsonl"), [PROBLEM])
    jsonl(Path("s.jsonl"), [program] * 3)
    assert cli.main(["grade", "p.jsonl", "s.jsonl", "--workers", "1"]) == 0
    rows = [json.loads(line) for line in Path("s.verdicts.jsonl").read_text().splitlines()]
    jsonl(Path("s.verdicts.jsonl"), [rows[0], rows[1], rows[1]])
    given = {
        "compare": ["s.verdicts.jsonl", "b=s.verdicts.jsonl"],
        "select": ["s.verdicts.jsonl"],
        "grade": ["p.jsonl", "s.jsonl", "--workers", "1"],
    }
    capsys.readouterr()
    assert cli.main([command, *given[command]]) == 2
    remedy = "; move it away or name another --output" if command == "grade" else ""
    assert capsys.readouterr().err.endswith(f"maxk {command}: s.verdicts.jsonl:3: sample 1 appears twice{remedy}\n")


def test_samples_of_several_problems_may_take_turns(tmp_path: Path) -> None:
    rows = [{**VERDICT, "sample": i, "problem_id": "pq"[i % 2]} for i in range(6)]
    [found] = read(jsonl(tmp_path / "v.jsonl", rows))
    assert found.n == 3
    with pytest.raises(UserError, match=r"v.jsonl:7: sample 3 appears twice"):  # a number is of one problem only
        read(jsonl(tmp_path / "v.jsonl", [*rows, {**VERDICT, "sample": 3, "problem_id": "p"}]))
    with pytest.raises(UserError, match=r"v.jsonl:7: problem 'p' has 1 test here and 2 before"):
        read(jsonl(tmp_path / "v.jsonl", [*rows, {**VERDICT, "sample": 9, "statuses": ["passed"]}]))


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_verdicts_may_be_in_any_order(order: tuple[int, ...], tmp_path: Path) -> None:
    """Sorted by reward, say, or two files with numbers of their own in one; a number may be there once only."""
    rows = [{**VERDICT, "sample": i + 2 * (i > 1), "problem_id": "pq"[i % 2]} for i in order]
    [found] = read(jsonl(tmp_path / "v.jsonl", rows))
    assert found.sizes == {name: [2] for name in "pq"}
    for row in rows:
        with pytest.raises(UserError, match=f"v.jsonl:5: sample {row['sample']} appears twice"):
            read(jsonl(tmp_path / "v.jsonl", [*rows, {**row, "problem_id": "r"}]))


def test_a_file_of_verdicts_that_was_cut_is_refused(tmp_path: Path) -> None:
    path = verdicts(tmp_path / "v.jsonl", {"p": [0.5, 0.5]})
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UserError, match=r"v.jsonl:2: not JSON"):
        read(path)


# ------------------------------------------------------------------------------------------------------ the command
def test_samples_are_graded_and_everything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl(Path("p.jsonl"), [PROBLEM])
    for name, programs in (("a", [RIGHT, WRONG]), ("b", [HALF, WRONG])):
        jsonl(Path(f"{name}.jsonl"), [{"problem_id": "double", "program": program} for program in programs])
    options = ("--problems", "p.jsonl", "--json", "all.json", "--plot", "c.pdf", "--workers", 1)
    assert run("a.jsonl", "mine=b.jsonl", *options) == 0
    printed = capsys.readouterr().out
    content = json.loads(Path("all.json").read_text())
    assert [(e["system"], e["metric"], e["k"], e["mean"]) for e in content["estimates"]] == [
        ("a", "max", 1, 0.5), ("a", "max", 2, 1.0), ("a", "pass", 1, 0.5), ("a", "pass", 2, 1.0),
        ("mine", "max", 1, 0.25), ("mine", "max", 2, 0.5), ("mine", "pass", 1, 0.0), ("mine", "pass", 2, 0.0),
    ]  # fmt: skip
    assert content["estimates"][0]["low"] is None  # one problem has no interval
    assert content["solved"][0]["only_a"] == ["double"]
    assert printed.startswith("**")
    assert "| max@k | a | mine |" in printed
    assert "max@k: a is above" not in printed  # it is from k = 1 on
    assert Path("c.pdf").read_bytes().startswith(b"%PDF")
    before = Path("a.verdicts.jsonl").stat().st_mtime_ns
    assert run("a.verdicts.jsonl", "b.jsonl", "--problems", "p.jsonl", "--k", "1,2") == 0
    assert Path("a.verdicts.jsonl").stat().st_mtime_ns == before


def test_figures_do_not_depend_on_the_users_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (csv(tmp_path / f"{name}.csv", [("p", 4, c), ("q", 4, 2)]) for name, c in (("a", 1), ("b", 3)))
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    monkeypatch.setenv("MATPLOTLIBRC", str(tmp_path / "matplotlibrc"))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    command = [sys.executable, "-m", "maxk", "compare", str(one), str(two), "--plot", str(tmp_path / "c.png")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_file_is_refused_before_another_is_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl(Path("s.jsonl"), [{"problem_id": "p", "program": "print(1)"}])
    jsonl(Path("p.jsonl"), [{"problem_id": "p", "tests": [{"stdin": "", "expected": "1"}]}])
    assert cli.main(["compare", "s.jsonl", "none.jsonl", "--problems", "p.jsonl"]) == 2
    assert capsys.readouterr().err == "maxk compare: none.jsonl: no such file (did you mean 's.jsonl'?)\n"
    assert not Path("s.verdicts.jsonl").exists()


@pytest.mark.parametrize("command", ["compare a=s.jsonl b=s.jsonl", "select s.jsonl"])
def test_problems_without_samples_are_told(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl(Path("p.jsonl"), [PROBLEM, {**PROBLEM, "problem_id": "other"}])
    jsonl(Path("s.jsonl"), [{"problem_id": "double", "program": RIGHT}])
    assert cli.main([*command.split(), "--problems", "p.jsonl"]) == 0
    assert "s.jsonl: left out 1 problem without samples, first 'other'\n" in capsys.readouterr().err


def test_two_systems_of_one_name_are_refused_before_one_is_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl(Path("p.jsonl"), [PROBLEM])
    for folder in map(Path, ("first", "second")):
        folder.mkdir()
        jsonl(folder / "s.jsonl", [{"problem_id": "double", "program": RIGHT}])
    assert run("first/s.jsonl", "second/s.jsonl", "--problems", "p.jsonl") == 2
    assert capsys.readouterr().err == "maxk compare: two systems are called 's'; name them (first=FILE second=FILE)\n"
    assert not Path("first/s.verdicts.jsonl").exists()


@pytest.mark.parametrize("target", ["a.csv", "./b.csv", "link.csv"])
def test_json_never_replaces_an_input(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        csv(Path(f"{name}.csv"), [("p", 4, 1), ("q", 4, 2)])
    Path("link.csv").symlink_to("a.csv")
    before = Path("a.csv").read_text()
    assert run("a.csv", "b.csv", "--json", target) == 2
    assert Path("a.csv").read_text() == Path("b.csv").read_text() == before


@pytest.mark.parametrize("target", ["old.json", "link.json", "/dev/full"])
def test_a_full_disk_costs_neither_the_table_nor_the_old_file(target: str, tmp_path: Path) -> None:
    for name, c in (("a", 1), ("b", 3)):
        csv(tmp_path / f"{name}.csv", [("p", 4, c), ("q", 4, 2)])
    (tmp_path / "old.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("old.json")
    before = sorted(tmp_path.iterdir())
    command = [sys.executable, "-m", "maxk", "compare", "a.csv", "b.csv", "--json", target]
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 0; exec "$@"', "", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout.startswith("**a against b**")
    assert done.stderr.startswith(f"maxk compare: {target}: cannot be written (")
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "old.json").read_text() == "{}"
    assert sorted(tmp_path.iterdir()) == before
    assert run(tmp_path / "a.csv", tmp_path / "b.csv", "--json", tmp_path / "link.json") == 0
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "old.json").read_text())["problems"] == 2


def test_verdicts_may_come_from_standard_input(tmp_path: Path) -> None:
    right = {"sample": 0, "problem_id": "p", "key": "", "judged": "outputs", "reward": 1.0, "statuses": ["passed"]}
    jsonl(tmp_path / "a.jsonl", [right])
    jsonl(tmp_path / "b.jsonl", [{**right, "reward": 0.0, "statuses": ["wrong_answer"]}])
    command = [sys.executable, "-m", "maxk", "compare", "a=/dev/stdin", "b.jsonl"]
    with (tmp_path / "a.jsonl").open() as stdin:
        done = subprocess.run(command, cwd=tmp_path, stdin=stdin, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| 1 | 1.000 | 0.000 |" in done.stdout


def test_json_never_replaces_the_verdicts_of_an_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl(Path("p.jsonl"), [PROBLEM])
    for name in ("a", "b"):
        jsonl(Path(f"{name}.jsonl"), [{"problem_id": "double", "program": RIGHT}])
    assert run("a.jsonl", "b.jsonl", "--problems", "p.jsonl", "--json", "b.verdicts.jsonl") == 2
    assert "--json: b.verdicts.jsonl is read by this command" in capsys.readouterr().err
    assert not Path("b.verdicts.jsonl").exists()  # nothing was graded


def test_a_locale_without_a_minus_sign_gets_its_escape(tmp_path: Path) -> None:
    for name, c in (("a", 1), ("b", 3)):
        csv(tmp_path / f"{name}.csv", [("p", 4, c), ("q", 4, 2)])
    command = [sys.executable, "-m", "maxk", "compare", "a.csv", "b.csv"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, env=ascii_only, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u2212" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.csv"], "give two or more systems"),
        (["a.csv", "none.csv"], "none.csv: no such file"),
        (["a.csv", "a.csv"], "two systems are called 'a'; name them"),
        (["a.csv", "s.jsonl"], "s.jsonl: contains no verdicts; if it has samples, give --problems FILE"),
        (["a.csv", "empty.jsonl"], "empty.jsonl: the file is empty"),
        (["a.csv", "folder"], "folder: is a folder; give the scores of a policy"),
        (["a.csv", "b=b.csv", "--k", "1,9"], "--k: 9 is more than 4, the fewest samples of a problem"),
        (["a.csv", "b=b.csv", "--plot", "c.svg"], "--plot: expected a name that ends in .png or .pdf, got c.svg"),
        (["a.csv", "b=b.csv", "--json", "no/c.json"], "argument --json: no/c.json: no folder no; make it, or name an"),
        (["a.csv", "b=b.csv", "--plot", "no/c.png"], "argument --plot: no/c.png: no folder no; make it, or name an"),
        (["a.csv", "b=b.csv", "--json", "folder"], "argument --json: folder is a folder; name a file"),
        (["a.csv", "b=b.csv", "--cache", "no/c.db"], "argument --cache: no/c.db: no folder no; make it, or name anoth"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        csv(Path(f"{name}.csv"), [("p", 4, 1), ("q", 4, 2)])
    jsonl(Path("s.jsonl"), [{"problem_id": "p", "program": "x"}])
    Path("empty.jsonl").touch()
    Path("folder").mkdir()
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not Path("no").exists()


_BEHIND = "behind b at small k, and not ahead at the largest, k = 8"


@pytest.mark.parametrize(
    ("k", "low", "high", "said"),
    [
        (2, 1, None, "above b from k = 2 on (interval of the crossing k: 1 to beyond 8)"),
        (None, 4, None, f"{_BEHIND} (interval of the crossing k: 4 to beyond 8)"),
        (None, None, None, f"{_BEHIND} (interval of the crossing k: beyond 8)"),
        (2, 2, 4, "above b from k = 2 on (interval of the crossing k: 2 to 4)"),
    ],
)
def test_a_crossing_is_worded_as_the_guide_does(
    k: int | None, low: int | None, high: int | None, said: str, root: Path
) -> None:
    crossing = Crossing("a", "b", "max", k, low, high, 8)
    assert _crossed(crossing) == f"max@k: a is {said}"
    guide = " ".join((root / "docs" / "compare.md").read_text().split())
    assert '"beyond 128"' in guide
    assert '"a is behind b at small k, and not ahead at the largest, k = 128"' in guide


@pytest.mark.parametrize(("ks", "lines"), [([1], 0), ([8], 0), ([1, 8], 1)])
def test_a_comparison_at_one_k_says_nothing_of_crossings(tmp_path: Path, ks: list[int], lines: int) -> None:
    a, b = (csv(tmp_path / f"{name}.csv", [("p", 8, c), ("q", 8, c)]) for name, c in (("a", 3), ("b", 2)))
    assert to_markdown(compare(paired(read(a, b)), ks)).count("crossing k") == lines
