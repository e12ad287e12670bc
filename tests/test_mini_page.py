"""The tables of the mini experiment are those of the committed files (docs/mini.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_tables_are_those_of_the_files() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "mini.py"],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        text=True,
        capture_output=True,
        check=True,
    )
    headline, *others = done.stdout.rstrip("\n").split("\n\n")
    assert headline in (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "results-mini.md").read_text(encoding="utf-8")
    assert len(others) == 11
    for table in others:
        assert table in page
