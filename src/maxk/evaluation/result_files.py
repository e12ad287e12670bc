"""Writes graded samples as another tool writes its results, so that its scripts can read them.

As human-eval's `_results.jsonl`, EvalPlus's `eval_results.json`, LiveCodeBench's `_eval_all.json`, or lm-eval's samples
with `pass@1`, the fraction of a row's responses that passed. The file is written completely or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from maxk.artifacts.json_rows import Row
from maxk.errors import UserError
from maxk.evaluation.problem_files import Task
from maxk.evaluation.sample_files import Sample, SampleFile
from maxk.grading.verdicts import PASSED, TIME_LIMIT


class Graded(NamedTuple):
    """A sample, its problem, and the statuses of its tests."""

    sample: Sample
    task: Task
    statuses: Sequence[str]

    @property
    def passed(self) -> bool:
        return set(self.statuses) == {PASSED}


GradedRows = Iterator[tuple[Row, list[Graded]]]


def path_of(samples: Path, form: str) -> Path:
    """Path of the results in a form: beside the samples, under a name that no other tool uses."""
    return beside(samples, f".maxk-{form}{'.json' if form in ('evalplus', 'livecodebench') else '.jsonl'}")


def beside(samples: Path, suffix: str) -> Path:
    """The path of the samples with its ending (`.jsonl.gz`, …) replaced by `suffix`.

    Raises UserError for `/dev/stdin` and its like: what the shell opened has no place beside it.
    """
    folder = samples.absolute().parent.resolve()
    if folder == Path("/dev") or Path("/proc") in folder.parents:
        raise UserError(f"{samples}: no place for results beside it; name --output, or give the file by its own name")
    name = re.sub(r"\.gz$", "", samples.name, flags=re.IGNORECASE)
    return samples.with_name((name.rpartition(".")[0] or name) + suffix)


def verdicts_beside(samples: Path) -> Path:
    """Where the verdicts of samples are, unless `--output` names another file."""
    return beside(samples, ".verdicts.jsonl")


def require_fit(form: str, samples: SampleFile) -> None:
    """Raises UserError unless results in a form can be written of these samples: before they are graded."""
    path = path_of(samples.path, form)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"--to {form}: {path} cannot be written; free its name, or move the samples elsewhere")
    for row, _ in samples.rows() if form == "lm-eval" else ():
        if "doc" not in row.value:
            raise UserError(f"{row.where}: --to lm-eval needs samples of lm-eval, whose rows it completes")


def write_results(path: Path, form: str, graded: GradedRows) -> None:
    """Writes the results of samples that fit the form (`require_fit`)."""
    with replacing(path) as file:
        WRITERS[form](file, graded)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[str]]:
    """A new file that replaces the one at `path` once it is whole. A pipe or a device is written to as it is."""
    path = path.resolve()  # a link stays a link
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as file:
            yield file
        return
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _status(statuses: Sequence[str]) -> str:
    """EvalPlus's name for the outcome."""
    if set(statuses) == {PASSED}:
        return "pass"
    return "timeout" if TIME_LIMIT in statuses else "fail"


def _first_failure(statuses: Sequence[str]) -> str:
    return next((status for status in statuses if status != PASSED), PASSED)


def _humaneval(file: IO[str], graded: GradedRows) -> None:
    for row, ones in graded:
        for one in ones:
            kept = row.value if len(ones) == 1 and "task_id" in row.value else _solution(one)
            failure = _first_failure(one.statuses)
            result = {PASSED: PASSED, TIME_LIMIT: "timed out"}.get(failure, f"failed: {failure}")
            file.write(json.dumps({**kept, "result": result, "passed": one.passed}) + "\n")


def _solution(one: Graded) -> dict[str, Any]:
    return {"task_id": one.sample.problem_id, "solution": one.sample.solution(one.task) or ""}


def _evalplus(file: IO[str], graded: GradedRows) -> None:
    date = datetime.now().strftime("%Y-%m-%d %H:%M")
    json.dump({"date": date, "hash": "", "eval": _grouped(graded, _evalplus_entry)}, file)


def _evalplus_entry(one: Graded) -> dict[str, Any]:
    """A sample's entry; `plus_status` is null for problems without added tests, as with EvalPlus's `--base-only`."""
    base = one.task.base_tests
    return {
        **_solution(one),
        "base_status": _status(one.statuses[:base]),
        "plus_status": None if base is None else _status(one.statuses[base:]),
        "base_fail_tests": [],
        "plus_fail_tests": [],
    }


def _livecodebench(file: IO[str], graded: GradedRows) -> None:
    results = []
    for question, ones in _grouped(graded, _code_and_grade).items():
        codes, passed = zip(*ones, strict=True)
        result = {"question_id": question, "code_list": codes, "graded_list": passed}
        results.append({**result, "pass@1": sum(passed) / len(passed)})
    json.dump(results, file)


def _code_and_grade(one: Graded) -> tuple[str | None, bool]:
    return one.sample.solution(one.task), one.passed


def _lm_eval(file: IO[str], graded: GradedRows) -> None:
    for row, ones in graded:
        mean = sum(one.passed for one in ones) / len(ones) if ones else None
        file.write(json.dumps({**row.value, "pass@1": mean}) + "\n")


def _grouped(graded: GradedRows, entry: Callable[[Graded], Any]) -> dict[str, list[Any]]:
    """Entries by problem, in the order of first appearance."""
    found: dict[str, list[Any]] = {}
    for _, ones in graded:
        for one in ones:
            found.setdefault(one.sample.problem_id, []).append(entry(one))
    return found


WRITERS: dict[str, Callable[[IO[str], GradedRows], None]] = {
    "humaneval": _humaneval,
    "evalplus": _evalplus,
    "livecodebench": _livecodebench,
    "lm-eval": _lm_eval,
}
"""Forms of results by name."""
