"""Fixtures of several test modules."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.pop("FORCE_COLOR", None)  # tests read what is printed

import pytest
from hypothesis import HealthCheck, settings

from fresh import build_wheel
from maxk import config as configuration
from maxk.artifacts import files
from maxk.config import Config
from pipeline import RESULTS, snakemake

ROOT = Path(__file__).parent.parent
# On a busy machine any example may take long. Tests of text ask for more examples.
settings.register_profile("maxk", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)
settings.load_profile("maxk")

# Files that take longest start first, so that no worker is left alone with one at the end. Those that wait for the
# pipeline's run, which the first makes, follow when it is nearly done.
LONG = [
    *("test_end_to_end", "test_maxk_trainer", "test_docs", "test_attacks", "test_trainer", "test_objectives"),
    *("test_kills", "test_machine", "test_red_team", "test_grader"),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONG)))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def defaults() -> dict:
    """The default experiment, as read from YAML."""
    return configuration.read_yaml(ROOT / "config" / "config.yaml")


@pytest.fixture(scope="session")
def seconds(defaults: dict) -> Config:
    """The seconds-scale experiment."""
    changes = configuration.read_yaml(ROOT / "tests" / "configs" / "seconds.yaml")
    return configuration.parse(configuration.overlay(defaults, changes))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of pytest-xdist share."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"


@pytest.fixture(scope="session")
def wheel(shared: Path) -> Path:
    """The wheel of this repository."""
    folder = shared / "wheel"
    with files.lock(folder):
        built = list(folder.glob("*.whl"))
        return built[0] if built else build_wheel(ROOT, folder)


@pytest.fixture(scope="session")
def base_model(seconds: Config, shared: Path) -> str:
    """Folder of the seconds-scale base model: that of `finished` where its run has made it. Not to be changed."""
    from maxk.training.pretrain import pretrain

    policy, folder = shared / "finished" / seconds.layout.policy("base"), shared / "base"
    if policy.exists():
        return str(policy.parent / "model")
    with files.lock(folder):
        if not (folder / "model").exists():
            pretrain(seconds.base, seconds.prompt, folder / "model")
    return str(folder / "model")


@pytest.fixture(scope="session")
def finished(shared: Path) -> Path:
    """The folder of a finished, undisturbed run of the seconds-scale experiment. Not to be changed."""
    folder = shared / "finished"
    with files.lock(folder):
        if not (folder / RESULTS / "report.html").exists():
            done = snakemake(folder)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


@pytest.fixture
def unfinished(finished: Path, tmp_path: Path) -> Callable[..., Path]:
    """Copies the finished folder, without what the paths (below the experiment's folder) name."""

    def copy(*absent: str) -> Path:
        folder = tmp_path / "copy"
        shutil.copytree(finished, folder, symlinks=True)
        for pattern in absent:
            for path in (folder / RESULTS).glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return folder

    return copy
