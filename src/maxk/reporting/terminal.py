"""A table in the terminal: the Markdown twin with its bold, underline and star shown as such.

maxk show table2 --config results/config.json
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    console = console or Console()
    console.print(rendered(text, console.width))


def rendered(markdown: str, width: int) -> Group:
    """Title, table and notes of a Markdown twin; columns that do not fit in `width` follow in further blocks."""
    lines = markdown.splitlines()
    piped = [_cells(line) for line in lines if line.startswith("|")]
    prose = [_plain(line.strip("*")) for line in lines if line and not line.startswith("|")]
    if len(piped) < 2 or not prose:
        raise UserError("not a table that `maxk table` wrote; run it again")
    header = [re.sub(r"(?<=[ -])", "\n", _plain(cell)) for cell in piped[0]]  # stacked, for narrow columns
    rows = [[_styled(cell) for cell in row] for row in piped[2:]]
    blocks = [_block(header, rows, chosen) for chosen in _fitting(header, rows, width)]
    return Group(Text(prose[0], style="bold"), *blocks, *(Text(note, style="dim") for note in prose[1:]))


def _fitting(header: Sequence[str], rows: Sequence[Sequence[Text]], width: int) -> list[list[int]]:
    """Numbers of the columns of each block: the first column (names) in all, the others in order."""
    needed = [
        2 + max([*map(len, name.splitlines()), *(len(row[index]) for row in rows)]) for index, name in enumerate(header)
    ]
    blocks: list[list[int]] = [[0]]
    for index in range(1, len(header)):
        if len(blocks[-1]) > 1 and sum(needed[i] for i in (*blocks[-1], index)) > width:
            blocks.append([0])
        blocks[-1].append(index)
    return blocks


def _block(header: Sequence[str], rows: Sequence[Sequence[Text]], columns: Sequence[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for index in columns:
        table.add_column(header[index], justify="right" if index else "left", overflow="fold")
    for row in rows:
        table.add_row(*(row[index] for index in columns))
    return table


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
