"""The tree says what it is: imports go one way, every stage has its rule, CI runs what the README shows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from fresh import printed
from maxk.cli import STAGES, parser

# A part may import only parts of the rows above its own.
LAYERS = [
    {"errors", "plugins", "schema", "estimators", "statistics", "progress"},
    {"objectives", "grading", "artifacts"},
    {"data", "trl", "integrations"},
    {"config"},
    {"tracking"},
    {"sampling", "evaluation"},
    {"training"},
    {"resources"},
    {"reporting"},
    {"stages"},
    {"cli"},
    {"__main__"},
]
# Parts that are installed and used alone, with the parts they may import.
LIGHT_CORE = {
    "estimators": set(),
    "statistics": set(),
    "objectives": {"errors", "plugins"},
    "grading": {"errors"},
    "trl": {"errors", "estimators", "objectives"},
}


def modules(root: Path) -> dict[str, list[Path]]:
    """Source files by the part of the package that they belong to."""
    source, found = root / "src" / "maxk", {}
    for path in source.rglob("*.py"):
        part = path.relative_to(source).parts[0].removesuffix(".py")
        found.setdefault(part, []).append(path)
    found.pop("__init__")
    return found


def imported(path: Path) -> set[str]:
    """Parts of maxk that a file imports, at whatever depth; `maxk.__version__` is of no part."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "maxk":
            names |= {f"maxk.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.split(".")[1] for name in names - {"maxk.__version__"} if name.startswith("maxk.")}


def test_every_part_has_its_layer(root: Path) -> None:
    assert set(modules(root)) <= set().union(*LAYERS)


def test_imports_go_one_way(root: Path) -> None:
    level = {part: i for i, layer in enumerate(LAYERS) for part in layer}
    for part, paths in modules(root).items():
        for path in paths:
            for other in imported(path) - {part}:
                assert level[other] < level[part], f"{path.relative_to(root)} imports maxk.{other}, a part above it"


@pytest.mark.parametrize("part", LIGHT_CORE)
def test_the_light_core_imports_nothing_of_the_pipeline(part: str, root: Path) -> None:
    for path in modules(root)[part]:
        assert imported(path) - {part} <= LIGHT_CORE[part], path.relative_to(root)


@pytest.mark.parametrize(("library", "owner"), [("mlflow", {"tracking"}), ("trl", {"trl", "training"})])
def test_libraries_have_owners(library: str, owner: set[str], root: Path) -> None:
    pattern = re.compile(rf"^\s*(?:import|from) {library}\b", re.MULTILINE)
    users = {part for part, paths in modules(root).items() for p in paths if pattern.search(p.read_text())}
    assert users == owner


def test_the_command_line_and_the_config_are_light() -> None:
    code = (
        "import sys; from maxk import cli, config; from maxk.reporting import figures, tables;"
        "[*map(cli.parser, cli.STAGES)];"
        "print(sorted({'torch', 'transformers', 'mlflow', 'pandas', 'trl', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    assert printed(code) == "[]"


def test_reading_a_configuration_imports_no_grader() -> None:
    code = "import sys; from maxk import config; config.experiment(None); print('maxk.grading' in sys.modules)"
    assert printed(code) == "False"


def test_only_figures_import_matplotlib() -> None:
    code = (
        "import sys; from maxk.reporting import diversity, estimates, rendering, report, summary;"
        "print('pandas' in sys.modules, 'matplotlib' in sys.modules)"
    )
    assert printed(code) == "True False"


def test_figures_import_no_scipy() -> None:
    code = "import sys; from maxk.reporting import style; print('seaborn' in sys.modules, 'scipy.stats' in sys.modules)"
    assert printed(code) == "True False"


# -------------------------------------------------------------------------------------------------- stages and rules
def test_every_rule_calls_its_subcommand_and_every_stage_has_a_rule(root: Path) -> None:
    rules: dict[str, str] = {}
    for path in root.glob("workflow/rules/*.smk"):
        for name, body in re.findall(r"^rule (\w+):\n(.*?)(?=^rule |\Z)", path.read_text(), re.MULTILINE | re.DOTALL):
            rules[name] = body
    for name, body in rules.items():
        assert f'"python -m maxk {name} ' in body, f"rule {name} must call the subcommand of its name"
        for part in ('    """', "    log:", "    conda:", "    params:", "    message:"):
            assert part in body, f"rule {name} lacks {part.strip()}"
    hooks = {"configure", "finalize"}  # when a run of the pipeline starts and ends
    by_hand = {"show", "grade", "compare", "select", "inspect", "plan", "ui", "doctor", "clean", "power", "push"}
    by_hand |= {"evaluate"}
    assert set(STAGES) - hooks - by_hand == set(rules)


def test_jobs_on_a_cluster_name_their_resources(root: Path) -> None:
    for path in root.glob("workflow/rules/*.smk"):
        for name, body in re.findall(r"^rule (\w+):\n(.*?)(?=^rule |\Z)", path.read_text(), re.MULTILINE | re.DOTALL):
            for part in ("    benchmark:", "    threads:", "        mem_mb=", "        runtime="):
                assert part in body, f"rule {name} lacks {part.strip()}"


def test_every_subcommand_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for stage in STAGES:
        with pytest.raises(SystemExit) as exit_:
            parser(stage).parse_args(["--help"])
        assert exit_.value.code == 0
        assert stage in capsys.readouterr().out


def test_options_name_the_sandboxes_that_there_are() -> None:
    """They are listed in the command, which must not import the grader for them."""
    from maxk.grading.sandbox import CHOICES
    from maxk.stages import grade

    assert grade._SANDBOXES == CHOICES


def test_readme_shows_the_commands_that_ci_runs(root: Path) -> None:
    readme, ci = (root / "README.md").read_text(), (root / ".ci" / "run").read_text()
    assert "make run" in readme
    assert "make test" in readme
    assert "make test" in ci
    assert "make check" in ci
    assert "make docs" in ci
