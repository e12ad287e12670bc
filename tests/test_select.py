"""Best-of-N with imperfect selectors: expectations against enumeration of all subsets, and `maxk select`."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxk import cli
from maxk.artifacts import files, records
from maxk.artifacts.records import Problem, Provenance, Test
from maxk.config import Config
from maxk.errors import UserError
from maxk.evaluation import problem_grader
from maxk.evaluation.selection import by_score, by_vote, distinct, read, select
from maxk.stages import verify

REWARDS = [0.0, 0.5, 1.0, 0.5, 0.25, 1.0]


def expected(k: int, chosen_from) -> float:
    """Mean over all subsets of k of the mean reward of those that may be chosen."""
    subsets = list(combinations(range(len(REWARDS)), k))
    return float(np.mean([np.mean([REWARDS[i] for i in chosen_from(subset)]) for subset in subsets]))


@pytest.mark.parametrize("scores", [[3, 1, 2, 2, 0, 1], [0, 0, 0, 0, 0, 0], [0.5, 1, 0, 1, 1, 0], [6, 5, 4, 3, 2, 1]])
def test_the_best_score_of_every_subset(scores: list[float]) -> None:
    def best(subset: tuple[int, ...]) -> list[int]:
        return [i for i in subset if scores[i] == max(scores[j] for j in subset)]

    ks = [1, 2, 3, 5, 6]
    assert by_score(scores, REWARDS, ks) == pytest.approx([expected(k, best) for k in ks])


@pytest.mark.parametrize("outputs", [[1, 2, 3, 2, 4, 3], [7, 2, 3, 2, 7, 3], [1, 2, 3, 4, 5, 6], [-1, 2, 3, 2, -1, 3]])
def test_the_vote_of_every_subset(outputs: list[int]) -> None:
    """Rewards are equal where outputs are, and 0 for programs without a vote."""
    rewards = [0.0 if output < 0 else output / 8 for output in outputs]

    def of_winners(subset: tuple[int, ...]) -> float:
        votes = [outputs[i] for i in subset if outputs[i] >= 0]
        if not votes:
            return 0.0
        most = max(map(votes.count, votes))
        return float(np.mean([output / 8 for output in set(votes) if votes.count(output) == most]))

    ks = [1, 2, 3, 4, 6]
    wanted = [np.mean([of_winners(subset) for subset in combinations(range(6), k)]) for k in ks]
    found = by_vote(outputs, rewards, ks, draws=40_000)
    assert found == pytest.approx(wanted, abs=0.01)
    assert found[0] == pytest.approx(wanted[0], abs=1e-12)  # one sample needs no simulation


def test_distinct_values_of_every_subset() -> None:
    numbers = [4, 4, 4, 9, 9, 2, 1]
    ks = [1, 2, 4, 7]
    wanted = [np.mean([len({numbers[i] for i in subset}) for subset in combinations(range(7), k)]) for k in ks]
    assert distinct(numbers, ks) == pytest.approx(wanted)


def test_no_program_is_not_one_more_program() -> None:
    numbers = [4, -1, 4, -1, 9]
    ks = [1, 2, 3, 5]
    wanted = [np.mean([len({numbers[i] for i in one} - {-1}) for one in combinations(range(5), k)]) for k in ks]
    assert distinct(numbers, ks) == pytest.approx(wanted)
    assert distinct([-1, -1], [1, 2]) == pytest.approx([0, 0])


# ------------------------------------------------------------------------------------------------------ files
ECHO, OTHER_ECHO, FIRST, LOOP = "print(input())", "x = input()\nprint(x)", "print('a')", "1/0"
PROBLEM = {"problem_id": "p", "tests": [{"stdin": one, "expected": one} for one in "abc"]}
PROGRAMS = [(ECHO, 0.1), (OTHER_ECHO, 0.2), (FIRST, 0.9), (LOOP, 0.5)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("p.jsonl").write_text(json.dumps(PROBLEM))
    rows = [{"problem_id": "p", "program": program, "rm": score} for program, score in PROGRAMS]
    Path("s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def run(*arguments: str) -> int:
    return cli.main(["select", *arguments])


def test_samples_are_graded_and_selected(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("s.jsonl", "--problems", "p.jsonl", "--score", "rm", "--json", "all.json", "--workers", "1") == 0
    lines = [json.loads(line) for line in Path("s.verdicts.jsonl").read_text().splitlines()]
    echo, other, first, loop = (line["outputs"] for line in lines)
    assert echo == other
    assert len(set(echo)) == 3
    assert set(first) == {echo[0]}
    assert loop == ["", "", ""]
    assert len({line["program"] for line in lines}) == 4
    content = json.loads(Path("all.json").read_text())["s.jsonl"]
    found = {(one["selector"], one["k"]): one["mean"] for one in content["rewards"]}
    # Tests 2 and 3 are scored: rewards 1, 1, 0, 0. The first test passes for three, two of which are right.
    assert found["oracle", 4] == 1.0
    assert found["first test", 4] == pytest.approx(2 / 3)
    assert found["majority vote", 4] == 1.0
    assert found["rm", 4] == 0.0
    assert found["rm", 1] == found["random", 4] == found["oracle", 1] == 0.5
    assert content["distinct_programs"]["4"] == 4.0
    assert content["distinct_outputs"]["4"] == 2.0  # of ECHO and of FIRST; LOOP has none
    said = capsys.readouterr()
    assert "| k | oracle | first test | majority vote | rm | random |" in said.out
    assert "1,000 random draws per problem." in said.out
    assert "The majority vote compares the outputs on all tests, the visible and the others" in said.out
    assert "not read" not in said.err


def test_problems_without_other_tests_are_left_out(here: Path) -> None:
    verdict = {"key": "0", "judged": "outputs", "program": "a", "reward": 1.0}
    rows = [
        {"sample": i, **verdict, "problem_id": name, "statuses": ["passed"] * tests, "outputs": ["0"] * tests}
        for i, (name, tests) in enumerate((("p", 1), ("q", 3)))
    ]
    path = Path("v.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = select(read(path), [1])
    assert (found.problems, found.left_out) == (1, 1)
    with pytest.raises(UserError, match=r"no problem has more than 3 tests; lower --visible"):
        read(path, visible=3)
    assert "first" not in " ".join(name for name, _ in select(read(path, visible=0), [1]).rewards)


def test_asserts_leave_no_outputs_to_vote_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two wrong programs agree with each other; the word that a driver prints for an assert says which are right."""
    task = {"task_id": 1, "prompt": "Double x.", "code": "", "test_list": [f"assert f({x}) == {2 * x}" for x in (1, 3)]}
    Path("mbpp.jsonl").write_text(json.dumps(task) + "\n")
    sources = ["def f(x):\n    return 2 * x", "def f(x):\n    return x + 1", None]
    Path("f.jsonl").write_text("".join(json.dumps({"problem_id": "1", "program": one}) + "\n" for one in sources))
    assert run("f.jsonl", "--problems", "mbpp.jsonl", "--json", "all.json", "--workers", "1") == 0
    assert json.loads(Path("f.verdicts.jsonl").read_text().splitlines()[0])["judged"] == "asserts"
    content = json.loads(Path("all.json").read_text())["f.jsonl"]
    assert {one["selector"] for one in content["rewards"]} == {"oracle", "first test", "random"}
    assert content["distinct_outputs"] is None
    assert content["distinct_programs"]["3"] == 2.0
    said = capsys.readouterr().out
    assert "| k | oracle | first test | random | distinct programs |" in said
    assert "No majority vote and no distinct outputs: these programs are judged by asserts" in said


