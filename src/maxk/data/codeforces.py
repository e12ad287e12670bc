"""CodeForces (Penedo et al. 2025): open-r1/codeforces, CC-BY-4.0, 9,556 train and 468 test problems.

Interactive problems and those that read files are dropped. About a third of all problems have several right answers:
their `generated_checker` becomes `Problem.checker`. `without` drops problems that are in CodeContests too: by
(contest, index), then by aliases, then by title, each counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Literal

from pydantic import Field, FiniteFloat
from typing_extensions import TypedDict

from maxk.artifacts.records import Problem, Test
from maxk.data import code_contests
from maxk.data.candidates import Candidate, Funnel
from maxk.data.hub import Layouts
from maxk.data.rows import Text, table
from maxk.data.sections import Benchmark, HubCopy, Location, Planned
from maxk.data.testcases import unix

FOLDERS = {"default": "data", "verifiable": "verifiable"}


class Pair(TypedDict):
    input: Text
    output: Text


class Row(TypedDict):
    r"""The columns that are read; all but `id` may be null.

    The example row is made up (SYNTHETIC): it has the raw schema of the hub's files, but is not of the benchmark.

    {"id": "1/A", "aliases": null, "title": "Sum", "description": "Add two numbers.", "input_format": "Two integers.",
     "output_format": "Their sum.", "interaction_format": null, "note": null,
     "examples": [{"input": "1 2", "output": "3"}], "time_limit": 2.0, "memory_limit": 256.0,
     "official_tests": [{"input": "1 2\r\n", "output": "3\r\n"}], "official_tests_complete": true,
     "input_mode": "stdio", "generated_checker": null}
    """

    file_split: str
    id: Text
    aliases: list[Text] | None
    title: Text | None
    description: Text | None
    input_format: Text | None
    output_format: Text | None
    interaction_format: Text | None
    note: Text | None
    examples: list[Pair] | None
    time_limit: FiniteFloat | None
    memory_limit: FiniteFloat | None
    official_tests: list[Pair] | None
    official_tests_complete: bool | None
    input_mode: Text | None
    generated_checker: Text | None


class CodeContestsNames(TypedDict):
    """How CodeContests names its problems: "852_A. Title", 852, "A"; contest 0 for other sites."""

    name: Text | None
    cf_contest_id: int | None
    cf_index: Text | None


class CodeforcesDataset(Benchmark):
    """open-r1/codeforces; upstream's train and test splits stay apart."""

    planned = Planned(9556, 468, 40, basis="rows of upstream before filters; tests are an estimate")
    tests_mb = 15_000

    source: Literal["codeforces"]
    location: Location = "open-r1/codeforces"
    subset: Literal["default", "verifiable"] = Field("default", description="Upstream's configuration.")
    complete_tests: bool = Field(True, description="Keep only problems whose official tests are not truncated.")
    without: HubCopy | None = Field(None, description="Location of CodeContests, whose problems are dropped.")

    def layouts(self) -> Mapping[str, Layouts]:
        folder = FOLDERS[self.subset]
        return {split: [[f"{folder}/{split}-*.parquet"], [f"{split}.jsonl*"]] for split in ("train", "test")}

    def candidates(self, funnel: Funnel) -> Iterator[Candidate]:
        rows = self.rows(funnel, Row, itemgetter("id"))
        for step, accepts in self._filters(funnel.dataset).items():
            rows = funnel.keep(step, rows, accepts, itemgetter("id"))
        return (Candidate(_problem(funnel.dataset, row)) for row in rows)

    def _filters(self, dataset: str) -> dict[str, Callable[[Row], Any]]:
        filters: dict[str, Callable[[Row], Any]] = {
            "standard_streams": lambda row: row["input_mode"] == "stdio",
            "not_interactive": lambda row: not (row["interaction_format"] or "").strip(),
        }
        if self.complete_tests:
            filters["complete_tests"] = lambda row: row["official_tests_complete"]
        if self.without is not None:
            ids, titles = _code_contests(dataset, self.without)
            filters["id_not_in_code_contests"] = lambda row: row["id"] not in ids
            filters["alias_not_in_code_contests"] = lambda row: not ids & set(row["aliases"] or [])
            filters["title_not_in_code_contests"] = lambda row: plain_title(row["title"]) not in titles
        return filters


def _code_contests(dataset: str, place: HubCopy) -> tuple[set[str], set[str]]:
    """Ids ("852/A") and plain titles of the CodeForces problems in CodeContests."""
    ids, titles = set(), set()
    for row in table(dataset, place, code_contests.layouts(code_contests.UPSTREAM_SPLITS)).rows(CodeContestsNames):
        if row["cf_contest_id"]:
            ids.add(f"{row['cf_contest_id']}/{row['cf_index']}")
            titles.add(plain_title((row["name"] or "").split(". ", 1)[-1]))
    return ids, titles - {""}


def plain_title(title: str | None) -> str:
    """A title's letters and digits in lower case."""
    return "".join(filter(str.isalnum, (title or "").casefold()))


def _problem(dataset: str, row: Row) -> Problem:
    return Problem(
        f"{dataset}/{row['id']}",
        dataset,
        row["file_split"],
        statement=_statement(row),
        tests=[Test(unix(test["input"]), unix(test["output"])) for test in row["official_tests"] or []],
        time_limit_s=row["time_limit"] or None,
        memory_limit_mb=int(row["memory_limit"] or 0) or None,
        checker=row["generated_checker"] or None,
    )


def _statement(row: Row) -> str:
    """The parts of the statement under their headings, examples included. Empty without a description."""
    if not (row["description"] or "").strip():
        return ""
    examples = "\n\n".join(f"Input\n{test['input']}\nOutput\n{test['output']}" for test in row["examples"] or [])
    parts = {
        "": row["description"],
        "Input": row["input_format"],
        "Output": row["output_format"],
        "Examples": examples,
        "Note": row["note"],
    }
    texts = [f"{heading}\n{text.strip()}".strip() for heading, text in parts.items() if text and text.strip()]
    return unix("\n\n".join([row["title"] or "", *texts]).strip())
