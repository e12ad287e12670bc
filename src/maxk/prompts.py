"""A statement becomes what the model reads, in training and in evaluation alike."""

from __future__ import annotations

from typing import Any

from maxk.config import Prompt


def render(statement: str, config: Prompt, tokenizer: Any) -> str:
    """The prompt of a problem: the template, in the tokenizer's chat template where `config.chat` asks for it."""
    text = config.template.replace("{statement}", statement)
    if not config.chat:
        return text
    messages = [{"role": "system", "content": config.system}] if config.system is not None else []
    messages.append({"role": "user", "content": text})
    rendered: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return rendered
