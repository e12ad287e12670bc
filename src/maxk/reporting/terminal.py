"""Prints a Markdown table that `maxk table` wrote (`maxk show table2`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.markdown import Markdown
from rich.theme import Theme

from maxk.errors import UserError

_THEME = Theme({"markdown.em": "underline"})  # Markdown cannot underline; emphasis stands for it


def show(path: str, notes: bool = True, file: IO[str] | None = None) -> None:
    """Prints title, table and, if asked for, the notes below it. Raises UserError if there is no such file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run `maxk table {Path(path).stem}`") from None
    shown = text if notes else "\n\n".join(text.split("\n\n")[:2])
    Console(file=file, theme=_THEME).print(Markdown(re.sub(r"</?u>", "*", shown)))
