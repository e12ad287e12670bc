"""Reads sample files, in maxk's form or another tool's, as samples with one program each, in order (docs/grade.md).

A form (`FORMS`) is detected from the keys of the first row. A null sample has no program and is `unparseable`; any
other value that is not text is a UserError with file, line and key. Of JSON lines, one is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from maxk.artifacts.json_rows import Row, first_given, identifier, rows
from maxk.errors import UserError, described
from maxk.evaluation.problem_files import Form, Task, detect
from maxk.grading import extract_program

PROGRAM, COMPLETION, CONTINUATION, RESPONSE = "program", "completion", "continuation", "response"


class Sample(NamedTuple):
    """One sample: what the model wrote for a problem, how to read it (`kind`), and its location."""

    where: str
    problem_id: str
    text: str | None
    kind: str

    def solution(self, task: Task) -> str | None:
        """The complete solution, or None if there is none."""
        if self.text is None or self.kind == PROGRAM:
            return self.text
        if self.kind == CONTINUATION:
            return task.continued(self.text)
        if self.kind == RESPONSE and "```" not in self.text and "~~~" not in self.text:
            return self.text
        return extract_program(self.text).program


@dataclass(frozen=True)
class SampleFile:
    """A file of samples; `form` skips detection."""

    path: Path
    form: str | None = None

    def samples(self) -> Iterator[Sample]:
        """The samples in order."""
        for _, samples in self.rows():
            yield from samples

    def rows(self) -> Iterator[tuple[Row, list[Sample]]]:
        """The rows, each with its samples."""
        chosen: Any = FORMS[self.form] if self.form else None
        filters: set[str] = set()
        checked: Any = None  # keys of the last row checked: nearly all rows have the same, and each check costs time
        for row in rows(self.path):
            if row.value.keys() != checked:
                chosen = detect(row, [chosen] if chosen else FORMS.values(), "samples")
                checked = row.value.keys()
            if chosen is FORMS["lm-eval"]:
                _require_one_filter(row, filters)
            yield row, chosen.read(row)

    def unread(self) -> list[str]:
        """Keys of the first row that are not read, if it is in maxk's form; one may be misspelt."""
        first = next(rows(self.path), None)
        if first is None or (self.form or detect(first, FORMS.values(), "samples").name) != "maxk":
            return []
        read = {"problem_id", first_given(first, "program", "completion")}
        return [key for key in first.value if key not in read]


def _require_one_filter(row: Row, seen: set[str]) -> None:
    """lm-eval writes every sample once per filter."""
    if "filter" in row.value:
        seen.add(str(row.value["filter"]))
    if len(seen) > 1:
        raise UserError(f"{row.where}: several values of filter ({', '.join(sorted(seen))}); keep rows of one")


def _sample(row: Row, key: str, value: Any, problem_id: str, kind: str) -> Sample:
    if value is not None and not isinstance(value, str):
        raise UserError(f"{row.where}: {key} must be text or null, got {described(value)}")
    return Sample(row.where, problem_id, value, kind)


def _texts(row: Row, key: str, value: Any, problem_id: str, kind: str) -> list[Sample]:
    """A text, or every text of a list, which may be nested once: lm-eval has one list per request."""
    if not isinstance(value, list):
        return [_sample(row, key, value, problem_id, kind)]
    flat = [inner for item in value for inner in (item if isinstance(item, list) else [item])]
    return [_sample(row, key, inner, problem_id, kind) for inner in flat]


def _own(row: Row) -> list[Sample]:
    key = first_given(row, "program", "completion")
    kind = PROGRAM if key == "program" else COMPLETION
    return [_sample(row, key, row.value[key], identifier(row, "problem_id"), kind)]


def _evalplus(row: Row) -> list[Sample]:
    key = first_given(row, "solution", "completion")
    kind = PROGRAM if key == "solution" else CONTINUATION
    return [_sample(row, key, row.value[key], identifier(row, "task_id"), kind)]


def _livecodebench(row: Row) -> list[Sample]:
    codes = row.value["code_list"]
    if not isinstance(codes, list):
        raise UserError(f"{row.where}: code_list must be a list of programs, got {described(codes)}")
    return [_sample(row, "code_list", code, identifier(row, "question_id"), PROGRAM) for code in codes]


def _lm_eval(row: Row) -> list[Sample]:
    doc = row.value["doc"]
    if not isinstance(doc, dict) or not {"task_id", "question_id", "problem_id", "id"} & set(doc):
        raise UserError(f"{row.where}: doc must have task_id, question_id, problem_id or id, got {described(doc)}")
    problem_id = identifier(Row(f"{row.where}: doc", doc), *(k for k in _IDS if k in doc))
    key = first_given(row, "filtered_resps", "resps")
    return _texts(row, key, row.value[key], problem_id, RESPONSE)


_IDS = ("task_id", "question_id", "problem_id", "id")


def _apps(row: Row) -> list[Sample]:
    return [one for name, codes in row.value.items() for one in _texts(row, name, codes, name, PROGRAM)]


class _NumberedForm(Form):
    """APPS's form, whose keys are numbers."""

    def matches(self, row: Row) -> bool:
        return bool(row.value) and all(key.isdigit() for key in row.value)


FORMS = {
    form.name: form
    for form in (
        Form("maxk", [("problem_id", "program"), ("problem_id", "completion")], _own),
        Form("evalplus", [("task_id", "solution"), ("task_id", "completion")], _evalplus),
        Form("livecodebench", [("question_id", "code_list")], _livecodebench),
        Form("lm-eval", [("doc", "filtered_resps"), ("doc", "resps")], _lm_eval),
        _NumberedForm("apps", [("numbers of problems",)], _apps),
    )
}
"""Forms of sample files by name, in the order in which they are tried."""