def test_a_shard_without_its_number_is_refused(here: Path) -> None:
    Path("shards").mkdir()
    columns = {"problem_id": ["p"], "sample_index": [0], "extraction": ["bare"], "statuses": [["passed"]]}
    made = Provenance("verify", "x", {}, environment={"n": 1})
    files.write_table(Path("shards/0.parquet"), columns, records.VERDICT, made)
    with pytest.raises(UserError, match=r"^shards/0.parquet: does not say which shard it is; give a file that this"):
        read(Path("shards"))


def test_shards_of_the_pipeline(here: Path) -> None:
    """The same samples as verdict lines and in two shards."""
    assert run("s.jsonl", "--problems", "p.jsonl", "--workers", "1") == 0
    lines = [json.loads(line) for line in Path("s.verdicts.jsonl").read_text().splitlines()]
    for shard in (0, 1):
        rows = lines[2 * shard : 2 * shard + 2]
        columns = {name: [row[name] for row in rows] for name in ("problem_id", "statuses", "program", "outputs")}
        columns |= {"sample_index": [2 * shard, 2 * shard + 1], "extraction": ["bare"] * 2}
        made = Provenance("verify", "x", {}, environment={"shard": shard, "shards": 2, "n": 4})
        files.write_table(Path(f"shards/{shard}.parquet"), columns, records.VERDICT_AND_OUTPUTS, made)
    ks = [1, 2, 4]
    first, second = (select(read(Path(one)), ks) for one in ("shards", "s.verdicts.jsonl"))
    assert {key: one.value for key, one in first.rewards.items()} == {k: one.value for k, one in second.rewards.items()}
    assert (first.programs, first.outputs) == (second.programs, second.outputs)
    old = {name: columns[name] for name in records.VERDICT.names}
    files.write_table(Path("shards/1.parquet"), old, records.VERDICT, made)
    with pytest.raises(
        UserError, match=r"1.parquet: column 'program' .* is missing; give a file that this version of maxk wrote"
    ):
        read(Path("shards"))


