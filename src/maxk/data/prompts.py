"""Prompts: how a statement is rendered for the model, the same in training and evaluation."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field, model_validator

from maxk.errors import UserError
from maxk.schema import Section

TODAY = datetime(2024, 7, 26)  # for templates that print the date, so that a prompt is the same on every day


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
    """The prompt of a problem: the template, wrapped in the tokenizer's chat template if `config.chat` is set.

    Raises UserError if there is no chat template, or it does not take the messages.
    """
    text = config.template.replace("{statement}", statement)
    if not config.chat:
        return text
    messages = [{"role": "system", "content": config.system}] if config.system is not None else []
    messages.append({"role": "user", "content": text})
    return _chat(messages, tokenizer)


def _chat(messages: list[dict[str, str]], tokenizer: Any) -> str:
    from jinja2 import TemplateError

    if tokenizer.chat_template is None:
        raise UserError("prompt.chat: the model has no chat template; set it to false, or add a chat_template.jinja")
    try:
        rendered: str = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, strftime_now=TODAY.strftime
        )
    except TemplateError as error:
        roles = " and ".join(message["role"] for message in messages)
        raise UserError(
            f"prompt.chat: the model's chat template refuses {roles} messages ({error}); leave prompt.system out, "
            "fix the template, or set prompt.chat to false"
        ) from None
    return rendered
