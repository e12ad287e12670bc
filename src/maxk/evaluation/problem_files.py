"""Reads problem files, in maxk's form or a benchmark's, as tasks on which samples can be graded (docs/grade.md).

A form (`FORMS`) is detected from the keys of the first row. A sample file of lm-eval also works as a problem file: the
`doc` of each row is its problem. A row in another form is a UserError with file, line and key. A row in the right form
that cannot be graded is left out, and samples for it are refused with the reason.

Outputs are compared outside the sandbox; asserts run inside, beside the program (`function_tests`). `Task.judged` and
every verdict record which.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maxk.artifacts import packed_tests
from maxk.artifacts.digests import digest_of
from maxk.artifacts.json_rows import Row, encodable, identifier, list_of, number, rows, text
from maxk.artifacts.json_text import parsed
from maxk.errors import UserError, counted, described, suggest
from maxk.evaluation import function_tests
from maxk.grading import CheckerProgram, Limits, Submission, extract_program
from maxk.grading.comparison import LINES, RULES, TOKENS
from maxk.grading.inputs import read_tests
from maxk.grading.verdicts import Test

OUTPUTS, ASSERTS = "outputs", "asserts"
LONGEST_S, LARGEST_MB = 3600.0, 1 << 20

# What the graders of LiveCodeBench and APPS import before a solution, which may rely on it.
_STARRED = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json "
    "builtins typing"
).split()
_LCB_PRELUDE = "".join(f"from {name} import *\n" for name in _STARRED) + (
    f"import {', '.join(name for name in _STARRED if name not in ('builtins', 'typing'))}\n"
    "sys.setrecursionlimit(50000)\n"
)
_APPS_PRELUDE = (
    "import sys, time, itertools, collections, math, fractions, random, heapq\n"
    "from itertools import accumulate, combinations, permutations, product\n"
    "from collections import ChainMap, Counter, OrderedDict, defaultdict, deque\n"
    "from functools import lru_cache\nfrom heapq import *\nfrom typing import List, Tuple\n"
    "from math import ceil, cos, exp, fabs, floor, gcd, log, log2, sin, sqrt, tan\n"
)


@dataclass(frozen=True)
class Task:
    """A problem as the grader runs it.

    template: the submission without its program.
    judged: OUTPUTS or ASSERTS.
    prompt, entry_point: the text that a sample continues, and the function that it must define.
    prelude: statements put before every program.
    driven: whether `function_tests` runs the program, as a module; `imports` are statements for its driver.
    base_tests: how many of EvalPlus's tests are the benchmark's originals; None if it is unknown.
    """

    problem_id: str
    template: Submission
    judged: str = OUTPUTS
    prompt: str = ""
    entry_point: str = ""
    prelude: str = ""
    driven: bool = False
    imports: str = ""
    base_tests: int | None = None

    def submission(self, solution: str | None) -> Submission:
        """The submission of a complete solution."""
        if solution is None:
            return self.template
        source = self.prelude + solution
        if self.driven:
            source = function_tests.driver(source, self.imports)
        return self.template._replace(program=source)

    def continued(self, text: str) -> str:
        """The complete solution from a continuation of the prompt.

        HumanEval's rule is `prompt + text`. A fenced block never occurs in a continuation of code, so it is a chat
        model's answer: it replaces the text and follows the prompt, whose imports it may need.
        """
        found = extract_program(text) if "```" in text or "~~~" in text else None
        if found is None or found.program is None:
            return self.prompt + text
        if self.entry_point and not re.search(
            rf"^[ \t]*(async )?def {self.entry_point}\b", found.program, re.MULTILINE
        ):
            return self.prompt + textwrap.indent(found.program, "    ")
        return f"{self.prompt}\n{found.program}"

    def digest(self) -> str:
        """Digest of everything that determines a verdict besides the solution."""
        checker = self.template.checker
        fields = replace(self, template=Submission(None, [])).__dict__ | {"template": None}
        limits = repr(self.template.limits)
        said = checker.source if isinstance(checker, CheckerProgram) else getattr(checker, "__qualname__", None)
        return digest_of([fields, self.template.tests, limits, said, self.template.comparison])


@dataclass(frozen=True)
class Problems:
    """Tasks by problem id, and why the others were left out."""

    tasks: Mapping[str, Task]
    left_out: Mapping[str, str]

    def task(self, where: str, problem_id: str) -> Task:
        """The task of a sample. Raises UserError if there is none."""
        if (task := self.tasks.get(problem_id) or self.tasks.get(_mbpp_number(problem_id))) is not None:
            return task
        if problem_id in self.left_out:
            raise UserError(f"{where}: problem {problem_id!r} cannot be graded ({self.left_out[problem_id]})")
        some = ", ".join(map(repr, list(self.tasks)[:3]))
        known = f"the only problem is {some}" if len(self.tasks) == 1 else f"the problems are {some}"
        raise UserError(f"{where}: no problem {problem_id!r}; {known}{', …' if len(self.tasks) > 3 else ''}")


class _LeftOut(Exception):
    """A row that is well-formed but cannot be graded."""


def read_problems(path: Path, limits: Limits, form: str | None = None, ignore: Collection[str] = ()) -> Problems:
    """All problems of a file.

    limits: for problems that set none. form: skips detection. ignore: further keys allowed in maxk's form, not read.
    """
    tasks: dict[str, Task] = {}
    left_out: dict[str, str] = {}
    chosen: ProblemForm | None = FORMS[form] if form else None
    for row in _problem_rows(path):
        chosen = detect(row, [chosen] if chosen else FORMS.values(), "problems")
        _refuse_lost_keys(row, chosen, ignore)
        problem_id = chosen.identify(row)
        try:
            task = chosen.read(row, problem_id, limits)
        except _LeftOut as reason:
            left_out[problem_id] = str(reason)
            continue
        if problem_id in tasks and tasks[problem_id].digest() != task.digest():
            raise UserError(f"{row.where}: problem {problem_id!r} appears twice with different tests; delete one row")
        tasks[problem_id] = task
    if not tasks:
        why = f" that can be graded ({next(iter(left_out.values()))})" if left_out else ""
        raise UserError(f"{path}: no problem{why}; the order is `maxk grade PROBLEMS SAMPLES`")
    return Problems(tasks, left_out)


_SETTINGS = ("time_limit_s", "memory_limit_mb", "comparison", "checker")
_KNOWN = ("problem_id", "tests", *_SETTINGS)
_UNREAD = ("id", "statement", "solutions", "difficulty", "split")  # keys of `source: jsonl`, whose files work here too
_FORMER = {"strict_lines": 'write "comparison": "lines" where it is true'}


def _refuse_lost_keys(row: Row, form: ProblemForm, ignore: Collection[str]) -> None:
    """Raises UserError for a setting that would be silently ignored: misspelt, or not supported by the form."""
    if form.name != "maxk":
        if lost := [key for key in (*_SETTINGS, *_FORMER) if key in row.value and key not in ignore]:
            raise UserError(f"{row.where}: {lost[0]} is not a key of {form.name}'s rows; only maxk's own form has it")
        return
    for key in row.value:
        if key not in _KNOWN and key not in _UNREAD and key not in ignore:
            former = f" ({_FORMER[key]})" if key in _FORMER else ""
            hint = former or suggest(key, _KNOWN) or f" (--ignore {key} if it is not needed)"
            raise UserError(f"{row.where}: unknown key {key!r}{hint}; known: {', '.join(_KNOWN)}")


def _problem_rows(path: Path) -> Iterator[Row]:
    """Rows of problems; for lm-eval's samples their `doc`, which every sample of a problem repeats."""
    for row in rows(path, unique=True):
        doc = row.value.get("doc")
        is_sample = "resps" in row.value or "filtered_resps" in row.value
        yield Row(row.where, doc) if isinstance(doc, dict) and is_sample else row


