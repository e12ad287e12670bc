"""Dockerfile and Apptainer definition: the same packages, by the pins, without privilege."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml


def packages(text: str) -> set[str]:
    """What a recipe installs from Debian."""
    [names] = re.findall(r"--no-install-recommends \\\n(.*?)(?: &&|\n)", text, re.DOTALL)
    return set(names.split())


@pytest.fixture
def recipes(root: Path) -> dict[str, str]:
    return {name: (root / name).read_text() for name in ("Dockerfile", "apptainer.def")}


def test_both_install_the_same(recipes: dict[str, str]) -> None:
    docker, apptainer = recipes["Dockerfile"], recipes["apptainer.def"]
    assert packages(docker) == packages(apptainer) | {"tini"}
    assert "bubblewrap" in packages(docker)
    for recipe in (docker, apptainer):
        assert "debian:bookworm-slim" in recipe
        assert re.search(r"pip install --no-cache-dir --requirement \"?requirements/(\$LOCK|{{ LOCK }}).txt", recipe)
        assert "pip install --no-cache-dir --no-deps --editable ." in recipe


def test_every_copied_file_exists_and_is_not_ignored(root: Path, recipes: dict[str, str]) -> None:
    copied = [line.split()[2:-1] for line in recipes["Dockerfile"].splitlines() if line.startswith("COPY")]
    [listed] = re.findall(r"^%files\n(.*?)\n\n", recipes["apptainer.def"], re.MULTILINE | re.DOTALL)
    sources = [*chain(*copied), *(line.split()[0] for line in listed.splitlines())]
    assert {".", "requirements", "src", "pyproject.toml", "README.md", "LICENSE"} == set(sources)
    ignored = {line.rstrip("/") for line in (root / ".dockerignore").read_text().splitlines()}
    for source in sources:
        assert (root / source).exists(), source
        assert source not in ignored


def test_every_lock_that_a_recipe_offers_exists(root: Path, recipes: dict[str, str]) -> None:
    for recipe in recipes.values():
        locks = set(re.findall(r"LOCK=(\w+)", recipe))
        assert locks == {"cpu", "gpu"}
        assert all((root / "requirements" / f"{lock}.txt").is_file() for lock in locks)


def test_what_the_package_build_reads_is_copied(root: Path, recipes: dict[str, str]) -> None:
    """Apptainer copies single files, and an editable install reads those that pyproject.toml names."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    for needed in (project["readme"], *project["license-files"]):
        assert f"    {needed} /opt/maxk/{needed}\n" in recipes["apptainer.def"]


def test_the_image_runs_as_an_ordinary_user(recipes: dict[str, str]) -> None:
    """By number, which Kubernetes can check (`runAsNonRoot`)."""
    assert re.findall(r"^USER (.*)$", recipes["Dockerfile"], re.MULTILINE) == ["1000:1000"]


def test_a_stop_reaches_every_process_of_a_job(root: Path, recipes: dict[str, str]) -> None:
    """A shell as process 1 keeps SIGTERM to itself, and training is killed before it has saved a checkpoint."""
    assert 'ENTRYPOINT ["tini", "-g", "--"]' in recipes["Dockerfile"]
    profile = root / "workflow" / "profiles" / "kubernetes"
    job = yaml.safe_load((profile / "job.yaml").read_text())
    assert "command" not in job["spec"]["template"]["spec"]["containers"][0]  # it would replace the entry point
    assert '"command"' not in (profile / "submit.py").read_text()


def test_results_and_secrets_of_a_working_folder_stay_out(root: Path) -> None:
    kept_out = (root / ".dockerignore").read_text().splitlines()
    assert {".git", ".venv", ".snakemake", "results/*", "models"} <= set(kept_out)
