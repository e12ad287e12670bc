"""Prompts: the template, the chat template of a tokenizer, and the copy that is stored beside the samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from maxk.artifacts import files, records
from maxk.artifacts.records import Policy, Problem, Test
from maxk.config import Config
from maxk.data import prompts
from maxk.data.prompts import Prompt
from maxk.errors import UserError
from maxk.stages.sample import _Job

ROLES = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<assistant>"
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + ROLES
)
DATED = "Today is {{ strftime_now('%d %b %Y %H:%M:%S') }}.\n" + ROLES


@pytest.fixture(scope="module")
def tokenizer(base_model: str) -> Any:
    return AutoTokenizer.from_pretrained(base_model)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (Prompt(), "add {x}\n"),
        (Prompt(template="Solve.\n{statement}\nCode:"), "Solve.\nadd {x}\nCode:"),
        (Prompt(template="{statement}", chat=True), "<user>add {x}<assistant>"),
        (Prompt(template="{statement}", chat=True, system="Brief."), "<system>Brief.<user>add {x}<assistant>"),
    ],
)
def test_rendering(prompt: Prompt, expected: str, tokenizer: Any) -> None:
    tokenizer.chat_template = ROLES
    assert prompts.render("add {x}", prompt, tokenizer) == expected


def test_a_template_that_prints_the_time_prints_always_the_same(tokenizer: Any) -> None:
    """Shards that start at different times must read the same prompts."""
    tokenizer.chat_template = DATED
    expected = "Today is 26 Jul 2024 00:00:00.\n<user>add<assistant>"
    assert prompts.render("add", Prompt(template="{statement}", chat=True), tokenizer) == expected


@pytest.mark.parametrize(
    ("template", "system", "message"),
    [
        (None, None, r"prompt.chat: the model has no chat template; set it to false"),
        (
            NO_SYSTEM,
            "Brief.",
            r"refuses system and user messages \(System role not supported\); leave prompt.system out",
        ),
        ("{{ nothing.at_all }}", None, r"refuses user messages \('nothing' is undefined\)"),
        ("{% if %}", None, r"refuses user messages \(Expected an expression"),
    ],
)
def test_templates_that_cannot_be_used(template: str | None, system: str | None, message: str, tokenizer: Any) -> None:
    tokenizer.chat_template = template
    with pytest.raises(UserError, match=message):
        prompts.render("add", Prompt(chat=True, system=system), tokenizer)


def test_a_model_that_takes_no_system_message_takes_others(tokenizer: Any) -> None:
    tokenizer.chat_template = NO_SYSTEM
    assert prompts.render("add", Prompt(template="{statement}", chat=True), tokenizer) == "<user>add<assistant>"


def test_what_a_policy_read_is_stored_beside_its_samples(
    seconds: Config, base_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = seconds.evaluated[:2]
    problems: list[Any] = [Problem(f"{first}/1", first, "test", "sort up", [Test("", "1")])]
    _Job(seconds, Policy("base", "Base", base_model), problems).write_prompts(0)
    table = files.read_table(seconds.layout.prompts("base", first, 0), records.PROMPT)
    assert table.to_pylist() == [{"problem_id": f"{first}/1", "prompt": "sort up\n"}]
    assert files.read_table(seconds.layout.prompts("base", second, 0), records.PROMPT).num_rows == 0
