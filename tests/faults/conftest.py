"""Faults of machines, each against the real pipeline: slow tests (`make test-all`)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline import RESULTS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def disk() -> Iterator[Callable[[Path, str], None]]:
    """Mounts (or remounts) a file system in memory on a folder's results: `disk(folder, "size=1m")`. Needs root."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted: list[Path] = []

    def mount(folder: Path, options: str) -> None:
        target = folder / RESULTS
        target.mkdir(parents=True, exist_ok=True)
        how = f"remount,{options}" if target in mounted else options
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", how, "tmpfs", str(target)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0 and not mounted:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        mounted.append(target)

    yield mount
    for target in dict.fromkeys(mounted):
        subprocess.run(["umount", "--lazy", str(target)], check=True)
