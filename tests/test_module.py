"""The workflow from elsewhere: by its standard place, and as a module of another workflow."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipeline import ENVIRONMENT, planned

IMPORTING = """
module maxk:
    snakefile: {snakefile}
    config: config["evaluation"]

use rule * from maxk {names}

onstart:
    maxk.onstart()

rule paste:
    default_target: True
    input: rules.{all}.input
    output: "report.txt"
    shell: "cat {{input[0]}} > {{output}}"
"""


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    done = subprocess.run(
        command,
        **{"cwd": folder, "capture_output": True, "text": True, "env": ENVIRONMENT, "timeout": 600},
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run in a shell's background
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_a_folder_with_braces_is_refused_in_a_line(root: Path, tmp_path: Path) -> None:
    """Snakemake formats the paths of a workflow's files."""
    clone = tmp_path / "clone {x}"
    clone.mkdir()
    for name in ("Snakefile", "src"):
        (clone / name).symlink_to(root / name)
    for name in ("workflow", "config"):
        shutil.copytree(root / name, clone / name)
    with pytest.raises(
        AssertionError, match=r"clone \{x\}: Snakemake takes braces in a path for wildcards; move the"
    ) as error:
        snakemake(clone, "-n", "--snakefile", "workflow/Snakefile")
    assert "NameError" not in str(error.value)


def importing(root: Path, folder: Path, snakefile: str, names: str = "", every: str = "all") -> None:
    """Another workflow, in `folder`."""
    (folder / "Snakefile").write_text(IMPORTING.format(snakefile=snakefile, names=names, all=every))
    seconds = yaml.safe_load((root / "tests" / "configs" / "seconds.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({"evaluation": {**seconds, "tracking": {"enabled": False}}}))


def test_another_workflow_uses_it_as_a_module(root: Path, tmp_path: Path) -> None:
    """Its jobs are those of the workflow by itself, started from where Snakemake and its catalog look for workflows."""
    snakefile, config = root / "workflow" / "Snakefile", root / "tests" / "configs" / "seconds.yaml"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    by_itself = planned(snakemake(elsewhere, "-n", "--snakefile", str(snakefile), "--configfile", str(config)))
    importing(root, tmp_path, repr(str(snakefile)), "as maxk_*", "maxk_all")
    found = planned(snakemake(tmp_path, "-n", "--configfile", "config.yaml"))
    assert found == {**{f"maxk_{rule}": count for rule, count in by_itself.items() if rule != "all"}, "paste": 1}


def test_the_how_to_plans_what_it_says(root: Path, tmp_path: Path) -> None:
    page = (root / "docs" / "integrations.md").read_text(encoding="utf-8")
    blocks = re.findall(r"""```\w+ title="(.+?)"\n(.*?)```""", page, re.DOTALL)
    assert [name for name, _ in blocks] == ["Snakefile", "config.yaml"]
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    (tmp_path / "maxk").symlink_to(root)
    found = planned(snakemake(tmp_path, "-n"))
    assert {name: found[name] for name in ("maxk_train", "maxk_score", "maxk_table", "copy")} == {
        "maxk_train": 2,
        "maxk_score": 3,
        "maxk_table": 1,
        "copy": 1,
    }
    assert "maxk_report" not in found


def test_a_module_leaves_ctrl_c_and_the_end_of_a_run_to_the_workflow_that_imports_it(
    root: Path, tmp_path: Path
) -> None:
    found = """
import signal
print("handler", signal.getsignal(signal.SIGINT).__qualname__)
hearers = map(type, workflow.logger_manager.logger.handlers)
print("hears", [one.__name__ for one in hearers if one.__module__.startswith("maxk")])
"""
    snakefile = root / "workflow" / "Snakefile"
    importing(root, tmp_path, repr(str(snakefile)), "as maxk_*", "maxk_all")
    (tmp_path / "Snakefile").write_text((tmp_path / "Snakefile").read_text() + found)
    as_module = snakemake(tmp_path, "-n", "--configfile", "config.yaml").stdout
    assert "handler default_int_handler\nhears []\n" in as_module
    (tmp_path / "Snakefile").write_text(f"include: {str(snakefile)!r}\n{found}")
    by_itself = snakemake(tmp_path, "-n", "--configfile", str(root / "tests" / "configs" / "seconds.yaml")).stdout
    assert "handler Interruption._end\nhears ['NothingToDo', 'UnknownTarget']\n" in by_itself


def test_without_its_hook_a_module_names_it(root: Path, tmp_path: Path) -> None:
    importing(root, tmp_path, repr(str(root / "workflow" / "Snakefile")), "as maxk_*", "maxk_all")
    path = tmp_path / "Snakefile"
    path.write_text(path.read_text().replace("onstart:\n    maxk.onstart()\n", ""))
    with pytest.raises(AssertionError) as error:
        snakemake(tmp_path, "--configfile", "config.yaml", "--", "results/seconds/data/pocket-short/problems.parquet")
    said = "no such file; the workflow that uses the module must write it: `onstart: maxk.onstart()`"
    assert f"maxk prepare: config results/seconds/config.json: {said}" in str(error.value)


@pytest.mark.slow
def test_jobs_of_a_module_run(root: Path, tmp_path: Path) -> None:
    """`onstart` of a module runs only where the importing workflow says so; without it no job finds its settings."""
    importing(root, tmp_path, repr(str(root / "workflow" / "Snakefile")), "as maxk_*", "maxk_all")
    problems = "results/seconds/data/pocket-short/problems.parquet"
    snakemake(tmp_path, "--configfile", "config.yaml", "--", problems)
    assert (tmp_path / problems).exists()


@pytest.mark.slow
def test_a_workflow_fetched_from_a_repository_finds_its_parts(root: Path, tmp_path: Path) -> None:
    """As `snakedeploy` sets it up: the rules come from git, the code is the installed one."""
    repository, folder = tmp_path / "repository", tmp_path / "work"
    for name in ("workflow", "config"):
        shutil.copytree(root / name, repository / name)
    shutil.copy(root / "environment.yml", repository)
    git = ["git", "-C", str(repository), "-c", "user.name=test", "-c", "user.email=test@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *arguments], check=True, capture_output=True)
    folder.mkdir()
    importing(root, folder, f'gitfile({str(repository)!r}, path="workflow/Snakefile", ref="HEAD")')
    assert planned(snakemake(folder, "-n", "--configfile", "config.yaml"))["sample"] == 3


def test_the_catalog_finds_what_it_asks_for(root: Path) -> None:
    assert (root / "config" / "README.md").exists()
    assert "usage" in yaml.safe_load((root / ".snakemake-workflow-catalog.yml").read_text())
