"""examples/trl_train.py runs as it stands."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ANSWER = "```python\nprint(sum(map(int, input().split())))\n```"


@pytest.mark.slow
def test_it_trains(root: Path, letters_model: str, tmp_path: Path) -> None:
    """One step with a random model over letters: nothing passes, so nothing is learned."""
    command = [sys.executable, str(root / "examples" / "trl_train.py"), "--model", letters_model]
    command += ["--output", str(tmp_path / "out"), "--steps", "1", "--max-tokens", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_its_reward_is_the_fraction_of_tests_passed(root: Path) -> None:
    script = runpy.run_path(str(root / "examples" / "trl_train.py"))
    tests = script["PROBLEMS"][0]["tests"]
    always_3 = "```python\nprint(3)\n```"
    assert script["tests_passed"]([ANSWER, "no program", always_3], [tests] * 3) == [1.0, 0.0, 0.5]
