"""Reference solutions are validated by the grader with half of the CPU time of a policy's programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from maxk.artifacts.records import Problem, Test
from maxk.config import Config
from maxk.evaluation import problem_grader

BURN = "import time\nwhile time.process_time() < {seconds}: pass\nprint(input())"


@pytest.mark.parametrize(("own", "configured"), [(None, 0.6), (0.6, 9.0)])
def test_reference_solutions_get_half_of_the_cpu_time(
    own: float | None, configured: float, seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that takes .45 s passes at a limit of .6 s, but is no valid reference; one that takes .15 s is."""
    monkeypatch.chdir(tmp_path)  # the verdict cache is made here
    config = seconds.model_copy(update={"verification": seconds.verification.model_copy(update={"cpu_s": configured})})
    problem = Problem("d/1", "d", "test", "Print the line.", [Test("1\n", "1\n")], time_limit_s=own)
    programs = [BURN.format(seconds=time) for time in (0.15, 0.45)]
    validate = problem_grader.validate_solutions(config, "prepare d: programs run")
    assert list(validate([(program, problem) for program in programs])) == [("passed",), ("time_limit",)]
    with problem_grader.grader(config) as grader:
        submissions = [problem_grader.submission(program, problem, grader.limits) for program in programs]
        assert [verdict.statuses for verdict in grader.grade(submissions)] == [("passed",), ("passed",)]
