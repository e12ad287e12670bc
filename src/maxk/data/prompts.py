"""Prompts: how a statement is rendered for the model, the same in training and evaluation."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from maxk.schema import Section


class Prompt(Section):
    """How a statement is rendered as a prompt."""

    template: str = Field("{statement}\n", description="Must contain `{statement}`.")
    chat: bool = Field(False, description="Wrap the prompt in the model's own chat template.")
    system: str | None = Field(None, description="System message; needs `chat: true`.")

    @model_validator(mode="after")
    def _placeholders(self) -> Prompt:
        if "{statement}" not in self.template:
            raise ValueError(f"template={self.template!r} lacks the placeholder {{statement}}")
        if self.system is not None and not self.chat:
            raise ValueError("system needs chat: true")
        return self


def render(statement: str, config: Prompt, tokenizer: Any) -> str:
    """The prompt of a problem: the template, wrapped in the tokenizer's chat template if `config.chat` is set."""
    text = config.template.replace("{statement}", statement)
    if not config.chat:
        return text
    messages = [{"role": "system", "content": config.system}] if config.system is not None else []
    messages.append({"role": "user", "content": text})
    rendered: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return rendered