def _json(row: Row, key: str, value: Any) -> Any:
    """A value that may be JSON text."""
    try:
        return parsed(value) if isinstance(value, str) else value
    except ValueError as error:
        raise UserError(f"{row.where}: {key} is not JSON ({error})") from None


def _tests(row: Row, tests: Any) -> list[Test]:
    try:
        read = read_tests(tests, row.where)
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from None
    for position, test in enumerate(read):
        for name, value in zip(("stdin", "expected"), test, strict=True):
            encodable(value, f"{row.where}, test {position}: {name}")
    return read


# ------------------------------------------------------------------------------------------------------ forms
@dataclass(frozen=True)
class Form:
    """The form of a problem or sample file. `keys` lists alternatives, each a set of keys that a row must have."""

    name: str
    keys: Sequence[Sequence[str]]
    read: Callable[..., Any]

    def matches(self, row: Row) -> bool:
        return any(all(key in row.value for key in keys) for keys in self.keys)


_OF_SAMPLES = {"completion", "program", "solution", "code_list", "resps", "filtered_resps"}  # and APPS's numbers


def detect(row: Row, forms: Any, what: str) -> Any:
    """The first of `forms` whose keys a row has. Raises UserError with the expected and found keys if there is none."""
    for form in forms:
        if form.matches(row):
            return form
    expected = "; ".join(f"{form.name}: {' or '.join(' + '.join(keys) for keys in form.keys)}" for form in forms)
    found = ", ".join(list(row.value)[:12]) or "none"
    of_samples = _OF_SAMPLES & row.value.keys() or "".join(row.value).isdigit()
    of_problems = any(form.matches(row) for form in FORMS.values())
    other, swapped = ("samples", of_samples) if what == "problems" else ("problems", of_problems)
    hint = f"; are these {other}? the order is `maxk grade PROBLEMS SAMPLES`" if swapped else ""
    raise UserError(f"{row.where}: no known form of {what}; got the keys {found}; expected one of {expected}{hint}")


