"""Files of samples, in maxk's own form or another tool's → samples, one program each, in order.

| form | keys of a row | a sample is |
|---|---|---|
| `maxk` | problem_id, program or completion | a program, or a completion that holds one |
| `evalplus` | task_id, solution or completion (EvalPlus, HumanEval) | a program, or what continues the prompt |
| `livecodebench` | question_id, code_list | every program of the list |
| `lm-eval` | doc, filtered_resps or resps (`samples_*.jsonl`) | every response; a program, or text with a fenced one |
| `apps` | numbers as keys, each with a list of programs (`all_codes.json`) | every program of the lists |

The form is detected from the keys of the first row. A sample that is null has no program and is `unparseable`; anything
else that is not text is a UserError with file, line and key. Files are streamed: memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from maxk.errors import UserError
from maxk.evaluation.json_rows import Row, identifier, rows, shown
from maxk.evaluation.problem_files import Form, Task, detect
from maxk.grading import extract_program

PROGRAM, COMPLETION, CONTINUATION, RESPONSE = "program", "completion", "continuation", "response"


class Sample(NamedTuple):
    """One sample: what the model wrote for a problem, how that is to be read, and where it stands."""

    where: str
    problem_id: str
    text: str | None
    kind: str

    def solution(self, task: Task) -> str | None:
        """The complete solution, or None where there is none."""
        if self.text is None or self.kind == PROGRAM:
            return self.text
        if self.kind == CONTINUATION:
            return task.continued(self.text)
        if self.kind == RESPONSE and "```" not in self.text and "~~~" not in self.text:
            return self.text
        return extract_program(self.text).program


def read_samples(path: Path, form: str | None = None) -> Iterator[Sample]:
    """The samples of a file in order; `form` where it is not to be detected."""
    for _, samples in read_rows(path, form):
        yield from samples


def read_rows(path: Path, form: str | None = None) -> Iterator[tuple[Row, list[Sample]]]:
    """The rows of a file, each with its samples."""
    chosen: Form | None = FORMS[form] if form else None
    filtered: set[str] = set()
    for row in rows(path):
        chosen = chosen or detect(row, FORMS.values(), "samples")
        if not chosen.matches(row):
            detect(row, [chosen], "samples")  # raises, naming the keys
        if "filter" in row.value:
            filtered.add(str(row.value["filter"]))
        if len(filtered) > 1 and chosen.name == "lm-eval":
            raise UserError(f"{row.where}: several values of filter ({', '.join(sorted(filtered))}); keep rows of one")
        yield row, list(chosen.read(row))


def _sample(row: Row, key: str, value: Any, problem_id: str, kind: str) -> Sample:
    if value is not None and not isinstance(value, str):
        raise UserError(f"{row.where}: {key} must be text or null, got {shown(value)}")
    return Sample(row.where, problem_id, value, kind)


def _texts(row: Row, key: str, value: Any, problem_id: str, kind: str) -> Iterator[Sample]:
    """A text, or every text of a list, which may be nested once: lm-eval has one list for each request."""
    if not isinstance(value, list):
        yield _sample(row, key, value, problem_id, kind)
        return
    for item in value:
        for inner in item if isinstance(item, list) else [item]:
            yield _sample(row, key, inner, problem_id, kind)


def _own(row: Row) -> Iterator[Sample]:
    key, kind = ("program", PROGRAM) if "program" in row.value else ("completion", COMPLETION)
    yield _sample(row, key, row.value[key], identifier(row, "problem_id"), kind)


def _evalplus(row: Row) -> Iterator[Sample]:
    key, kind = ("solution", PROGRAM) if "solution" in row.value else ("completion", CONTINUATION)
    yield _sample(row, key, row.value[key], identifier(row, "task_id"), kind)


def _livecodebench(row: Row) -> Iterator[Sample]:
    codes = row.value["code_list"]
    if not isinstance(codes, list):
        raise UserError(f"{row.where}: code_list must be a list of programs, got {shown(codes)}")
    for code in codes:
        yield _sample(row, "code_list", code, identifier(row, "question_id"), PROGRAM)


def _lm_eval(row: Row) -> Iterator[Sample]:
    doc = row.value["doc"]
    if not isinstance(doc, dict) or not {"task_id", "question_id", "problem_id", "id"} & set(doc):
        raise UserError(f"{row.where}: doc must have task_id, question_id, problem_id or id, got {shown(doc)}")
    problem_id = identifier(Row(f"{row.where}: doc", doc), *(k for k in _IDS if k in doc))
    key = "filtered_resps" if "filtered_resps" in row.value else "resps"
    yield from _texts(row, key, row.value[key], problem_id, RESPONSE)


_IDS = ("task_id", "question_id", "problem_id", "id")


def _apps(row: Row) -> Iterator[Sample]:
    for problem_id, codes in row.value.items():
        if not problem_id.isdigit():
            raise UserError(f"{row.where}: keys must be the numbers of problems, got {problem_id!r}")
        yield from _texts(row, problem_id, codes, problem_id, PROGRAM)


class _NumberedForm(Form):
    """APPS's: its keys are numbers."""

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
