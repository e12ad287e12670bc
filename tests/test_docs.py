"""What the documentation tells you to type works.

Every command in the README and in docs/ names a subcommand, target, script and file that exist, with arguments that
parse; dry runs, plans and helps are really run, and Python snippets executed. The how-tos named in `FOLLOWED` are
followed on a copy of the repository from the first block to the last: a block with a title is a file to write, a diff
is applied, shell and Python are run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from markdown_it import MarkdownIt

import pipeline
from maxk import cli
from maxk import config as configuration
from maxk.artifacts import files, records
from maxk.artifacts.paths import Layout

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "config" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLLOWED = (
    "docs/add-objective.md",
    "docs/add-dataset.md",
    "docs/add-backend.md",
    "docs/datasets.md",
    "docs/grade.md",
    "docs/compare.md",
)
CHECKED = ("maxk", "snakemake", "make", "python", "pytest")
ENVIRONMENT = {**pipeline.ENVIRONMENT, "COLUMNS": "100"}


# ---- what the pages hold
class Block(NamedTuple):
    """A code block; `file` is the path in its title, for blocks that show a whole file."""

    page: str
    line: int
    language: str
    file: str | None
    text: str


def blocks(path: Path) -> Iterator[Block]:
    for token in MarkdownIt().parse(path.read_text(encoding="utf-8")):
        if token.type not in ("fence", "code_block"):
            continue
        title = re.search(r'title="([^"]+)"', token.info)
        language = token.info.split()[0] if token.info.strip() else ""
        if not language and token.content.split()[:1] and token.content.split()[0] in CHECKED:
            language = "bash"
        page = str(path.relative_to(ROOT))
        yield Block(page, token.map[0] + 1, language, title and title[1], token.content)


BLOCKS = [block for path in PAGES for block in blocks(path)]


class Command(NamedTuple):
    """A command with its arguments, and where it stands."""

    where: str
    words: tuple[str, ...]


def shell_commands(text: str) -> Iterator[tuple[str, ...]]:
    """The simple commands of a shell script: no heredocs, comments, redirections or variables set for a command."""
    text = re.sub(r"<<-?\s*'?(\w+)'?(.*?)\n.*?^\1$", r"\2", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(^|\s)#.*", r"\1", text).replace("\\\n", " ")
    text = re.sub(r"\d?>&\d", "", text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    words: list[str] = []
    tokens = [*lexer, "\n"]
    for before, token in zip(["\n", *tokens], tokens, strict=False):
        if set(token) <= set("<>") or set(before) <= set("<>"):
            continue
        if not set(token) <= set("();|&\n"):
            words.append(token)
            continue
        while words and (re.match(r"\w+=", words[0]) or words[0] == "$"):
            words.pop(0)
        if words:
            yield tuple(words)
        words = []


def commands() -> Iterator[Command]:
    """All commands of all pages: those in blocks, and those in the text."""
    for block in BLOCKS:
        if block.language in ("bash", "sh", "console"):
            for words in shell_commands(block.text):
                yield Command(f"{block.page}:{block.line}", words)
    for path in PAGES:
        for token in MarkdownIt().enable("table").parse(path.read_text(encoding="utf-8")):
            for child in token.children or []:
                words = child.content.split() if child.type == "code_inline" else []
                if len(words) > 1 and words[0] in CHECKED and not {"STAGE", "…"} & set(words):
                    yield Command(f"{path.relative_to(ROOT)}, in the text", tuple(shlex.split(child.content)))


COMMANDS = [command for command in commands() if Path(command.words[0]).name in CHECKED]


# ---- whether a command exists
class _Parsed(Exception):
    """The arguments of a script were understood."""


def check(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = command.words
    match Path(program).name:
        case "maxk":
            check_maxk(command, arguments)
        case "python":
            check_python(command, arguments, monkeypatch)
        case "make":
            done = subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, f"{command.where}: {done.stderr}"
        case "snakemake":
            check_snakemake(arguments)
    check_files(command)


def check_maxk(command: Command, arguments: list[str]) -> None:
    assert arguments[0] in (*cli.STAGES, "--help"), command
    if arguments == ["--help"] or (len(arguments) == 1 and "in the text" in command.where):  # named, not called
        return
    parse(cli.parser(arguments[0]), arguments[1:])


def check_python(command: Command, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if arguments[:1] == ["-m"]:
        if arguments[1] == "maxk":
            return check_maxk(command, arguments[2:])
        assert importlib.util.find_spec(arguments[1]), command
        return None
    script = ROOT / arguments[0]
    if script.suffix == ".py" and "ArgumentParser" in script.read_text(encoding="utf-8"):

        def parse_only(parser: argparse.ArgumentParser, *_: object) -> None:
            parse(parser, arguments[1:])
            raise _Parsed

        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
        monkeypatch.setattr(sys, "path", [str(script.parent), *sys.path])
        with pytest.raises(_Parsed):
            runpy.run_path(str(script), run_name="__main__")
    return None


def check_snakemake(arguments: list[str]) -> None:
    from snakemake.cli import get_argument_parser

    # Executors are plugins, which need not be installed here.
    text = re.sub(r"(--executor|-e) \S+|--(slurm|kubernetes)-\S+( [^-]\S*)?", "", shlex.join(arguments))
    parse(get_argument_parser(), shlex.split(text))


def check_files(command: Command) -> None:
    """Whatever is said to be in a folder of the repository exists, unless a block of the same page makes it."""
    made = {block.file for block in BLOCKS if command.where.startswith(f"{block.page}:")}
    for word in command.words:
        path = re.sub(r"::.*", "", word.rpartition("=")[2])
        if re.match(r"(config|workflow|profiles|tests|benchmarks|src|docs|requirements)/", path) and path not in made:
            assert list(ROOT.glob(path)), f"{command.where}: no file {path}"


def parse(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """Fails where argparse complains; `--help` is no complaint."""
    try:
        _, unknown = argparse.ArgumentParser.parse_known_args(parser, arguments)
    except SystemExit as exit_:
        unknown = arguments if exit_.code else []
    assert not unknown, f"{parser.prog} does not take {shlex.join(unknown)}"


def test_an_interactive_zsh_takes_every_command_as_it_stands() -> None:
    """It does not know comments: `make run  # …` would ask make for a target `#`."""
    shell = [block for page in PAGES for block in blocks(page) if block.language in ("bash", "sh")]
    commented = [
        f"{b.page}:{b.line}: {line}" for b in shell for line in b.text.splitlines() if re.search(r"\s#\s", line)
    ]
    assert not commented


def test_there_are_commands_to_check() -> None:
    assert {Path(command.words[0]).name for command in COMMANDS} == set(CHECKED)
    assert {command.words[0] for command in COMMANDS if command.where.startswith("README")} >= {"maxk", "make"}


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS), ids=lambda command: shlex.join(command.words)[:80])
def test_commands_exist(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    check(command, monkeypatch)


@pytest.mark.parametrize(
    "words",
    [
        ("maxk", "no-such-stage"),
        ("maxk", "plan", "--config", "config/absent.yaml"),
        ("make", "no-such-target"),
        ("python", "benchmarks/rates.py", "no-such-shape"),
        ("python", "benchmarks/absent.py"),
        ("python", "-m", "maxk.absent"),
        ("snakemake", "--no-such-option"),
    ],
)
def test_commands_that_do_not_exist_are_found(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises((AssertionError, OSError)):
        check(Command("page:1", words), monkeypatch)


# ---- what costs little is run
def dry_runs() -> list[Command]:
    """Snakemake commands but those for clusters, whose executors are plugins, and those that a followed how-to runs.

    One of those that differ in cores or `-n` alone: they plan the same.
    """
    found = [c for c in COMMANDS if c.words[0] == "snakemake" and not c.where.startswith(FOLLOWED)]
    found = [c for c in found if not re.search(r"profile|executor|'-e'", str(c.words))]
    return list({re.sub(r" --cores \w+| -n\b| --dry-run", "", shlex.join(c.words)): c for c in found}.values())


@pytest.mark.slow
@pytest.mark.parametrize("command", dry_runs(), ids=lambda command: shlex.join(command.words)[:80])
def test_snakemake_knows_what_to_do(command: Command, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "config", tmp_path / "config")
    for name in ("tests", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    for block in BLOCKS:
        if block.file and command.where.startswith(f"{block.page}:"):
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    options = ["--snakefile", str(ROOT / "Snakefile"), "--dry-run", "--cores", "1"]
    order = [sys.executable, "-m", "snakemake", *options, *command.words[1:]]
    done = subprocess.run(order, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def plans_and_helps() -> list[tuple[str, ...]]:
    found = [c for c in COMMANDS if c.words[0] == "maxk" and not c.where.startswith(FOLLOWED)]
    return sorted({c.words for c in found if {"plan", "--help"} & set(c.words)})


@pytest.mark.parametrize("words", plans_and_helps(), ids=shlex.join)
def test_plans_and_helps_are_printed(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as exit_:  # argparse leaves by itself after `--help`
        raise SystemExit(cli.main(words[1:]))
    assert exit_.value.code == 0
    assert capsys.readouterr().out


@pytest.fixture(scope="module")
def inspected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `maxk inspect pocket-short` prints of the default experiment."""
    config = configuration.experiment(None)
    config = config.model_copy(update={"tracking": config.tracking.model_copy(update={"enabled": False})})
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.chdir(tmp_path_factory.mktemp("inspected"))
        patch.setenv("COLUMNS", ENVIRONMENT["COLUMNS"])
        files.write_text("config.json", config.model_dump_json())
        for stage in ("prepare", "inspect"):
            assert cli.main([stage, "pocket-short", "--config", "config.json"]) == 0
    return printed.getvalue()


