"""Where rows come from: the hub's cache, folders, files; and the errors if they are absent."""

from __future__ import annotations

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


def place(location: Any, revision: str | None = None) -> Any:
    return raw.section(source="cure", location=location, revision=revision)


def files(location: Any) -> list[Path]:
    return hub.files("d", place(location), [["*.parquet"], ["*.json*"]])


def error(function: Any, *args: Any) -> str:
    with pytest.raises(UserError) as caught:
        function(*args)
    message = str(caught.value)
    assert "\n" not in message
    return message


# ------------------------------------------------------------------------------------------------------------- files
def test_parquet_parts_must_all_be_there(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for part in (0, 2):
        (tmp_path / f"data/train-0000{part}-of-00003.parquet").touch()
    assert "part 1 of 3 is missing" in error(files, tmp_path)
    (tmp_path / "data/train-00001-of-00003.parquet").touch()
    assert len(files(tmp_path)) == 3


def test_absent_files_are_named(tmp_path: Path) -> None:
    assert "no file or folder ./absent.jsonl" in error(files, "./absent.jsonl")
    assert "has no data files *.parquet or *.json*; it has none" in error(files, tmp_path)


# --------------------------------------------------------------------------------------------------------------- hub
def test_a_hub_repository_needs_a_revision() -> None:
    assert "revision: missing; pin a commit of org/set" in error(hub.files, "d", place("org/set"), [["*.json"]])


def test_offline_the_cache_serves_the_pinned_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "datasets--org--set" / "snapshots" / SHA
    message = error(hub.files, "d", place("org/set", SHA), [["*.json"]])
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
    message = error(hub.files, "d", place("org/set", SHA), [["*.json"]])
    for part in said:
        assert part in message


def test_a_branch_is_resolved_warned_of_and_recorded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def snapshot(where: str, repo_type: str, revision: str, allow_patterns: list[str], **_: bool) -> str:
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


def test_a_location_of_no_kind_is_refused() -> None:
    assert "neither a file, a folder nor a hub id" in error(hub.files, "d", place("a/b/c", SHA), [["*.json"]])


# ------------------------------------------------------------------------------------------------------------- doctor
def model_fault(where: Any = "org/model", online: bool = False) -> str | None:
    return hub.fault(str(where), SHA, "model", "*.safetensors", online)


def test_a_model_in_the_cache_needs_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot without weights, as a download of the tokenizer leaves it, is not enough."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--org--model" / "snapshots" / SHA
    assert "and the hub does not respond; go online once" in str(model_fault())
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").touch()
    assert "nor in the Hugging Face cache" in str(model_fault())
    (snapshot / "model.safetensors").touch()
    assert model_fault() is None


def test_a_local_model_needs_weights(tmp_path: Path) -> None:
    assert model_fault(tmp_path) == "the folder has no *.safetensors"
    assert model_fault(tmp_path / "absent") == "no such file or folder"
    (tmp_path / "model.safetensors").touch()
    assert model_fault(tmp_path) is None


def test_local_data_needs_a_data_file_whose_suffix_may_be_in_upper_case(tmp_path: Path) -> None:
    def data_fault() -> str | None:
        return hub.fault(str(tmp_path), None, "dataset", None, online=False)

    (tmp_path / "README.md").touch()
    assert str(data_fault()).startswith("the folder has no data files (.parquet, .arrow, .json, ")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/ROWS.PARQUET").touch()
    assert data_fault() is None


def test_the_hub_is_asked_for_what_the_cache_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    asked = []

    def repo_info(_: Any, where: str, *, repo_type: str, revision: str, timeout: float) -> None:
        asked.append((where, repo_type, revision))
        if where == "org/modle":
            raise OSError("404 Client Error.\nmore")

    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", repo_info)
    assert model_fault(online=True) is None
    assert "the hub refuses it (404 Client Error.); correct its name" in str(model_fault("org/modle", online=True))
    assert asked == [("org/model", "model", SHA), ("org/modle", "model", SHA)]
