"""Prints Markdown in the terminal (`maxk show table2`). A table wider than the terminal is folded, never cut."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import IO

from rich.console import Console
from rich.markdown import Markdown
from rich.theme import Theme

from maxk.reporting import markdown

_THEME = Theme({"markdown.em": "underline"})  # Markdown cannot underline, so emphasis is underlined
_MARKS = re.compile(r"</?u>|\*\*|\\")  # take no room in the terminal
_GAP = 2  # columns between two cells


def write(text: str, file: IO[str] | None = None) -> None:
    """Prints Markdown; <u> is underlined."""
    console = Console(file=file, theme=_THEME)
    for number, block in enumerate(text.strip().split("\n\n")):
        table = block.startswith("|")
        if number and not table:  # rich puts an empty line before a table
            console.print()
        for part in folded(block, console.width) if table else [block]:
            console.print(Markdown(re.sub(r"</?u>", "*", part)))


def folded(table: str, width: int) -> Iterator[str]:
    """A pipe table as one or several that fit the width, each with the first columns of words, which say what a row is.

    Where no other column fits beside these, or there is none, only the first is in all.
    """
    rows = [markdown.cells(line) for line in table.splitlines()]
    widths = [
        max(len(_MARKS.sub("", cell)) for cell in column)
        for column in zip(rows[0], *rows[2:], strict=True)  # without the line of dashes
    ]
    words = max(1, len(list(takewhile(lambda dashes: not dashes.endswith(":"), rows[1]))))
    if sum(one + _GAP for one in (*widths[:words], max(widths[words:], default=width))) > width:
        words = 1
    for columns in _groups(widths, width, words):
        yield markdown.columns(table, (*range(words), *columns))


def _groups(widths: Sequence[int], width: int, words: int) -> Iterator[list[int]]:
    """Columns after those of words, in groups that fit beside these."""
    group: list[int] = []
    for i in range(words, len(widths)):
        if group and sum(widths[j] + _GAP for j in (*range(words), *group, i)) > width:
            yield group
            group = []
        group.append(i)
    yield group
