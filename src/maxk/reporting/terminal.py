"""A table in the terminal: the Markdown twin with its bold, underline and star shown as such.

maxk show table2 --config results/config.json
"""

from __future__ import annotations

import re
from pathlib import Path

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from maxk.errors import UserError

_MARKED = re.compile(r"^(?:\*\*(?P<bold>.*)\*\*|<u>(?P<underline>.*)</u>)$")
_CELL_BORDER = re.compile(r"(?<!\\)\|")


def show(path: str, console: Console | None = None) -> None:
    """Prints the Markdown table at `path`. Raises UserError where there is none."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run `maxk table {Path(path).stem}`") from None
    (console or Console()).print(rendered(text))


def rendered(markdown: str) -> Group:
    """Title, table and notes of a Markdown twin as one printable."""
    lines = markdown.splitlines()
    piped = [_cells(line) for line in lines if line.startswith("|")]
    prose = [line for line in lines if line and not line.startswith("|")]
    if len(piped) < 2 or not prose:
        raise UserError("not a table that `maxk table` wrote; run it again")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for header, alignment in zip(piped[0], piped[1], strict=True):
        number = alignment.endswith(":")
        stacked = re.sub(r"(?<=[ -])", "\n", _plain(header))  # narrow columns; what still is too wide folds
        table.add_column(
            stacked, justify="right" if number else "left", overflow="fold", no_wrap=not number, min_width=7
        )
    for row in piped[2:]:
        table.add_row(*(_styled(cell) for cell in row))
    title = Text(_plain(prose[0].strip("*")), style="bold")
    notes = [Text(_plain(note), style="dim") for note in prose[1:]]
    return Group(title, table, *notes)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _CELL_BORDER.split(line)[1:-1]]


def _styled(cell: str) -> Text:
    marked = _MARKED.match(cell)
    if marked is None:
        return Text(_plain(cell))
    style = "bold" if marked["bold"] is not None else "underline"
    return Text(_plain(marked["bold"] or marked["underline"]), style=style)


def _plain(text: str) -> str:
    """Markdown's backslash escapes undone."""
    return re.sub(r"\\(.)", r"\1", text)
