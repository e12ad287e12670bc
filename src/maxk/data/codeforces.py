"""CodeForces (Penedo et al. 2025): open-r1/codeforces, CC-BY-4.0, 9,556 train and 468 test problems.

Interactive problems and those that read files are left out. About a third of all problems have several right answers:
their `generated_checker` comes along as `Problem.checker`. With `without`, problems that CodeContests holds too are
left out: by (contest, index), then by aliases, then by title, each counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from maxk.artifacts.records import Problem, Test
from maxk.data import code_contests, hub
from maxk.data.filters import Candidate, Funnel
from maxk.data.sections import Benchmark, HubCopy, Location
from maxk.data.testcases import unix


class CodeforcesDataset(Benchmark):
    """open-r1/codeforces; upstream's train and test splits stay apart."""

    source: Literal["codeforces"]
    location: Location = "open-r1/codeforces"
    subset: Literal["default", "verifiable"] = Field("default", description="Upstream's configuration.")
    complete_tests: bool = Field(True, description="Only problems whose official tests are not cut off.")
    without: HubCopy | None = Field(None, description="CodeContests, whose problems are left out.")


FOLDERS = {"default": "data", "verifiable": "verifiable"}
_TESTS = [{"input": str, "output": str}]
COLUMNS = {
    "id": str,
    "aliases": [str],
    "title": str,
    "description": str,
    "input_format": str,
    "output_format": str,
    "interaction_format": str,
    "note": str,
    "examples": _TESTS,
    "time_limit": float,
    "memory_limit": float,
    "official_tests": _TESTS,
    "official_tests_complete": bool,
    "input_mode": str,
    "generated_checker": str,
}


def candidates(name: str, config: CodeforcesDataset, funnel: Funnel) -> Iterator[Candidate]:
    folder = FOLDERS[config.subset]
    tables = hub.split_tables(name, config, lambda split: [[f"{folder}/{split}-*.parquet"], [f"{split}.jsonl*"]])
    rows = funnel.start((split, row) for split, table in tables for row in table.rows(COLUMNS, ("id",)))

    def keep(step: str, accepts: Any) -> None:
        nonlocal rows
        rows = funnel.keep(step, rows, lambda pair: accepts(pair[1]), lambda pair: pair[1]["id"])

    keep("standard_streams", lambda row: row["input_mode"] == "stdio")
    keep("not_interactive", lambda row: not (row["interaction_format"] or "").strip())
    if config.complete_tests:
        keep("complete_tests", lambda row: row["official_tests_complete"])
    if config.without is not None:
        ids, titles = _code_contests(name, config)
        keep("id_not_in_code_contests", lambda row: row["id"] not in ids)
        keep("alias_not_in_code_contests", lambda row: not ids & set(row["aliases"] or []))
        keep("title_not_in_code_contests", lambda row: plain_title(row["title"]) not in titles)
    return (Candidate(_problem(name, split, row)) for split, row in rows)


def _code_contests(name: str, config: CodeforcesDataset) -> tuple[set[str], set[str]]:
    """Ids ("852/A") and plain titles of the CodeForces problems in CodeContests, whose names are "852_A. Title"."""
    assert config.without is not None
    table = hub.table(name, config.without, code_contests.layouts(("train", "valid", "test")))
    ids, titles = set(), set()
    for row in table.rows({"name": str, "cf_contest_id": int, "cf_index": str}):
        if row["cf_contest_id"]:
            ids.add(f"{row['cf_contest_id']}/{row['cf_index']}")
            titles.add(plain_title(row["name"].split(". ", 1)[-1]))
    return ids, titles - {""}


def plain_title(title: str | None) -> str:
    """A title's letters and digits in lower case."""
    return "".join(filter(str.isalnum, (title or "").casefold()))


def _problem(dataset: str, split: str, row: dict[str, Any]) -> Problem:
    return Problem(
        f"{dataset}/{row['id']}",
        dataset,
        split,
        statement=_statement(row),
        tests=[_test(test) for test in row["official_tests"] or []],
        time_limit_s=row["time_limit"] or None,
        memory_limit_mb=int(row["memory_limit"] or 0) or None,
        checker=row["generated_checker"] or None,
    )


def _test(test: dict[str, str]) -> Test:
    return Test(unix(test["input"]), unix(test["output"]))


def _statement(row: dict[str, Any]) -> str:
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
