"""The README's Python blocks run as they stand, each in a fresh environment with what the README says to install."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fresh

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
EXTRAS = {"Estimate": "", "Train": "trl", "Grade": "grade"}  # by the heading of a block
# 93/256, and 1 − (163·162)/(256·255)
PRINTED = {"Estimate": "[0.36328125 0.595", "Train": "", "Grade": "('passed', 'passed') 1.0"}


def blocks(heading: str) -> list[str]:
    section = re.split(rf"^## {heading}$", README, flags=re.MULTILINE)[1].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def test_every_block_is_run() -> None:
    assert README.count("```python\n") == sum(len(blocks(heading)) for heading in EXTRAS)


def test_the_extras_are_those_of_the_install_command() -> None:
    assert re.findall(r"^pip install '?\.(?:\[(\w+)\])?", README, re.MULTILINE) == list(EXTRAS.values())


@pytest.mark.parametrize("heading", EXTRAS)
def test_blocks_run_in_a_fresh_environment(heading: str, wheel: Path, tmp_path: Path) -> None:
    environment = fresh.environment(wheel, tmp_path / "venv", EXTRAS[heading])
    for block in blocks(heading):
        assert PRINTED[heading] in fresh.run(environment, "python", "-c", block, folder=tmp_path)
