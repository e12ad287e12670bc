"""`maxk grade` on plain JSON lines."""

from __future__ import annotations

import fcntl
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maxk import cli
from maxk.artifacts import json_rows
from maxk.errors import UserError, counted
from maxk.estimators import usual_ks
from maxk.evaluation import problem_files, verdict_files
from maxk.evaluation.sample_files import FORMS
from maxk.grading import Grader
from maxk.stages import grade
from maxk.statistics import mean

PROBLEMS = [
    {"problem_id": "double", "tests": [{"stdin": "2", "expected": "4"}, {"stdin": "5", "expected": "10"}]},
    {"problem_id": "any", "tests": [{"stdin": "", "expected": "1 2"}], "time_limit_s": 0.5,
     "checker": "import sys\na, b = [sorted(open(p).read().split()) for p in sys.argv[2:]]\nprint(int(a == b))"},
]  # fmt: skip
SAMPLES = [
    {"problem_id": "double", "completion": "```python\nprint(int(input()) * 2)\n```"},
    {"problem_id": "double", "completion": "```python\nprint(4)\n```"},
    {"problem_id": "double", "completion": "I do not know."},
    {"problem_id": "any", "program": "print(2, 1)"},
    {"problem_id": "any", "program": "print(2)"},
    {"problem_id": "any", "program": "while True: pass"},
]


def write(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(*arguments: object) -> int:
    return grade.run(cli.parser("grade").parse_args([*map(str, arguments)]))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "problems.jsonl", PROBLEMS), write(tmp_path / "samples.jsonl", SAMPLES)