def shard(number: int, indices: list[int], problem: str = "p", name: str = "", **changes: Any) -> None:
    """A shard of verdicts of one problem, one of two."""
    count = len(indices)
    columns = {"problem_id": [problem] * count, "sample_index": indices, "extraction": ["bare"] * count}
    columns |= {"statuses": [["passed"] * 2] * count, "program": ["a"] * count, "outputs": [["x"] * 2] * count}
    source = {"stage": "verify", "experiment": "x", "settings": {"cpu_s": 1}, "inputs": {"samples": str(number)}}
    environment = {"shard": number, "shards": 2, "n": 2, **changes.pop("environment", {})}
    made = Provenance(**{**source, "environment": environment, **changes})
    files.write_table(Path(f"shards/{name or number}.parquet"), columns, records.VERDICT_AND_OUTPUTS, made)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"experiment": "y"}, r"do not belong together: experiment is 'x' in one and 'y'"),
        ({"settings": {"cpu_s": 2}}, r"do not belong together: settings.cpu_s is 1 in one and 2"),
        ({"inputs": {"problems": "other"}}, r"do not belong together: inputs.problems is None in one and 'other'"),
        ({"environment": {"sandbox": "none"}}, r"do not belong together: sandbox is None in one and 'none'"),
        ({"environment": {"shards": 3}}, r"do not belong together: shards is 2 in one and 3 in the other"),
        ({"environment": {"n": 3}}, r"do not belong together: n is 2 in one and 3 in the other"),
        ({"environment": {"shard": 0}}, r"^shards: contains the shards 0, 0 of 2; run the pipeline again"),
        ({"stage": "sample"}, r"1.parquet: written by the stage sample; expected verdicts"),
    ],
)
def test_shards_of_two_evaluations_are_refused(changes: dict[str, Any], message: str, here: Path) -> None:
    """Also those that are left from another `sampling.shards` or n."""
    shard(0, [0, 1])
    shard(1, [0, 1], problem="q")
    assert read(Path("shards")).n == 2
    shard(1, [0, 1], problem="q", **changes)
    with pytest.raises(UserError, match=message):
        read(Path("shards"))


@pytest.mark.parametrize("absent", [0, 1])
def test_an_unfinished_evaluation_is_refused(absent: int, here: Path) -> None:
    """A run that is stopped or still going on."""
    shard(0, [0, 1])
    shard(1, [0, 1], problem="q")
    assert read(Path("shards/0.parquet")).n == 2  # one shard, asked for by name
    Path(f"shards/{absent}.parquet").unlink()
    with pytest.raises(UserError, match=rf"^shards: contains the shards {1 - absent} of 2; run the pipeline again"):
        read(Path("shards"))


