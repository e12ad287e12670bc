"""`maxk clean` shows first, removes what was named, and touches nothing that is not the experiment's own."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
import yaml

from maxk import cli

OTHER = "results/other/policies/grpo/seed0/policy.json"
MADE = {
    "results/config.json": "{}",
    "results/table2.md": "a table",
    "results/mlflow.db": "runs",
    "results/.gitkeep": "",
    "results/cache/verdicts.sqlite": "c" * 1000,
    "results/samples/base/pocket/0.parquet": "s" * 2000,
    "results/verdicts/base/pocket/0.parquet": "v" * 500,
    "results/policies/base/policy.json": "{}",
    "results/policies/grpo/seed0/policy.json": "{}",
    "results/policies/bon/seed1/checkpoints/abc/checkpoint-4/optimizer.pt": "o" * 3000,
    OTHER: "{}",
    "results/other/samples/base/pocket/0.parquet": "s",
    "precious/file": "p" * 10_000,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default experiment's results, another experiment's in them, and something outside."""
    monkeypatch.chdir(tmp_path)
    for name, content in MADE.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(content)
    Path("other.yaml").write_text(yaml.safe_dump({"name": "other"}))
    return tmp_path


def left() -> set[str]:
    return {str(path) for path in Path().rglob("*") if path.is_file() and path.name != "other.yaml"}


@pytest.mark.parametrize("arguments", [[], ["caches"], ["experiment", "checkpoints"]])
def test_nothing_is_removed_without_yes(arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["clean", *arguments]) == 0
    assert left() == set(MADE)
    printed = capsys.readouterr().out
    assert "nothing was removed" in printed
    for kind in arguments or ["caches", "checkpoints", "shards", "experiment"]:
        assert f"\n{kind} " in f"\n{printed}"


def test_sizes_are_those_of_the_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["clean", "shards"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:3] == ["shards", "2.5", "kB"]
    assert lines[1] == ["2.0", "kB", "results/samples"]
    assert lines[2] == ["500", "B", "results/verdicts"]


@pytest.mark.parametrize(
    ("kinds", "gone"),
    [
        (["caches"], ["results/cache/"]),
        (["checkpoints"], ["results/policies/bon/seed1/checkpoints/"]),
        (["shards"], ["results/samples/", "results/verdicts/"]),
        (["caches", "shards"], ["results/cache/", "results/samples/", "results/verdicts/"]),
    ],
)
def test_what_is_named_goes_and_nothing_else(kinds: list[str], gone: list[str], folder: Path) -> None:
    assert cli.main(["clean", *kinds, "--yes"]) == 0
    assert left() == {name for name in MADE if not name.startswith(tuple(gone))}


def test_the_default_experiment_leaves_the_others(folder: Path) -> None:
    assert cli.main(["clean", "experiment", "--yes"]) == 0
    assert left() == {name for name in MADE if name.startswith(("results/other/", "precious/"))} | {"results/.gitkeep"}


def test_another_experiment_leaves_the_default_one(folder: Path) -> None:
    assert cli.main(["clean", "experiment", "--config", "other.yaml", "--yes"]) == 0
    assert left() == {name for name in MADE if not name.startswith("results/other/")}
    assert not Path("results/other").exists()


@pytest.mark.parametrize("kind", ["caches", "checkpoints", "shards", "experiment"])
def test_links_are_removed_but_never_followed(kind: str, folder: Path) -> None:
    places = {
        "caches": "results/cache/linked",
        "checkpoints": "results/policies/bon/seed1/checkpoints/linked",
        "shards": "results/samples/linked",
        "experiment": "results/scores",
    }
    link = Path(places[kind])
    link.symlink_to(folder / "precious")
    assert cli.main(["clean", kind, "--yes"]) == 0
    assert Path("precious/file").read_text() == MADE["precious/file"]
    assert not link.is_symlink()


def test_what_stands_behind_a_linked_folder_is_not_the_experiment_s(folder: Path) -> None:
    outside = folder / "precious" / "seed0" / "checkpoints" / "file"
    outside.parent.mkdir(parents=True)
    outside.write_text("precious")
    Path("results/policies/linked").symlink_to(folder / "precious")
    assert cli.main(["clean", "checkpoints", "--yes"]) == 0
    assert outside.read_text() == "precious"


def test_a_linked_results_folder_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("results").rename("elsewhere")
    Path("results").symlink_to("elsewhere")
    assert cli.main(["clean", "experiment", "--yes"]) == 2
    assert "results is a link to elsewhere" in capsys.readouterr().err
    assert Path("elsewhere/table2.md").exists()


def test_what_a_job_is_at_work_on_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Path("results/policies/bon/seed1/.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert cli.main(["clean", "caches", "--yes"]) == 2
        assert "a job is at work here; nothing was removed" in capsys.readouterr().err
    assert Path("results/cache/verdicts.sqlite").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cache"], "no kind 'cache'; known: caches, checkpoints, shards, experiment"),
        (["--yes"], "--yes needs the kinds to remove"),
        (["caches", "--config", "absent.yaml"], "absent.yaml: cannot be read"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["clean", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert left() == set(MADE)


def test_an_experiment_that_was_never_run_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["clean", "experiment", "--yes"]) == 0
    assert capsys.readouterr().out.split()[:3] == ["experiment", "0", "B"]
    assert os.listdir(tmp_path) == []
