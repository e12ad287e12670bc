"""User mistakes are one line and exit 2; a bug keeps its traceback."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from maxk import cli
from maxk.artifacts import files
from maxk.config import Config
from maxk.errors import LESS_MEMORY, resource_error
from maxk.stages import score


@pytest.fixture
def configured(seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """An empty folder with the resolved configuration and tracking off."""
    monkeypatch.chdir(tmp_path)
    off = seconds.model_copy(update={"tracking": seconds.tracking.model_copy(update={"enabled": False})})
    files.write_json("results/config.json", off.model_dump(mode="json"))
    return off


def test_bugs_keep_their_traceback(configured: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "run", lambda args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["score", "base"])


@pytest.mark.parametrize("start", ["python -m maxk", "maxk"])
@pytest.mark.parametrize(
    ("importing", "status", "said"),
    [("maxk.cli", -signal.SIGINT, ""), ("maxk.stages.doctor", 128 + signal.SIGINT, "maxk doctor: interrupted\n")],
)
def test_ctrl_c_in_an_import_ends_without_a_traceback(
    start: str, importing: str, status: int, said: str, root: Path
) -> None:
    """Also before there is a command line that could say anything."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["maxk"].partition(":")
    called = 'runpy.run_module("maxk", run_name="__main__", alter_sys=True)'
    if start == "maxk":  # what pip writes into the script
        called = f"from {module} import {function}; sys.exit({function}())"
    code = f"""
import runpy, signal, sys
class Finder:
    def find_spec(name, *_):
        if name == {importing!r}: signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder)
sys.argv = ["maxk", "doctor"]
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run in a shell's background
{called}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, said)


def test_only_a_lack_of_memory_asks_for_smaller_jobs() -> None:
    kept = "run again: finished work is kept"
    assert resource_error(OSError(errno.ENOMEM, "…", "big.bin")) == f"big.bin: memory ran out; {LESS_MEMORY}"
    assert str(resource_error(RuntimeError("CUDA out of memory"))).endswith(f"run fewer jobs at once, and {kept}")
    full = OSError(errno.ENOSPC, "No space left on device", "memory ran out")  # a file's name
    assert resource_error(full) == f"memory ran out: the disk is full; free some space and {kept}"
    assert resource_error(ValueError("1")) is None


def test_configure_refuses_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: Config) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["configure", "{"]) == 2
    assert cli.main(["configure", json.dumps({"name": "x"})]) == 2
    assert not Path("results").exists()
    untracked = {**seconds.model_dump(mode="json"), "tracking": {"enabled": False}}
    assert cli.main(["configure", json.dumps(untracked)]) == 0
    assert Path(seconds.layout.config).exists()


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare")
def test_a_user_id_without_a_name_is_given_one(root: Path) -> None:
    """Snakemake ends in a traceback, and so does what torch compiles."""
    said = "from maxk import cli; cli._name_the_user(); import getpass; print(getpass.getuser())"
    nameless = ["unshare", "--user", "--map-user=12345", "--map-group=12345"]
    environment = {k: v for k, v in os.environ.items() if k not in ("LOGNAME", "USER", "LNAME", "USERNAME")}
    environment |= {"PYTHONPATH": str(root / "src")}
    done = subprocess.run([*nameless, sys.executable, "-c", said], env=environment, capture_output=True, text=True)
    if "unshare:" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout == "12345\n", done.stderr


def test_the_help_names_every_command_once() -> None:
    done = subprocess.run([sys.executable, "-m", "maxk", "--help"], capture_output=True, text=True, check=True)
    commands = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert sorted(commands) == sorted(cli.STAGES)
    assert len(done.stdout.splitlines()) <= 40


def test_the_help_of_a_command_shows_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["score", "--help"])
    assert capsys.readouterr().out.startswith("usage: maxk score [-h]")


def test_show_without_a_name_lists_the_tables(configured: Config, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbered tables first, those of experiments last."""
    root = Path(configured.layout.root)
    for name in ("summary", "table10", "experiments/sweep", "table9"):
        files.write_text(root / f"{name}.md", f"**The {name}**\n\ntext")
    files.write_text(root / "table9.csv", "")
    config = ["--config", "results/config.json"]
    assert cli.main(["show", *config]) == 0
    listed = [tuple(line.split(maxsplit=1)) for line in capsys.readouterr().out.splitlines()]
    assert listed == [(name, f"The {name}") for name in ("table9", "table10", "summary", "experiments/sweep")]
    assert cli.main(["show", "experiments/sweep", *config]) == 0
    assert "The experiments/sweep" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shwo"], "maxk: no command 'shwo' (did you mean 'show'?); see `maxk --help`"),
        (["doctor", "config/mini.yaml"], "maxk doctor: unrecognized arguments: config/mini.yaml; see `maxk doctor"),
        (["grade", "a"], "maxk grade: the following arguments are required: samples; see `maxk grade --help`"),
        (["compare", "a", "b", "--level", "95"], "maxk compare: argument --level: '95' is not a number above 0 and "),
    ],
)
def test_a_wrong_argument_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith(said)


def test_the_version_is_that_of_the_package(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    cited = next(line for line in (root / "CITATION.cff").read_text().splitlines() if line.startswith("version:"))
    assert capsys.readouterr().out == f"maxk {cited.split()[1].strip(chr(34))}\n"


def test_a_reader_that_has_enough_is_no_error(root: Path) -> None:
    """`maxk plan | head -1`."""
    command = [sys.executable, "-m", "maxk", "plan"]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == 128 + signal.SIGPIPE