def test_a_copy_of_a_shard_is_refused(here: Path) -> None:
    shard(0, [0, 1])
    shard(1, [0, 1], problem="q")
    shard(1, [0, 1], problem="q", name="1 copy")
    with pytest.raises(UserError, match=r"^shards: contains the shards 0, 1, 1 of 2"):
        read(Path("shards"))


def test_a_shard_without_problems_adds_nothing(here: Path) -> None:
    shard(0, [0, 1])
    shard(1, [])
    assert read(Path("shards")).n == 2
    shard(0, [])
    with pytest.raises(UserError, match=r"^shards: contains no verdicts$"):
        read(Path("shards"))


def test_the_stage_verify_keeps_what_votes_need(here: Path, seconds: Config) -> None:
    dataset, source = seconds.evaluated[0], Provenance("prepare", seconds.name, {})
    tests = [Test(one, one) for one in "abc"]
    files.write_problems(seconds.layout.problems(dataset), [Problem("p", dataset, "test", "Echo.", tests)], source)
    columns = {"problem_id": ["p"] * 5, "sample_index": range(5), "n_tokens": [1] * 5, "finish_reason": ["stop"] * 5}
    columns["completion"] = [f"```python\n{program}\n```" for program, _ in PROGRAMS] + ["I do not know."]
    columns["entropy"] = [None] * 5
    files.write_table(seconds.layout.samples("base", dataset, 0), columns, records.SAMPLE, source)
    with problem_grader.grader(seconds) as grader:
        verify._verify(seconds, "base", dataset, 0, grader)
    rows = files.read_table(seconds.layout.verdicts("base", dataset, 0), records.VERDICT_AND_OUTPUTS).to_pylist()
    outputs = [row["outputs"] for row in rows]
    assert outputs[0] == outputs[1]
    assert outputs[2] == outputs[0][:1] * 3 != outputs[0]
    assert outputs[3:] == [["", "", ""]] * 2
    assert len({row["program"] for row in rows}) == 5
    assert rows[4]["program"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["s.jsonl"], "s.jsonl: contains no verdicts; if it has samples, give --problems FILE"),
        (["old.jsonl"], "old.jsonl:1: contains no outputs, which votes need; move the file away and grade"),
        (["old.jsonl", "--score", "rm"], "old.jsonl: contains verdicts; --score needs the file of samples"),
        (["shards", "--score", "rm"], "shards: contains verdicts; --score needs the file of samples"),
        (
            ["shards/0.parquet", "--score", "rm"],
            "shards/0.parquet: contains verdicts; --score needs the file of",
        ),
        (["empty"], "empty: a folder without *.parquet"),
        (["cut.parquet"], "give a file that this version of maxk wrote"),
        (
            ["s.jsonl", "--problems", "p.jsonl", "--score", "rms"],
            "s.jsonl:1: no key 'rms' (did you mean 'rm'?); known: ",
        ),
        (["s.jsonl", "--problems", "p.jsonl", "--score", "program"], "s.jsonl:1: program must be a number"),
        (["s.jsonl", "--problems", "p.jsonl", "--visible", "3"], "p.jsonl: no problem has more than 3 tests"),
        (["s.jsonl", "late.jsonl", "--problems", "p.jsonl", "--score", "rm"], "late.jsonl:2: rm must be a number for"),
        (["s.jsonl", "old.jsonl", "--problems", "p.jsonl", "--score", "rm"], "old.jsonl: contains verdicts; --score"),
        (["s.jsonl", "--problems", "p.jsonl", "--json", "none/a.json"], "none/a.json: no folder none; make it, or"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {"sample": 0, "problem_id": "p", "key": "0", "judged": "outputs", "reward": 1.0, "statuses": ["passed"] * 3}
    Path("old.jsonl").write_text(json.dumps(old) + "\n")
    shard(0, [0, 1])
    Path("cut.parquet").write_bytes(Path("shards/0.parquet").read_bytes()[:-4])
    Path("empty").mkdir()
    late = [{"problem_id": "p", "program": "print(1)", "rm": score} for score in (1, None)]
    Path("late.jsonl").write_text("".join(json.dumps(row) + "\n" for row in late))
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not list(Path().glob("*.verdicts.jsonl"))  # found before anything is graded
