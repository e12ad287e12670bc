"""Honest programs end in the grader as they end under plain Python, in every tier and mode."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from honest_programs import PROGRAMS

from maxk.grading import Grader, Limits, Submission

# Without files there is nothing to import later and no standard input to map by path.
NEEDS_FILES = {"mmap_stdin"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, bool]]:
    """What plain Python prints for each program, and whether it ends well."""
    folder = tmp_path_factory.mktemp("plain")
    environment = {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "HOME": str(folder), "PATH": os.environ["PATH"]}
    answers = {}
    for name, source, stdin in PROGRAMS:
        (folder / name).mkdir()
        script, data = folder / name / "main.py", folder / name / "input.txt"
        script.write_text(source)
        data.write_text(stdin)
        with data.open("rb") as file:
            done = subprocess.run(
                [sys._base_executable, "-s", "-W", "ignore", str(script)],
                stdin=file,
                capture_output=True,
                env=environment,
                cwd=folder / name,
                timeout=600,
                check=False,
            )
        answers[name] = done.stdout.decode(errors="surrogateescape"), done.returncode == 0
    return answers


def test_the_suite_is_large_enough() -> None:
    assert len({name for name, _, _ in PROGRAMS}) == len(PROGRAMS) >= 60


@pytest.mark.parametrize(
    ("sandbox", "mode"),
    [("bubblewrap", "auto"), ("bubblewrap", "fork"), ("landlock", "fork"), ("seccomp", "auto"), ("off", "fork")],
)
def test_programs_end_as_under_plain_python(sandbox: str, mode: str, plain: dict[str, tuple[str, bool]]) -> None:
    kept = [program for program in PROGRAMS if sandbox != "seccomp" or program[0] not in NEEDS_FILES]

    def exactly(stdin: str, expected: str, output: str) -> bool:
        return output == expected

    with Grader(Limits(cpu_s=10), sandbox=sandbox, mode=mode) as grader:
        tests = [Submission(source, [(stdin, plain[name][0])] * 2, checker=exactly) for name, source, stdin in kept]
        verdicts = grader.grade(tests)
    bad_text = {"bad_utf8_escape"}  # prints a byte that is not UTF-8, which no expected output can be
    wrong = {}
    for (name, _, _), verdict in zip(kept, verdicts, strict=True):
        ends_well = plain[name][1]
        expected = "wrong_answer" if name in bad_text else "passed" if ends_well else "runtime_error"
        if set(verdict.statuses) != {expected}:
            wrong[name] = verdict.statuses, expected
    assert wrong == {}
