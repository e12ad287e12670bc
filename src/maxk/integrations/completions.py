"""The text of a completion, from the shapes in which trainers pass it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxk.errors import described


def text_of(completion: Any) -> str:
    """A completion that is text, or the content of the last assistant message of one that is a list of chat messages.

    TRL passes such lists where the dataset is conversational; with tools, other messages stand between those of the
    assistant. A message of tool calls alone has no text. Content may be a list of text parts, which are joined. Raises
    TypeError for anything else.
    """
    if isinstance(completion, str):
        return completion
    if isinstance(completion, list | tuple):
        said = [one for one in completion if isinstance(one, Mapping) and one.get("role") == "assistant"]
        content = said[-1].get("content") if said else completion
        if isinstance(content, str | None):
            return content or ""
        if said and isinstance(content, list | tuple) and all(map(_is_text, content)):
            return "".join(part["text"] for part in content)
    raise TypeError(
        "a completion must be text, or chat messages of which the last of the assistant has text as its content; "
        f"got {described(completion)}"
    )


def _is_text(part: Any) -> bool:
    """Whether a part of a message's content is {"type": "text", "text": …}."""
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)
