"""Prompts: the template, the chat template of a tokenizer, and the copy that is stored beside the samples."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from maxk.artifacts import files, records
from maxk.artifacts.records import Policy, Problem, Test
from maxk.config import Config
from maxk.data import prompts
from maxk.data.prompts import Prompt
from maxk.stages.sample import _Job


class Tokenizer:
    """Stands for a tokenizer with a chat template."""

    def apply_chat_template(self, messages: list[dict[str, str]], tokenize: bool, add_generation_prompt: bool) -> str:
        assert (tokenize, add_generation_prompt) == (False, True)
        return "".join(f"<{message['role']}>{message['content']}" for message in messages) + "<assistant>"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (Prompt(), "add {x}\n"),
        (Prompt(template="Solve.\n{statement}\nCode:"), "Solve.\nadd {x}\nCode:"),
        (Prompt(template="{statement}", chat=True), "<user>add {x}<assistant>"),
        (Prompt(template="{statement}", chat=True, system="Brief."), "<system>Brief.<user>add {x}<assistant>"),
    ],
)
def test_rendering(prompt: Prompt, expected: str) -> None:
    assert prompts.render("add {x}", prompt, Tokenizer()) == expected


def test_what_a_policy_read_is_stored_beside_its_samples(
    seconds: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = seconds.evaluated[:2]
    problems: list[Any] = [Problem(f"{first}/1", first, "test", "one", [Test("", "1")])]
    rendered = {problem.problem_id: "one!" for problem in problems}
    job: Any = SimpleNamespace(config=seconds, policy=Policy("base", "Base", "model"), tasks=problems, prompts=rendered)
    _Job.write_prompts(job, 0)
    table = files.read_table(seconds.layout.prompts("base", first, 0), records.PROMPT)
    assert table.to_pylist() == [{"problem_id": f"{first}/1", "prompt": "one!"}]
    assert files.read_table(seconds.layout.prompts("base", second, 0), records.PROMPT).num_rows == 0