@dataclass(frozen=True)
class ProblemForm(Form):
    """A form of problems; `identify` returns a row's problem id."""

    identify: Callable[[Row], str]


def _own(row: Row, problem_id: str, limits: Limits) -> Task:
    comparison = row.value.get("comparison")
    if comparison is None:
        comparison = Submission._field_defaults["comparison"]
    if comparison not in RULES:
        raise UserError(f"{row.where}: comparison must be one of {', '.join(RULES)}, got {described(comparison)}")
    memory = number(row, "memory_limit_mb", limits.memory_mb, LARGEST_MB)
    own = replace(limits, cpu_s=number(row, "time_limit_s", limits.cpu_s, LONGEST_S), memory_mb=math.ceil(memory))
    checker = CheckerProgram(text(row, "checker")) if row.value.get("checker") is not None else None
    return Task(problem_id, Submission(None, _tests(row, row.value["tests"]), own, checker, comparison))


def _asserted(problem_id: str, codes: Sequence[str], limits: Limits, **of: Any) -> Task:
    """A task whose tests are code that must not raise. If a test uses numpy, the driver imports it."""
    template = Submission(None, [function_tests.assert_test(code) for code in codes], limits, comparison=TOKENS)
    imports = "import numpy" if any("numpy" in code for code in codes) else ""
    return Task(problem_id, template, judged=ASSERTS, driven=True, imports=imports, **of)


def _humaneval(row: Row, problem_id: str, limits: Limits) -> Task:
    entry = text(row, "entry_point")
    if not entry.isidentifier():
        raise UserError(f"{row.where}: entry_point must be a name, got {described(entry)}")
    test = f"{text(row, 'test')}\ncheck({entry})\n"
    return _asserted(problem_id, [test], limits, prompt=text(row, "prompt"), entry_point=entry)


def _mbpp(row: Row, problem_id: str, limits: Limits) -> Task:
    setup = "".join(f"{line}\n" for line in list_of(row, "test_imports", str, optional=True))
    setup += text(row, "test_setup_code") + "\n" if row.value.get("test_setup_code") is not None else ""
    asserts = [encodable(f"{setup}{test}\n", f"{row.where}: test_list") for test in list_of(row, "test_list", str)]
    more = [text(row, "test")] if row.value.get("test") is not None else []
    if not asserts:
        raise UserError(f"{row.where}: test_list is empty; a problem needs tests")
    return _asserted(problem_id, [*asserts, *more], limits, base_tests=len(asserts) if more else None)


def _mbpp_number(problem_id: str) -> str:
    """EvalPlus calls task 11 `Mbpp/11`."""
    return re.sub(r"^mbpp/(?=[0-9]+$)", "", problem_id, flags=re.IGNORECASE)


def _livecodebench(row: Row, problem_id: str, limits: Limits) -> Task:
    cases = [case for key in ("public_test_cases", "private_test_cases") for case in _cases(row, key)]
    if any(case.get("testtype") == "functional" for case in cases):
        metadata = _json(row, "metadata", row.value.get("metadata"))
        function = metadata.get("func_name") if isinstance(metadata, dict) else None
        if not isinstance(function, str):
            raise UserError(f"{row.where}: metadata must name func_name, got {described(metadata)}")
        tests = [_lcb_call(row, function, case) for case in cases]
        template = Submission(None, tests, limits, comparison=TOKENS)
        return Task(problem_id, template, entry_point=function, prelude=_LCB_PRELUDE, driven=True)
    tests = _tests(row, [(case.get("input"), case.get("output")) for case in cases])
    return Task(problem_id, Submission(None, tests, limits, comparison=LINES), prelude=_LCB_PRELUDE)


