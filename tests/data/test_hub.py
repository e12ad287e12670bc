"""Where rows come from: the hub's cache, folders, files; and what is said when they are absent or have changed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import raw
from huggingface_hub import constants
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from maxk import data
from maxk.data import hub
from maxk.errors import UserError

SHA = "0123456789abcdef0123456789abcdef01234567"
COLUMNS = {"id": int, "tests": [{"input": str}]}
ROWS = [{"id": 1, "tests": [{"input": "2024-01-01", "more": 3}], "unused": 1}, {"id": 2, "tests": [], "unused": "x"}]


def place(location: Any, revision: str | None = None) -> Any:
    return raw.section(source="cure", location=location, revision=revision)


def read(location: Any, columns: Any = COLUMNS, layouts: Any = (("*.parquet",), ("*.json*",))) -> list[Any]:
    return list(hub.table("d", place(location), layouts).rows(columns))


def error(function: Any, *args: Any) -> str:
    with pytest.raises(UserError) as caught:
        function(*args)
    message = str(caught.value)
    assert "\n" not in message
    return message


# ------------------------------------------------------------------------------------------------------------- files
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows.json", "rows.json.gz"])
def test_json_is_read_as_it_stands(name: str, tmp_path: Path) -> None:
    """A mixed column that nobody asks for, and text that looks like a date, change nothing."""
    text = "\n".join(map(json.dumps, ROWS)) + "\n\n" if "jsonl" in name else json.dumps(ROWS, indent=1)
    content = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    (tmp_path / name).write_bytes(content)
    expected = [{"id": row["id"], "tests": row["tests"]} for row in ROWS]
    assert read(tmp_path / name) == expected
    assert read(tmp_path) == expected


def test_parquet_parts_must_all_be_there(tmp_path: Path) -> None:
    features = raw.Features({"id": raw.INT, "tests": raw.List({"input": raw.TEXT})})
    for part in (0, 2):
        raw.parquet(tmp_path / f"data/train-0000{part}-of-00003.parquet", [{"id": 1, "tests": []}], features)
    assert "part 1 of 3 is missing" in error(read, tmp_path)
    raw.parquet(tmp_path / "data/train-00001-of-00003.parquet", [{"id": 1, "tests": []}], features)
    assert len(read(tmp_path)) == 3


def test_absent_and_damaged_files_are_named(tmp_path: Path) -> None:
    assert "no file or folder ./absent.jsonl" in error(read, "./absent.jsonl")
    assert "lacks data files *.parquet or *.json*; it holds none" in error(read, tmp_path)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 not really")
    assert "cannot be read as parquet" in error(read, tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "tests": []}\n{"id": 2')
    assert "rows.jsonl cannot be read as json after row 1" in error(read, tmp_path / "rows.jsonl")
    (tmp_path / "rows.json").write_text("[1]")
    assert "row 1 is int 1, expected an object" in error(read, tmp_path / "rows.json")
    (tmp_path / "rows.json.gz").write_bytes(gzip.compress(b"[]")[:-6])
    assert "cannot be read as json" in error(read, tmp_path / "rows.json.gz")


# ----------------------------------------------------------------------------------------------------------- columns
def test_a_renamed_column_is_named(tmp_path: Path) -> None:
    path = raw.jsonl(tmp_path / "rows.jsonl", [{"id": 1, "test": []}])
    message = error(read, path)
    for part in ("rows.jsonl (row 1)", "no column 'tests' (renamed to 'test'?)", "list[{input: str}]", "id, test"):
        assert part in message
    features = raw.Features({"id": raw.INT, "test": raw.List({"input": raw.TEXT})})
    message = error(read, raw.parquet(tmp_path / "rows.parquet", [{"id": 1, "test": []}], features))
    assert "no column 'tests' (renamed to 'test'?)" in message


@pytest.mark.parametrize(
    ("feature", "value", "got"),
    [
        (raw.TEXT, "x", "str"),
        (raw.List(raw.TEXT), ["x"], "list[str]"),
        (raw.List({"stdin": raw.TEXT}), [{"stdin": "x"}], "list[{stdin: str}]"),
        ({"input": raw.List(raw.TEXT)}, {"input": ["x"]}, "{input: list[str]}"),
        (raw.List({"input": raw.INT}), [{"input": 1}], "list[{input: int}]"),
    ],
)
def test_a_column_of_another_type_is_named(feature: Any, value: Any, got: str, tmp_path: Path) -> None:
    path = raw.parquet(tmp_path / "rows.parquet", [{"id": 1, "tests": value}], raw.Features(id=raw.INT, tests=feature))
    assert f"column 'tests' is {got}, expected list[{{input: str}}]" in error(read, path)
    message = error(read, raw.jsonl(tmp_path / "rows.jsonl", [{"id": 1, "tests": value}]))
    assert "row 1" in message
    assert f"column 'tests' is {type(value).__name__} {value!r}" in message


def test_kinds_of_features() -> None:
    features = raw.CODE_CONTESTS
    assert hub.kind_of(features["difficulty"]) is int
    assert hub.kind_of(features["solutions"]) == {"language": [int], "solution": [str]}
    assert hub.kind_of(raw.CODEFORCES["official_tests"]) == [{"input": str, "output": str}]
    assert hub.kind_of(raw.CODEFORCES["time_limit"]) is float


def test_nulls_and_integers_in_place_of_floats_are_fine(tmp_path: Path) -> None:
    path = raw.jsonl(tmp_path / "rows.jsonl", [{"a": None, "b": 1}, {"a": "x", "b": 1.5}])
    assert len(read(path, {"a": str, "b": float})) == 2
    assert "column 'b' is bool True" in error(read, raw.jsonl(path, [{"a": "x", "b": True}]), {"a": str, "b": float})


# --------------------------------------------------------------------------------------------------------------- hub
def test_a_hub_repository_needs_a_revision() -> None:
    assert "revision: missing; pin a commit of org/set" in error(hub.table, "d", place("org/set"), [["*.json"]])


def test_offline_the_cache_serves_the_pinned_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "datasets--org--set" / "snapshots" / SHA
    message = error(hub.table, "d", place("org/set", SHA), [["*.json"]])
    for part in ("datasets.d: org/set at 0123456", "cannot be fetched", "HF_HUB_OFFLINE", "location"):
        assert part in message
    snapshot.mkdir(parents=True)
    (snapshot / "rows.json").write_text(json.dumps([raw.cure_row(1)]))
    problems, _ = data.load("d", place("org/set", SHA))
    assert [problem.problem_id for problem in problems] == ["d/1"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (RevisionNotFoundError, ["revision", SHA, "pin another commit", "mirror"]),
        (RepositoryNotFoundError, ["no public dataset org/set", "mirror"]),
        (ConnectionError, ["cannot be fetched (the line is dead)"]),
    ],
)
def test_what_the_hub_refuses_is_explained(fault: Any, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        if issubclass(fault, ConnectionError):
            raise fault("the line is dead\nand more")
        raise fault.__new__(fault)

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    message = error(hub.table, "d", place("org/set", SHA), [["*.json"]])
    for part in said:
        assert part in message


def test_a_branch_is_resolved_warned_of_and_recorded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def snapshot(where: str, repo_type: str, revision: str, allow_patterns: list[str]) -> str:
        asked.append((where, repo_type, revision, allow_patterns))
        return f"/cache/snapshots/{SHA}"

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    length = {"tokenizer": "org/model", "revision": "v1"}
    without = {"location": "org/other", "revision": SHA}
    config = raw.section(source="codeforces", location="org/set", revision="main", length=length, without=without)
    at, commits = data.at_commits("d", config)
    assert (at.revision, at.length.revision, at.without.revision) == (SHA, SHA, SHA)
    assert commits == dict.fromkeys(("org/set", "org/model", "org/other"), SHA)
    assert asked == [("org/set", "dataset", "main", []), ("org/model", "model", "v1", [])]
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(
        f"warning: datasets.d.revision: 'main' of org/set is no commit and can change; it is {SHA}"
    )
    assert said[1].startswith("warning: datasets.d.length.revision: 'v1' of org/model is no commit")
    assert len(said) == 2


def test_a_local_place_has_no_commit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert data.at_commits("d", place(tmp_path)) == (place(tmp_path), {})
    assert capsys.readouterr().err == ""


def test_offline_the_cache_says_what_a_branch_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "datasets--org--set"
    (repository / "snapshots" / SHA).mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(SHA)
    assert data.at_commits("d", place("org/set", "main"))[1] == {"org/set": SHA}


def test_nulls_are_named_by_row_and_column(tmp_path: Path) -> None:
    features = raw.Features({"id": raw.INT, "tests": raw.List({"input": raw.TEXT})})
    good, null, hole = {"id": 1, "tests": None}, {"id": None, "tests": []}, {"id": 2, "tests": [{"input": None}]}
    for name, bad in (("id", null), ("tests", hole)):
        for path in (
            raw.parquet(tmp_path / "a.parquet", [good, bad], features),
            raw.jsonl(tmp_path / "a.jsonl", [good, bad]),
        ):
            message = error(lambda where: list(hub.table("d", place(where), []).rows(COLUMNS, ("id",))), path)
            assert "row 2" in message
            assert f"column {name!r} is null or holds null" in message


def test_a_location_of_no_kind_is_refused() -> None:
    assert "neither a file, a folder nor a hub id" in error(hub.table, "d", place("a/b/c", SHA), [["*.json"]])