def test_the_pocket_page_shows_what_its_command_prints(inspected: str) -> None:
    [shown] = [b.text for b in BLOCKS if b.page == "docs/pocket.md" and b.language == "text"]
    assert shown.strip() == inspected.strip()


def test_the_tutorial_shows_lines_of_what_its_command_prints(inspected: str) -> None:
    """All but the lengths, which count tokens there: the base policy is made by then."""
    [shown] = [b.text for b in BLOCKS if b.page == "docs/tutorial.md" and "Rows left after" in b.text]
    different = set(shown.splitlines()) - set(inspected.splitlines())
    assert [line for line in different if "prompt length in tokens" not in line] == []


# ---- Python
def python_pages() -> list[str]:
    """Not the README, whose blocks run alone (test_readme.py)."""
    return sorted({block.page for block in BLOCKS if block.language == "python"} - {*FOLLOWED, "README.md"})


@pytest.mark.parametrize("page", python_pages())
def test_python_snippets_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippets of a page, one after the other, as a reader would paste them: nothing else is given."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in BLOCKS:
        if block.page == page and block.language == "python":
            exec(compile("\n" * block.line + block.text, page, "exec"), names)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "bash" and "python - <<" in b.text], ids=str)
def test_python_in_shell_blocks_compiles(block: Block) -> None:
    for body in re.findall(r"python - <<'(\w+)'\n(.*?)^\1$", block.text, re.DOTALL | re.MULTILINE):
        compile(body[1], block.page, "exec")


