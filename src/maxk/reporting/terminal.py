"""Prints Markdown in the terminal (`maxk show table2`). A table wider than the terminal is folded, never cut."""

from __future__ import annotations

import io
import os
import re
import sys
import textwrap
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
_UNBOUNDED = 10_000  # columns of a file or a pipe


def write(text: str, file: IO[str] | None = None, whole: str = "") -> None:
    """Prints Markdown; <u> is underlined.

    whole: a file with the text; then a wide table is shortened where it can be, and the file is named.
    """
    _write(text, Console(file=file, theme=_THEME), whole)


def _write(text: str, console: Console, whole: str = "") -> None:
    if whole and (short := _shortened_in(text, console.width)) != text:
        text = f"{short.rstrip()}\n\nAll columns and intervals: {markdown.escape(whole)}."
    for number, block in enumerate(text.strip().split("\n\n")):
        table = block.startswith("|")
        if number and not table:  # rich puts an empty line before a table
            console.print()
        for part in folded(block, console.width) if table else [block]:
            console.print(Markdown(re.sub(r"</?u>", "*", part)))


def fitted(table: str) -> str:
    """A pipe table as plain text: one table, or several where it is wider than the terminal, or than COLUMNS says."""
    printed = io.StringIO()
    _write(table, Console(file=printed, color_system=None, width=_width()))
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines()).strip("\n")


def wrapped(line: str) -> str:
    """A line of text, broken where it is wider than the terminal, or than COLUMNS says; what follows is indented."""
    width = _width() or Console().width
    return textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def _width() -> int | None:
    """Columns: None for those of the terminal, or of COLUMNS; a file or a pipe has no bound."""
    return None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _UNBOUNDED


def _shortened_in(text: str, width: int) -> str:
    return "\n\n".join(shortened(block, width) if block.startswith("|") else block for block in text.split("\n\n"))


def shortened(table: str, width: int) -> str:
    """A pipe table without what is too wide; the whole table if nothing that may go makes it fit.

    First to go are the intervals of all columns but differences (`a − b`), then all differences but the last.
    """
    rows = [markdown.cells(line) for line in table.splitlines()]
    differences = [i for i, name in enumerate(rows[0]) if " − " in name]
    plain = "\n".join(
        markdown.row(cell if i in differences else re.sub(r" \[.*\]", "", cell) for i, cell in enumerate(row))
        for row in rows
    )
    fewer = markdown.columns(plain, [i for i in range(len(rows[0])) if i not in differences[:-1]])
    return next((one for one in (table, plain, fewer) if _fits(one, width)), table)


def _fits(table: str, width: int) -> bool:
    return sum(one + _GAP for one in _widths(table)) <= width


def _widths(table: str) -> list[int]:
    rows = [markdown.cells(line) for line in table.splitlines()]
    columns = zip(rows[0], *rows[2:], strict=True)  # without the line of dashes
    return [max(len(_MARKS.sub("", cell)) for cell in column) for column in columns]


def folded(table: str, width: int) -> Iterator[str]:
    """A pipe table as one or several that fit the width, each with the first columns of words, which say what a row is.

    Where no other column fits beside these, or there is none, only the first is in all.
    """
    widths = _widths(table)
    dashes = markdown.cells(table.splitlines()[1])
    words = max(1, len(list(takewhile(lambda one: not one.endswith(":"), dashes))))
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
