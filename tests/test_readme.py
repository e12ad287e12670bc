"""The README's Python blocks run as they stand, each in a fresh process, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
PRINTED = {
    "estimators": "[0.36328125 0.595",  # 93/256, and 1 − (163·162)/(256·255)
    "grading": "('passed', 'passed') 1.0",
}


@pytest.mark.parametrize("block", BLOCKS, ids=[re.findall(r"from maxk\.(\w+)", block)[-1] for block in BLOCKS])
def test_a_block_runs(block: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert PRINTED.get(request.node.callspec.id, "") in done.stdout