def _cases(row: Row, key: str) -> list[dict[str, Any]]:
    """Test cases of a column: a list, JSON, or packed."""
    value = row.value.get(key)
    if isinstance(value, str) and not value.lstrip().startswith("["):
        try:
            value = packed_tests.unpack(value)
        except packed_tests.ERRORS as error:
            raise UserError(f"{row.where}: {key} cannot be decoded ({error}); fetch the row again") from None
    value = _json(row, key, value)
    if not isinstance(value, list) or not all(isinstance(case, dict) for case in value):
        raise UserError(f"{row.where}: {key} must be a list of tests, got {described(value)}")
    return value


def _lcb_call(row: Row, function: str, case: dict[str, Any]) -> Test:
    """A test whose input has one JSON argument per line."""
    try:
        arguments = [parsed(line) for line in case["input"].split("\n") if line.strip()]
        return function_tests.call_test(function, arguments, parsed(case["output"]))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{row.where}: a functional test is not JSON ({error!r})") from None


def _apps(row: Row, problem_id: str, limits: Limits) -> Task:
    if "input_output" not in row.value:
        return _mapcoder(row, problem_id, limits)
    cases = _json(row, "input_output", row.value["input_output"] or "{}")
    cases = Row(f"{row.where}: input_output", cases if isinstance(cases, dict) else {})
    inputs, outputs = (list_of(cases, key, object, optional=True) for key in ("inputs", "outputs"))
    if not inputs or len(inputs) != len(outputs):
        raise _LeftOut(f"{counted(len(inputs), 'input')} and {counted(len(outputs), 'output')}")
    if cases.value.get("fn_name"):
        function = text(cases, "fn_name")
        tests = [
            function_tests.call_test(function, arguments if isinstance(arguments, list) else [arguments], value)
            for arguments, value in zip(inputs, outputs, strict=True)
        ]
        template = Submission(None, tests, limits, checker=_answer_or_its_only_item)
        return Task(problem_id, template, entry_point=function, prelude=_APPS_PRELUDE, driven=True)
    tests = [(_lines(stdin), _lines(expected)) for stdin, expected in zip(inputs, outputs, strict=True)]
    return Task(problem_id, Submission(None, _tests(row, tests), limits), prelude=_APPS_PRELUDE)


def _mapcoder(row: Row, problem_id: str, limits: Limits) -> Task:
    """A row of MapCoder's selection of 150 tasks."""
    if str(row.value.get("starter_code") or "").strip():
        raise _LeftOut("a call-based task of MapCoder's file, whose inputs have lost their types")
    cases = list_of(row, "test_list", dict)
    tests = _tests(row, [(_lines(case.get("input")), _lines(case.get("output"))) for case in cases])
    return Task(problem_id, Submission(None, tests, limits), prelude=_APPS_PRELUDE)


def _lines(value: Any) -> Any:
    """A text, or its lines."""
    return "\n".join(map(str, value)) if isinstance(value, list) else value


def _answer_or_its_only_item(stdin: str, expected: str, output: str) -> bool:
    """APPS may wrap the expected value in a list; its grader accepts either form."""
    value, said = json.loads(expected), output.strip()
    return said == expected or (
        isinstance(value, list) and bool(value) and said == json.dumps(value[0], sort_keys=True)
    )


FORMS = {
    form.name: form
    for form in (
        ProblemForm(
            "humaneval",
            [("task_id", "prompt", "entry_point", "test")],
            _humaneval,
            lambda row: identifier(row, "task_id"),
        ),
        ProblemForm("mbpp", [("task_id", "test_list")], _mbpp, lambda row: _mbpp_number(identifier(row, "task_id"))),
        ProblemForm(
            "livecodebench",
            [("question_id", "public_test_cases", "private_test_cases")],
            _livecodebench,
            lambda row: identifier(row, "question_id"),
        ),
        ProblemForm("maxk", [("problem_id", "tests")], _own, lambda row: identifier(row, "problem_id")),
        ProblemForm(
            "apps",
            [("problem_id", "input_output"), ("id", "input_output"), ("id", "test_list")],
            _apps,
            lambda row: identifier(row, "problem_id", "id"),
        ),
    )
}
"""Forms of problem files by name, in the order in which they are tried."""
