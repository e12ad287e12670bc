"""`maxk clean` shows first, removes what was named, and touches nothing that is not the experiment's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from maxk import cli
from maxk.artifacts import files

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
    "results/other/policies/grpo/seed0/policy.json": "{}",
    "results/other/samples/base/pocket/0.parquet": "s",
    "precious/file": "p" * 10_000,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of the default experiment, those of another experiment inside, and a file outside."""
    monkeypatch.chdir(tmp_path)
    for name, content in MADE.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(content)
    Path("other.yaml").write_text(yaml.safe_dump({"name": "other"}))
    return tmp_path


def left() -> set[str]:
    kept = (path for path in Path().rglob("*") if path.is_file() and path.name not in ("other.yaml", ".lock"))
    return {str(path) for path in kept}


@pytest.mark.parametrize("arguments", [[], ["caches"], ["experiment", "checkpoints"]])
def test_without_yes_sizes_are_shown_and_nothing_is_removed(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["clean", *arguments]) == 0
    assert left() == set(MADE)
    *shown, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == (arguments or ["caches", "checkpoints", "shards", "experiment"])
    assert "nothing was removed" in last


def test_sizes_are_those_of_the_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["clean", "shards"])
    assert capsys.readouterr().out.split()[:3] == ["shards", "2.5", "kB"]


@pytest.mark.parametrize(
    ("kinds", "gone"),
    [
        (["caches"], ["results/cache/"]),
        (["checkpoints"], ["results/policies/bon/seed1/checkpoints/"]),
        (["caches", "shards"], ["results/cache/", "results/samples/", "results/verdicts/"]),
    ],
)
def test_only_what_is_named_is_removed(kinds: list[str], gone: list[str], folder: Path) -> None:
    assert cli.main(["clean", *kinds, "--yes"]) == 0
    assert left() == {name for name in MADE if not name.startswith(tuple(gone))}


def test_the_default_experiment_leaves_the_others(folder: Path) -> None:
    assert cli.main(["clean", "experiment", "--yes"]) == 0
    assert left() == {name for name in MADE if name.startswith(("results/other/", "precious/"))} | {"results/.gitkeep"}


def test_another_experiment_leaves_the_default_one(folder: Path) -> None:
    assert cli.main(["clean", "experiment", "--config", "other.yaml", "--yes"]) == 0
    assert left() == {name for name in MADE if not name.startswith("results/other/")}
    assert not Path("results/other").exists()


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("caches", "results/cache/linked"),
        ("checkpoints", "results/policies/linked"),  # a whole policy folder
        ("shards", "results/samples/linked"),
        ("experiment", "results/scores"),
    ],
)
def test_links_are_not_followed(kind: str, place: str, folder: Path) -> None:
    outside = folder / "precious" / "seed0" / "checkpoints" / "file"
    outside.parent.mkdir(parents=True)
    outside.write_text("precious")
    Path(place).symlink_to(folder / "precious")
    assert cli.main(["clean", kind, "--yes"]) == 0
    assert Path("precious/file").read_text() == MADE["precious/file"]
    assert outside.read_text() == "precious"


def test_a_folder_in_use_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with files.lock("results"):
        assert cli.main(["clean", "caches", "--yes"]) == 2
    assert "results: another run is using it" in capsys.readouterr().err
    assert left() == set(MADE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cache"], "no kind 'cache' (did you mean 'caches'?); known: caches, checkpoints, shards, experiment"),
        (["--yes"], "--yes needs the kinds to remove"),
        (["caches", "--config", "absent.yaml"], "absent.yaml: no such file"),
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
    assert capsys.readouterr().out.split()[:3] == ["experiment", "0", "bytes"]
    assert list(tmp_path.iterdir()) == []
