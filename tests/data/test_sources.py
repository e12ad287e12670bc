"""Every source is declared in one place: its class is found, its example row works, and other parts ask the class."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import raw

from fresh import printed
from maxk import config as configuration
from maxk import data
from maxk.config import Config
from maxk.config.reference import reference
from maxk.data.sections import SOURCES, Benchmark, DatasetSection
from maxk.errors import UserError

BENCHMARKS = [source for source, section in SOURCES.items() if issubclass(section, Benchmark)]


def test_all_sources_are_known() -> None:
    hub = {"apps", "code_contests", "codeforces", "cure", "humaneval", "livebench", "livecodebench", "mbpp"}
    assert set(SOURCES) == hub | {"arithmetic", "jsonl", "pocket"}
    assert [source for source, section in SOURCES.items() if section.synthetic] == ["arithmetic", "pocket"]


def described(source: str) -> str:
    """The docstring of the source's `Row`."""
    return importlib.import_module(SOURCES[source].__module__).Row.__doc__


def example(source: str) -> dict[str, Any]:
    """The row in it."""
    return json.loads(re.search(r"^ *\{.*\}$", described(source), re.DOTALL | re.MULTILINE)[0])


@pytest.mark.parametrize("source", BENCHMARKS)
def test_the_row_in_the_docstring_becomes_a_problem(source: str, tmp_path: Path) -> None:
    row = example(source)
    location = raw.jsonl(tmp_path / "rows.jsonl", [row])
    splits = {"train": 1, "test": 0} if row.get("split") == "train" else {}
    [problem], _ = data.load("d", raw.section(source=source, location=location, **splits))
    assert problem.statement
    assert problem.tests


@pytest.mark.parametrize("source", BENCHMARKS)
def test_a_row_that_is_not_of_the_benchmark_is_said_to_be_made_up(source: str) -> None:
    """The made-up rows are about adding two numbers."""
    text = " ".join(described(source).split())
    made_up = re.search(r"Add two numbers\.|sum of two integers", text) is not None
    assert ("The example row is made up (SYNTHETIC)" in text) is made_up
    assert ("has the raw schema of the hub's files, but is not of the benchmark" in text) is (
        made_up and source != "jsonl"
    )


@pytest.mark.parametrize("source", [s for s in BENCHMARKS if s != "jsonl"])
def test_the_plan_knows_what_to_expect_of_a_source(source: str) -> None:
    assert SOURCES[source].planned is not DatasetSection.planned


def test_the_reference_has_a_heading_for_every_source() -> None:
    text = reference()
    assert [name for name in SOURCES if f"\n## `datasets.NAME` with `source: {name}`\n" not in text] == []


def test_the_package_imports_no_heavy_library() -> None:
    code = (
        "import sys, maxk.data;"
        "print(sorted({'torch', 'transformers', 'datasets', 'pandas', 'huggingface_hub'} & set(sys.modules)))"
    )
    assert printed(code) == "[]"


# ------------------------------------------------------------------------------------------------------- import paths
MODULE = '''
from typing_extensions import TypedDict

from maxk.artifacts.records import Problem, Test
from maxk.data.candidates import Candidate
from maxk.data.sections import PooledBenchmark


class Row(TypedDict):
    name: str
    cases: list[list[str]]


class Mine(PooledBenchmark):
    """Rows with a name and cases."""

    shout: bool = False

    def layouts(self):
        return {"": [["*.jsonl"]]}

    def candidates(self, funnel):
        for row in self.rows(funnel, Row, lambda row: row["name"]):
            statement = row["name"].upper() if self.shout else row["name"]
            tests = [Test(*case) for case in row["cases"]]
            yield Candidate(Problem(f"{funnel.dataset}/{row['name']}", funnel.dataset, "", statement, tests))


class Other:
    pass
'''


@pytest.fixture
def parse(defaults: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_problems.py").write_text(MODULE)
    raw.jsonl(tmp_path / "rows.jsonl", [{"name": name, "cases": [["1", "2"]]} for name in ("add", "double")])

    def parsed(**section: Any) -> Config:
        section = {"source": "own_problems:Mine", "location": "rows.jsonl", "train": 1, "test": 1, **section}
        base = {"source": "hub", "model": "any"}
        changes = {"base": base, "datasets": {"d": section}, "objectives": {}, "training": {"datasets": ["d"]}}
        return configuration.parse(configuration.overlay(defaults, changes | {"name": "x"}))

    yield parsed
    sys.modules.pop("own_problems", None)


def test_a_dataset_by_its_import_path(parse: Any, tmp_path: Path) -> None:
    config = parse(shout=True)
    again = configuration.parse(json.loads(config.model_dump_json()))  # as every job reads it
    assert again == config
    dataset = again.datasets["d"]
    problems, funnel = data.load("d", dataset)
    assert list(funnel)[:2] == ["rows", "with_statement"]
    assert {(p.problem_id, p.statement, tuple(p.tests)) for p in problems} == {
        ("d/add", "ADD", (("1", "2"),)),
        ("d/double", "DOUBLE", (("1", "2"),)),
    }
    assert dataset.inputs == [str(tmp_path / "own_problems.py"), "rows.jsonl"]
    assert again.settings("prepare", dataset="d")["dataset"]["shout"] is True


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"shout": "maybe"}, "config: datasets.d.shout: input should be a valid boolean"),
        ({"shut": True}, "config: datasets.d.shut: unknown key"),
        ({"test": "all"}, "config: datasets.d: test: all takes all rows"),
        ({"source": "own_problems:Absent"}, "datasets.d: source='own_problems:Absent' cannot be imported (module"),
        ({"source": "no_module:Mine"}, "source='no_module:Mine' cannot be imported (No module named 'no_module')"),
        ({"source": "own_problems:Other"}, "source='own_problems:Other' is no dataset class"),
    ],
)
def test_faults_of_an_imported_dataset_are_named(parse: Any, section: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        parse(**section)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