# ---- the how-tos
@pytest.mark.slow
@pytest.mark.parametrize("page", FOLLOWED)
def test_how_tos_can_be_followed(page: str, tmp_path: Path) -> None:
    for part in ("src", "config", "workflow", "tests", "Snakefile", "pyproject.toml", "environment.yml"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, tmp_path / part)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}
    steps = [block for block in BLOCKS if block.page == page]
    assert any(block.language == "bash" for block in steps)
    for block in steps:
        order = None
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "diff":
            order = ["git", "apply", "-"]
        elif block.language == "python":
            order = [sys.executable, "-"]
        elif block.language == "bash":
            order = ["bash", "-euo", "pipefail", "-s"]
        if order:
            done = subprocess.run(
                order, input=block.text, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
            )
            assert done.returncode == 0, f"{block.page}:{block.line}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"


def test_links_lead_to_files_of_the_repository() -> None:
    """Between pages of the site, `make docs` checks them."""
    links = {
        (page.name, link): (page.parent / link).exists()
        for page in PAGES
        for link in re.findall(r"\]\(([^):#\s]+)(?:#[^)]*)?\)", page.read_text())
    }
    assert len(links) > 100
    assert [link for link, exists in links.items() if not exists] == []


# ---- the generated reference
def test_every_column_and_every_path_says_what_it_holds() -> None:
    evaluation = (records.SAMPLE, records.PROMPT, records.VERDICT_AND_OUTPUTS, records.SCORE)
    schemas = (records.PROBLEM, records.DRAWN, records.MEASURED, *evaluation)
    assert {name for schema in schemas for name in schema.names} == set(records.COLUMNS)
    for name, member in vars(Layout).items():
        if not name.startswith("_") and name != "root":
            assert member.__doc__, f"Layout.{name} lacks a docstring"