def test_verdicts_and_summary(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    run(*files, "--k", "1,2,3")
    rows = [json.loads(line) for line in files[1].with_suffix(".verdicts.jsonl").read_text().splitlines()]
    assert [(row["sample"], row["reward"]) for row in rows] == [
        (0, 1.0),
        (1, 0.5),
        (2, 0.0),
        (3, 1.0),
        (4, 0.0),
        (5, 0.0),
    ]
    assert rows[2]["statuses"] == ["unparseable"] * 2
    assert rows[5]["statuses"] == ["time_limit"]
    summary = json.loads(capsys.readouterr().out)
    assert summary["test_statuses"] == {"passed": 4, "wrong_answer": 2, "unparseable": 2, "time_limit": 1}  # of 9 tests
    assert summary["max@k"] == pytest.approx({"1": (0.5 + 1 / 3) / 2, "2": (5 / 6 + 2 / 3) / 2, "3": 1.0})
    assert summary["pass@k"] == pytest.approx({"1": 1 / 3, "2": 2 / 3, "3": 1.0})


def test_without_k_max_at_k_is_that_of_compare(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    run(*files)
    summary = json.loads(capsys.readouterr().out)
    assert list(summary["max@k"]) == list(summary["pass@k"]) == ["1", "2", "3"]  # n = 3
    assert usual_ks(12) == [1, 2, 4, 8, 12]
    assert usual_ks(8) == [1, 2, 4, 8]


@pytest.mark.parametrize("content", ["", "[]", "\n"])
def test_a_file_without_samples_is_an_error(
    content: str, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files[1].write_text(content)
    assert cli.main(["grade", *map(str, files), "--workers", "1"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"maxk grade: {files[1]}: contains no samples"
    assert not files[1].with_suffix(".verdicts.jsonl").exists()


def test_one_of_a_kind_is_no_plural(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert [counted(n, "sample") for n in (0, 1, 2)] == ["0 samples", "1 sample", "2 samples"]
    assert [counted(n, "policy", "policies") for n in (1, 2)] == ["1 policy", "2 policies"]
    write(files[1], SAMPLES[:1])
    run(*files)
    assert "1 of 2 problems has no sample (any)" in json.loads(capsys.readouterr().out)["note"]
    write(files[1], [SAMPLES[0], SAMPLES[3]])
    with pytest.raises(UserError, match=r"2 is more than the 1 sample of problem 'double'"):
        run(*files, "--k", "2")


def test_a_stopped_run_goes_on_where_it_ended(files: tuple[Path, Path]) -> None:
    run(*files)
    output = files[1].with_suffix(".verdicts.jsonl")
    whole = [json.loads(line) for line in output.read_text().splitlines()]
    lines = output.read_text().splitlines(keepends=True)
    output.write_text("".join(lines[:2]) + lines[2][:10])  # killed while writing the third
    run(*files)
    again = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["sample"], row["statuses"]) for row in again] == [(row["sample"], row["statuses"]) for row in whole]
    before = output.read_text()
    run(*files)
    assert output.read_text() == before


@pytest.mark.parametrize("name", ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_standard_input_needs_an_output(name: str, files: tuple[Path, Path], tmp_path: Path) -> None:
    """As root, verdicts went to /dev/stdin.verdicts.jsonl."""

    def grade_stdin(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "maxk", "grade", str(files[0]), name, "--workers", "1", *options]
        with files[1].open() as samples:
            return subprocess.run(command, stdin=samples, capture_output=True, text=True)

    done = grade_stdin()
    assert done.returncode == 2
    said = f"maxk grade: {name}: no place for results beside it; name --output, or give the file by its own name"
    assert done.stderr.splitlines()[-1] == said
    assert grade_stdin("--output", str(tmp_path / "v.jsonl")).returncode == 0
    assert len((tmp_path / "v.jsonl").read_text().splitlines()) == len(SAMPLES)


def test_two_processes_do_not_grade_into_one_file(files: tuple[Path, Path]) -> None:
    output = files[1].with_suffix(".verdicts.jsonl")
    run(*files)
    whole = output.read_text()
    output.write_text(whole[: whole.index("\n") + 1])
    with output.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match=r"verdicts.jsonl: another process is grading into it; wait for it to end"):
            run(*files)
    run(*files)
    assert len(output.read_text().splitlines()) == len(SAMPLES)


@pytest.mark.parametrize(
    "when",
    [
        lambda output, text: (Grader, "canary", lambda self: output.write_text(text)),
        lambda output, text: (verdict_files, "_lock", lambda *_: output.write_text(text)),
    ],
    ids=["before it is opened", "before it is locked"],
)
def test_verdicts_that_another_process_added_are_not_added_again(
    when: Callable[[Path, str], Any], files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = files[1].with_suffix(".verdicts.jsonl")
    run(*files)
    finished = output.read_text()
    output.unlink()
    # The other one ends between the reading and the writing of this one, at the latest while this one takes the lock.
    monkeypatch.setattr(*when(output, finished))
    with pytest.raises(UserError, match=r"another process has changed it meanwhile; run the same command again"):
        run(*files)
    assert output.read_text() == finished


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reward": 7}, r".*:2: reward must be .*, got int 7; move it away or name another --output$"),
        (
            {"sample": 5},
            r".*:2: the verdict of sample 5, where that of sample 1 belongs; move it away or name another --output$",
        ),
    ],
)
def test_rows_that_grading_did_not_write_are_refused(change: dict, said: str, files: tuple[Path, Path]) -> None:
    run(*files)
    output = files[1].with_suffix(".verdicts.jsonl")
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    write(output, [rows[0], {**rows[1], **change}])
    with pytest.raises(UserError, match=said):
        run(*files)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("sample", r"the verdict of another program than .*samples\.jsonl:1 has now"),
        ("problem", r"a verdict of problem 'double', but .*samples\.jsonl:1 is of 'any'"),
        ("tests", r"made with other tests, checker or limits \(--cpu-s, --memory-mb\) of problem 'double';"),
        ("limit", r"made with other tests, checker or limits \(--cpu-s, --memory-mb\) of problem 'double';"),
    ],
)
def test_verdicts_of_other_input_are_refused(what: str, said: str, files: tuple[Path, Path]) -> None:
    run(*files)
    output = files[1].with_suffix(".verdicts.jsonl")
    before = output.read_text()
    options = []
    if what == "sample":
        write(files[1], [{**SAMPLES[0], "completion": "print(2)"}, *SAMPLES[1:]])
    elif what == "problem":
        write(files[1], [{**SAMPLES[0], "problem_id": "any"}, *SAMPLES[1:]])
    elif what == "tests":
        write(files[0], [{**PROBLEMS[0], "tests": [{"stdin": "2", "expected": "5"}]}, PROBLEMS[1]])
    else:
        options = ["--cpu-s", "1.5"]
    with pytest.raises(UserError, match=rf"verdicts\.jsonl:1: {said}"):
        run(*files, *options)
    assert output.read_text() == before


def test_k_above_n_and_uneven_samples_are_told(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="9 is more than the 3 samples of problem 'double'"):
        run(*files, "--k", "1,9")
    assert not files[1].with_suffix(".verdicts.jsonl").exists()  # told before any work
    uneven = write(tmp_path / "uneven.jsonl", SAMPLES[:5])
    capsys.readouterr()
    run(files[0], uneven)
    summary = json.loads(capsys.readouterr().out)
    assert summary["note"] == "no k above 2: problem 'any' has 2 samples, 'double' 3"
    assert "samples_a_problem" not in summary
    assert summary["max@k"] == pytest.approx({"1": 1 / 2, "2": (5 / 6 + 1) / 2})  # rewards 1, 1/2, 0 and 1, 0
    assert summary["pass@k"] == pytest.approx({"1": (1 / 3 + 1 / 2) / 2, "2": (2 / 3 + 1) / 2})
    with pytest.raises(UserError, match="3 is more than the 2 samples of problem 'any'"):
        run(files[0], uneven, "--k", "3")


def test_problems_without_samples_are_left_out_only_on_demand(
    tmp_path: Path, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    others = [{**PROBLEMS[0], "problem_id": name} for name in "abcd"]
    problems = write(tmp_path / "more.jsonl", [*PROBLEMS, *others])
    lost = write(tmp_path / "lost.jsonl", SAMPLES[:3])
    run(files[0], lost)
    note = "no max@k: 1 of 2 problems has no sample (any); --only-sampled leaves them out"
    said = capsys.readouterr()
    assert "max@k" not in (summary := json.loads(said.out))
    assert summary["note"] == note
    assert said.err.endswith(f"note: {note}\n")
    lack = r"5 of 6 problems have no sample \(any, a, b, …\)"
    with pytest.raises(UserError, match=rf"^--k: {lack}; --only-sampled leaves them out"):
        run(problems, lost, "--k", "1")
    with pytest.raises(UserError, match="--k: 4 is more than the 3 samples of problem 'double'"):
        run(problems, lost, "--k", "4", "--only-sampled")
    capsys.readouterr()
    run(problems, lost, "--k", "1,3", "--only-sampled")
    said = capsys.readouterr()
    summary = json.loads(said.out)
    assert (summary["problems"], summary["problems_scored"], summary["samples_a_problem"]) == (6, 1, 3)
    assert re.fullmatch(f"left out: {lack}", summary["note"])
    assert summary["max@k"] == pytest.approx({"1": 1 / 2, "3": 1})
    assert summary["max@k_low"] == summary["max@k_high"] == {"1": None, "3": None}  # one problem has no interval
    assert "means over 1 of 6 problems, no interval\n" in said.err
    assert "\n| 3 | 1.000 | 1.000 |\n" in said.err


def test_means_have_their_intervals_over_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = [4, 3, 3, 2, 2, 1]  # of 4 samples
    problems = [{**PROBLEMS[0], "problem_id": str(i)} for i in range(len(right))]
    samples = [
        {"problem_id": str(i), "program": "print(2 * int(input()))" if j < c else "print()"}
        for i, c in enumerate(right)
        for j in range(4)
    ]
    run(write(tmp_path / "p.jsonl", problems), write(tmp_path / "s.jsonl", samples))
    said = capsys.readouterr()
    summary = json.loads(said.out)
    assert (summary["problems"], summary["problems_scored"], "note" in summary) == (6, 6, False)
    assert summary["interval"] == {"level": 0.95, "over": "problems"}
    low, high = mean([c / 4 for c in right]).interval(0.95)
    for metric in ("max", "pass"):
        ends = [summary[f"{metric}@k_{end}"] for end in ("low", "high")]
        assert [end["1"] for end in ends] == pytest.approx([low, high])
        assert [end["4"] for end in ends] == [1, 1]  # all problems are solved
    assert "means over 6 problems, 95% intervals over problems\n" in said.err
    assert f"\n| 1 | 0.625 [{low:.3f}, {high:.3f}] | 0.625 [" in said.err
    assert "\n| 4 | 1.000 [no spread] | 1.000 [no spread] |\n" in said.err


def test_a_broken_checker_is_told_and_never_a_zero(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write(files[0], [PROBLEMS[0], {**PROBLEMS[1], "checker": "1/0"}])
    with pytest.raises(UserError, match=r"sample 3 of problem 'any'.* could not be graded"):
        run(*files)
    told = "could not grade 2 test runs: a checker does not accept the expected output '1 2': runtime_error"
    assert told in capsys.readouterr().err


def test_ungraded_samples_are_named_not_averaged(files: tuple[Path, Path]) -> None:
    run(*files)
    output = files[1].with_suffix(".verdicts.jsonl")
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    write(output, [*rows[:4], {**rows[4], "reward": None, "statuses": ["harness_error"]}, rows[5]])
    with pytest.raises(UserError, match=r"sample 4 of problem 'any'.* could not be graded"):
        run(*files)


@pytest.mark.parametrize(
    ("problems", "samples", "message"),
    [
        ([{"problem_id": "a", "tests": []}], [], "no tests"),
        ([{"tests": []}], [], r"p.jsonl:1: no known form of problems; got the keys tests; expected one of"),
        ([PROBLEMS[0], {**PROBLEMS[0], "tests": PROBLEMS[1]["tests"]}], [], "'double' appears twice"),
        (PROBLEMS, [{"problem_id": "x", "program": ""}], "no problem 'x'"),
        (PROBLEMS, [{"problem_id": "any"}], r"s.jsonl:1: no known form of samples; got the keys problem_id"),
        ([[1]], [], r"p.jsonl \(row 1\): expected a JSON object, got int"),
        ([], [], "no problem; the order is"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, problems: list, samples: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(write(tmp_path / "p.jsonl", problems), write(tmp_path / "s.jsonl", samples))


@pytest.mark.parametrize("name", sorted(FORMS))
def test_samples_in_the_place_of_problems_are_taken_for_samples(name: str, tmp_path: Path) -> None:
    for keys in FORMS[name].keys:
        row = dict.fromkeys(["0", "1"] if name == "apps" else keys, "x")
        samples = write(tmp_path / "s.jsonl", [row])
        with pytest.raises(UserError, match=r"s.jsonl:1: no known form of problems; .*; are these samples\? the order"):
            run(samples, samples)


@pytest.mark.parametrize("name", sorted(problem_files.FORMS))
def test_problems_in_the_place_of_samples_are_taken_for_problems(name: str, tmp_path: Path) -> None:
    """`--to lm-eval` reads the samples first; without it, lm-eval's samples also serve as problems."""
    for keys in problem_files.FORMS[name].keys:
        problems = write(tmp_path / "p.jsonl", [dict.fromkeys(keys, "x")])
        with pytest.raises(UserError, match=r"p.jsonl:1: no known form of samples; .*; are these problems\? the order"):
            run(write(tmp_path / "s.jsonl", SAMPLES), problems, "--to", "lm-eval")


def test_files_that_cannot_be_read(tmp_path: Path, files: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match="no such file"):
        run(tmp_path / "missing.jsonl", files[1])
    files[1].write_text("{not json\n")
    with pytest.raises(UserError, match=r"samples.jsonl:1: not JSON .*each line must be one object"):
        run(*files)
    write(files[1], SAMPLES)
    for wrong in (
        ("--k", "one"),
        ("--k", "0"),
        ("--cpu-s", "nan"),
        ("--memory-mb", "10000000000000"),
        ("--workers", "0"),
    ):
        with pytest.raises(UserError, match=f"argument {wrong[0]}: "):
            run(*files, *wrong)


# ------------------------------------------------------------------------------------------------------ odd input
@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({"tests": [{"stdin": 2, "expected": "4"}]}, r"p.jsonl:1, test 0: stdin must be text, got int 2"),
        ({"tests": [{"stdin": None, "expected": "4"}]}, r"p.jsonl:1, test 0: stdin must be text, got null"),
        ({"tests": [{"stdin": ["2"], "expected": ["4"]}]}, r"p.jsonl:1, test 0: stdin must be text, got list"),
        ({"tests": {"input": ["2"], "output": ["4"]}}, r"p.jsonl:1: tests must be a list"),
        ({"tests": "[]"}, r"p.jsonl:1: tests must be a list"),
        ({"tests": [{"stdin": "\ud83d", "expected": "4"}]}, r"p.jsonl:1, test 0: stdin has half of a surrogate pair"),
        ({"time_limit_s": "2 seconds"}, r"p.jsonl:1: time_limit_s must be a number above 0 and at most 3600, got str"),
        ({"time_limit_s": -1}, "time_limit_s must be a number above 0"),
        ({"time_limit_s": float("nan")}, "time_limit_s must be a number above 0"),
        ({"memory_limit_mb": "256 megabytes"}, "memory_limit_mb must be a number above 0"),
        ({"memory_limit_mb": 10**13}, "memory_limit_mb must be a number above 0"),
        ({"comparison": "exact"}, "comparison must be one of numbers, tokens, lines, got str 'exact'"),
        ({"checker": 7}, "checker must be text, got int 7"),
        ({"problem_id": None}, "problem_id must be text or a whole number, got null"),
        ({"strict_lines": True}, r"p.jsonl:1: unknown key 'strict_lines' \(write \"comparison\": \"lines\""),
        (
            {"time_limit": 2},
            r"p.jsonl:1: unknown key 'time_limit' \(did you mean 'time_limit_s'\?\); known: prob",
        ),
        ({"url": "x"}, r"p.jsonl:1: unknown key 'url' \(--ignore url if it is not needed\)"),
    ],
)
def test_odd_problems_are_refused_by_line_and_key(tmp_path: Path, problem: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(write(tmp_path / "p.jsonl", [{**PROBLEMS[0], **problem}]), write(tmp_path / "s.jsonl", SAMPLES[:1]))


@pytest.mark.parametrize(
    ("completion", "message"),
    [
        (["print(4)"], r"s.jsonl:2: completion must be text or null, got list"),
        ([{"role": "assistant", "content": "print(4)"}], r"s.jsonl:2: completion must be text or null, got list"),
        (7, r"s.jsonl:2: completion must be text or null, got int 7"),
    ],
)
def test_odd_samples_are_refused_by_line_and_key(tmp_path: Path, completion: object, message: str) -> None:
    samples = [SAMPLES[0], {"problem_id": "double", "completion": completion}]
    with pytest.raises(UserError, match=message):
        run(write(tmp_path / "p.jsonl", PROBLEMS[:1]), write(tmp_path / "s.jsonl", samples))


def test_keys_are_lost_only_where_that_is_asked_for(
    tmp_path: Path, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write(files[0], [{**PROBLEMS[0], "url": "x", "statement": "Double it.", "difficulty": "easy"}, PROBLEMS[1]])
    samples = write(tmp_path / "s.jsonl", [{**SAMPLES[0], "model": "m", "temperature": 1}, SAMPLES[3]])
    run(files[0], samples, "--ignore", "url,tags")
    assert "s.jsonl: keys that are not read: model, temperature\n" in capsys.readouterr().err
    run(files[0], samples, "--ignore", "url,tags")
    assert "not read" not in capsys.readouterr().err  # all are graded
    write(files[0], [{**HUMANEVAL, "time_limit_s": 9}])
    with pytest.raises(UserError, match=r"problems.jsonl:1: time_limit_s is not a key of humaneval's rows"):
        run(files[0], write(tmp_path / "t.jsonl", [{"task_id": "HumanEval/0", "solution": FULL}]))


@pytest.mark.parametrize("array", [False, True])
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, array: bool) -> None:
    text = json.dumps(PROBLEMS[0])[:-1] + ', "time_limit_s": 1, "time_limit_s": 9}'
    (tmp_path / "p.jsonl").write_text(f"[{text}]" if array else text)
    with pytest.raises(UserError, match=r"p.jsonl.*: .*key 'time_limit_s' appears twice"):
        run(tmp_path / "p.jsonl", write(tmp_path / "s.jsonl", SAMPLES[:1]))


def test_a_null_beside_the_other_key_is_no_sample(tmp_path: Path) -> None:
    """Tables with both columns have nulls in one."""
    samples = write(tmp_path / "s.jsonl", [
        {"problem_id": "double", "program": None, "completion": "```python\nprint(2 * int(input()))\n```"},
        {"problem_id": "double", "program": "print(4)", "completion": None},
        {"problem_id": "double", "program": None, "completion": None},
    ])  # fmt: skip
    run(
        write(tmp_path / "p.jsonl", [{**PROBLEMS[0], "comparison": None, "checker": None, "time_limit_s": None}]),
        samples,
    )
    assert [row["reward"] for row in verdicts(samples)] == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ({"inputs": 5, "outputs": 5}, r"p.jsonl:1: input_output: inputs must be a list"),
        ({"inputs": "ab", "outputs": "cd"}, r"p.jsonl:1: input_output: inputs must be a list"),
        ({"inputs": [[1]], "outputs": [1], "fn_name": 5}, r"p.jsonl:1: input_output: fn_name must be text"),
        ({"inputs": None, "outputs": None}, r"no problem that can be graded \(0 inputs and 0 outputs\)"),
        ([1], r"no problem that can be graded"),
    ],
)
def test_odd_cases_of_apps(tmp_path: Path, cases: object, message: str) -> None:
    problems = write(tmp_path / "p.jsonl", [{"problem_id": 0, "input_output": json.dumps(cases)}])
    with pytest.raises(UserError, match=message):
        run(problems, write(tmp_path / "s.jsonl", [{"problem_id": "0", "program": ""}]))


CASES = Path(__file__).parents[3] / "shared" / "cases" / "grade_fields" / "make.py"


@pytest.mark.skipif(not CASES.exists(), reason="the reported inputs are not here")
def test_reported_inputs_are_graded_or_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every sample file with right problems, and every problem file with right samples."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(CASES))
    pairs = [("p.jsonl", path.name) for path in sorted(tmp_path.glob("s*.jsonl"))]
    pairs += [(path.name, "s.jsonl") for path in sorted(tmp_path.glob("p_*.jsonl"))]
    for number, (problems, samples) in enumerate(pairs):
        status = cli.main(["grade", problems, samples, "--output", f"v{number}.jsonl", "--workers", "1"])
        error = capsys.readouterr().err
        assert status == 0 or (status == 2 and error.splitlines()[-1].startswith("maxk grade: ")), (problems, samples)
        assert "harness_error" not in error


def test_null_surrogates_and_huge_integers_are_graded_not_fatal(tmp_path: Path) -> None:
    samples = write(tmp_path / "s.jsonl", [
        {"problem_id": "double", "completion": None},
        {"problem_id": "double", "program": None},
        {"problem_id": "double", "completion": "```python\nprint('\ud83d')\n```"},
    ])  # fmt: skip
    samples.write_text(
        samples.read_text() + '{"problem_id": "double", "x": ' + "9" * 5000 + ', "program": "print(4)"}\n'
    )
    run(write(tmp_path / "p.jsonl", PROBLEMS[:1]), samples)
    assert [row["statuses"] for row in verdicts(samples)] == [
        ["unparseable"] * 2,
        ["unparseable"] * 2,
        ["runtime_error"] * 2,
        ["passed", "wrong_answer"],
    ]


def verdicts(samples: Path) -> list[dict]:
    return [json.loads(line) for line in samples.with_suffix(".verdicts.jsonl").read_text().splitlines()]


# ------------------------------------------------------------------------------------------------------ other tools
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'from typing import List\n\ndef total(xs: List[int]) -> int:\n    """Sum."""\n',
    "entry_point": "total",
    "canonical_solution": "    return sum(xs)\n",
    "test": "def check(candidate):\n    assert candidate([1, 2]) == 3\n    assert candidate([]) == 0\n",
}
FULL = HUMANEVAL["prompt"] + HUMANEVAL["canonical_solution"]


def test_humaneval_in_every_shape_that_its_samples_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = [
        ({"completion": "    return sum(xs)\n"}, "passed"),
        ({"completion": "```python\ndef total(xs: List[int]):\n    return sum(xs)\n```\nDone."}, "passed"),
        ({"completion": "    return sum(xs)\n```\nThis sums."}, "passed"),
        ({"solution": FULL}, "passed"),
        ({"solution": "def total(xs):\n    print('noise')\n    return sum(xs)"}, "passed"),
        ({"solution": "def total(xs):\n    return len(xs)"}, "wrong_answer"),
        ({"solution": "import sys\nsys.exit(0)"}, "wrong_answer"),
        ({"solution": "import os\nos._exit(0)"}, "wrong_answer"),
        ({"solution": "def total(xs):\n    return xs.x"}, "runtime_error"),
        ({"solution": "def total(xs:"}, "runtime_error"),
        ({"solution": None}, "unparseable"),
    ]
    problems = write(tmp_path / "p.jsonl", [HUMANEVAL])
    for key in ("completion", "solution"):  # a file has one form
        chosen = [(answer, status) for answer, status in answers if key in answer]
        samples = write(tmp_path / f"{key}.jsonl", [{"task_id": "HumanEval/0", **answer} for answer, _ in chosen])
        run(problems, samples)
        assert [row["statuses"] for row in verdicts(samples)] == [[status] for _, status in chosen]
        assert {row["judged"] for row in verdicts(samples)} == {"asserts"}
        assert json.loads(capsys.readouterr().out)["judged"] == {"asserts": len(chosen)}


def test_mbpp_with_the_identifiers_of_evalplus(tmp_path: Path) -> None:
    problem = {
        "task_id": 11,
        "text": "Add.",
        "code": "",
        "test_setup_code": "two = 2",
        "test_list": ["assert add(1, 1) == two", "assert add(1, 2) == 3"],
    }
    problems = write(tmp_path / "p.jsonl", [problem])
    samples = write(tmp_path / "s.jsonl", [
        {"task_id": "Mbpp/11", "solution": "def add(a, b): return a + b"},
        {"task_id": 11, "solution": "def add(a, b): return 2"},
    ])  # fmt: skip
    run(problems, samples)
    assert [row["statuses"] for row in verdicts(samples)] == [["passed"] * 2, ["passed", "wrong_answer"]]


def test_livecodebench_streams_and_calls(tmp_path: Path) -> None:
    problems = write(tmp_path / "p.jsonl", [
        {"question_id": "a", "metadata": "{}", "private_test_cases": "[]",
         "public_test_cases": json.dumps([{"input": "4", "output": "2.0", "testtype": "stdin"}])},
        {"question_id": "b", "metadata": json.dumps({"func_name": "pair"}), "private_test_cases": "[]",
         "public_test_cases": json.dumps([{"input": "[1, 2]\n3", "output": "[3, true]", "testtype": "functional"}])},
    ])  # fmt: skip
    samples = tmp_path / "s.json"
    samples.write_text(json.dumps([
        {"question_id": "a", "code_list": ["print(sqrt(int(input())))", "print(3)"]},
        {"question_id": "b", "code_list": [
            "class Solution:\n    def pair(self, xs, n):\n        print('debug')\n        return (sum(xs), n == 3)",
            "def pair(xs, n): return 3",
        ]},
    ], indent=1))  # fmt: skip
    run(problems, samples, "--to", "livecodebench")
    rows = [json.loads(line) for line in (tmp_path / "s.verdicts.jsonl").read_text().splitlines()]
    assert [row["statuses"] for row in rows] == [["passed"], ["wrong_answer"], ["passed"], ["wrong_answer"]]
    assert {row["judged"] for row in rows} == {"outputs"}
    results = json.loads((tmp_path / "s.maxk-livecodebench.json").read_text())
    assert [(row["question_id"], row["graded_list"], row["pass@1"]) for row in results] == [
        ("a", [True, False], 0.5),
        ("b", [True, False], 0.5),
    ]


def test_lm_eval_samples_hold_their_problems(tmp_path: Path) -> None:
    wrong = FULL.replace("sum", "len")
    row = {"doc_id": 0, "doc": HUMANEVAL, "resps": [["    return sum(xs)", "x"]], "filtered_resps": [[FULL, wrong]]}
    samples = write(tmp_path / "samples_humaneval.jsonl", [{**row, "filter": "create_test"}])
    run(samples, samples, "--to", "lm-eval")
    assert [row["statuses"] for row in verdicts(samples)] == [["passed"], ["wrong_answer"]]
    assert json.loads((tmp_path / "samples_humaneval.maxk-lm-eval.jsonl").read_text())["pass@1"] == 0.5
    write(samples, [{**row, "filter": "one"}, {**row, "filter": "two"}])
    with pytest.raises(UserError, match=r"samples_humaneval.jsonl:2: several values of filter \(one, two\)"):
        run(samples, samples)


def test_results_that_samples_do_not_fit_are_refused_before_grading(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"samples.jsonl:1: --to lm-eval needs samples of lm-eval"):
        run(*files, "--to", "lm-eval")
    (tmp_path / "samples.maxk-evalplus.json").mkdir()
    with pytest.raises(UserError, match=r"--to evalplus: .*samples.maxk-evalplus.json cannot be written"):
        run(*files, "--to", "evalplus")
    assert not (tmp_path / "samples.verdicts.jsonl").exists()


def test_apps_streams_and_calls(tmp_path: Path) -> None:
    problems = write(tmp_path / "p.jsonl", [
        {"problem_id": 0, "input_output": json.dumps({"inputs": ["2\n"], "outputs": ["4\n"]})},
        {"problem_id": 1, "input_output": json.dumps({"fn_name": "f", "inputs": [[2]], "outputs": [[4]]})},
        {"problem_id": 2, "input_output": ""},
    ])  # fmt: skip
    samples = tmp_path / "all_codes.json"
    samples.write_text(json.dumps({"0": ["print(2 * int(input()))"], "1": ["def f(x): return 2 * x"]}))
    run(problems, samples)
    rows = [json.loads(line) for line in (tmp_path / "all_codes.verdicts.jsonl").read_text().splitlines()]
    assert [row["statuses"] for row in rows] == [["passed"], ["passed"]]
    samples.write_text(json.dumps({"2": ["print(1)"]}))
    with pytest.raises(UserError, match=r"problem '2' cannot be graded \(0 inputs and 0 outputs\)"):
        run(problems, samples)


def test_written_back_for_evalplus_and_humaneval(tmp_path: Path) -> None:
    other = {**HUMANEVAL, "task_id": "HumanEval/1"}
    problems = write(tmp_path / "p.jsonl", [HUMANEVAL, other])
    samples = write(tmp_path / "s.jsonl", [
        {"task_id": name, "solution": solution, "note": 1}
        for solution in (FULL, "def total(xs):\n    while True: pass")
        for name in ("HumanEval/1", "HumanEval/0")
    ])  # fmt: skip
    run(problems, samples, "--to", "evalplus", "--cpu-s", "0.5")
    results = json.loads((tmp_path / "s.maxk-evalplus.json").read_text())["eval"]
    assert {task: [one["base_status"] for one in ones] for task, ones in results.items()} == {
        "HumanEval/1": ["pass", "timeout"],
        "HumanEval/0": ["pass", "timeout"],
    }
    assert results["HumanEval/0"][0]["solution"] == FULL
    run(problems, samples, "--to", "humaneval", "--cpu-s", "0.5")
    lines = [json.loads(line) for line in (tmp_path / "s.maxk-humaneval.jsonl").read_text().splitlines()]
    assert [(line["result"], line["passed"], line["note"]) for line in lines] == [
        ("passed", True, 1), ("passed", True, 1), ("timed out", False, 1), ("timed out", False, 1),
    ]  # fmt: skip


def test_a_forced_form_names_the_keys_expected_and_found(files: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match=r"samples.jsonl:1: .* got the keys problem_id, completion; expected .*task_id"):
        run(*files, "--format", "evalplus")
    with pytest.raises(UserError, match=r"problems.jsonl:1: .* got the keys problem_id, tests; expected .*test_list"):
        run(*files, "--problem-format", "mbpp")


DATA = Path(__file__).parents[1] / "data"


def test_all_reference_solutions_of_humaneval_pass_and_none_that_returns_nothing(tmp_path: Path) -> None:
    problems = DATA / "humaneval" / "HumanEval.jsonl.gz"
    rows = [row.value for row in json_rows.rows(problems)]
    samples = write(tmp_path / "s.jsonl", [
        {"task_id": row["task_id"], "completion": body}
        for row in rows
        for body in (row["canonical_solution"], "    return None\n")
    ])  # fmt: skip
    run(problems, samples)
    found = [row["reward"] for row in verdicts(samples)]
    assert found == [1.0, 0.0] * 164


def test_reference_solutions_of_mbpp_pass(tmp_path: Path) -> None:
    """A sample, with those that need setup code (367, 927) and those of the classes (601)."""
    problems = DATA / "mbpp" / "mbpp.jsonl.gz"
    chosen = {*range(1, 974, 20), 367, 927, 601}
    rows = [row.value for row in json_rows.rows(problems) if row.value["task_id"] in chosen]
    few = write(tmp_path / "p.jsonl", rows)
    samples = write(tmp_path / "s.jsonl", [{"task_id": row["task_id"], "solution": row["code"]} for row in rows])
    run(few, samples)
    assert {row["problem_id"]: row["statuses"] for row in verdicts(samples)} == {
        str(row["task_id"]): ["passed"] * len(row["test_list"]) for row in rows
    }


def test_memory_does_not_grow_with_the_samples(tmp_path: Path) -> None:
    """Measured in a process of its own, where all samples are alike, so that the grader runs one."""
    problems = write(tmp_path / "p.jsonl", PROBLEMS[:1])
    code = (
        "import sys; from maxk import cli; cli.main(sys.argv[1:]);"
        "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0], file=sys.stderr)"
    )
    peaks = []
    for count in (500, 10_000):
        samples = write(tmp_path / f"{count}.jsonl", [{"problem_id": "double", "program": "#" * 3000}] * count)
        arguments = ["grade", str(problems), str(samples), "--workers", "1"]
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
        peaks.append(int(done.stderr.split()[-1]) / 1024)
    assert peaks[1] - peaks[0] < 15  # MiB, of 30 more MB of samples


def test_output_never_touches_another_file(files: tuple[Path, Path], tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("no line end")
    for output in (files[1], notes):
        before = output.read_bytes()
        with pytest.raises(UserError, match="exists and contains no verdicts"):
            run(*files, "--output", output)
        assert output.read_bytes() == before
    with pytest.raises(UserError, match=r"--output: .*: no folder .*missing; make it, or name another file"):
        run(*files, "--output", tmp_path / "missing" / "v.jsonl")
    with pytest.raises(UserError, match="is a folder; name a file"):
        run(*files, "--output", tmp_path)
