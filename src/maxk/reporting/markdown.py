"""The Markdown that tables and pages are written in: pipe tables whose text is taken as it stands."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from maxk.statistics import MEAN_BOUNDS, Estimate

_WIDTH = 1e-9  # of an interval that has none: a spread of zero is no certainty (docs/statistics.md)
_MARKS = re.compile(r"[\\|*_`<\[]|&(?=#?\w+;)")  # the last begins an HTML entity


def escape(text: str) -> str:
    """The text on one line, with nothing in it that Markdown would read as a mark."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split()))


def row(cells: Iterable[str]) -> str:
    """A row of a pipe table; cells are Markdown."""
    return f"| {' | '.join(cells)} |"


def head(names: Sequence[str], words: int = 1) -> list[str]:
    """The two lines that open a table; the first `words` columns hold words, all others numbers."""
    return [row(map(escape, names)), row([":---"] * words + ["---:"] * (len(names) - words))]


def cells(line: str) -> list[str]:
    """The cells of a row of a pipe table, as Markdown."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def columns(table: str, kept: Sequence[int]) -> str:
    """A pipe table with some of its columns."""
    return "\n".join(row(found[i] for i in kept) for found in map(cells, table.splitlines()))


def below(lines: Sequence[str], notes: Iterable[str]) -> str:
    """A table's lines with notes below it, a paragraph each, as a text."""
    return "\n".join([*lines, "", *(line for note in notes for line in (escape(note), ""))]).rstrip() + "\n"


def number(value: float, form: str) -> str:
    """A number with the minus sign of the prose around it; a hyphen could be a dash."""
    text = f"{value:{form}}"
    return f"−{text[1:]}" if text.startswith("-") else text


def percent(level: float) -> str:
    """The level of an interval: 95%, 99.5%; rounded to whole numbers it would be another level."""
    return f"{100 * level:g}%"


def interval(found: Estimate, level: float) -> str:
    """A mean of values in [0, 1] with its interval."""
    return with_ends(found.value, *found.interval(level, MEAN_BOUNDS))


def with_ends(value: float, low: float, high: float, form: str = ".3f") -> str:
    """A value with the ends of its interval; without them for a single problem, or where all problems are equal."""
    if math.isnan(low):
        return number(value, form)
    ends = "no spread" if high - low < _WIDTH else f"{number(low, form)}, {number(high, form)}"
    return f"{number(value, form)} [{ends}]"


def of_row(row: Mapping[str, Any], key: str, form: str = ".3f") -> str:
    """The value of a row at `key` with its interval, `key`_low to `key`_high; a dash for None and NaN."""
    if row[key] is None or math.isnan(row[key]):
        return "–"
    return with_ends(row[key], row[f"{key}_low"], row[f"{key}_high"], form)


def p_value(p: float) -> str:
    """A p-value with two significant digits."""
    return f"{p:.2g}"


def interval_over(fewest: int, most: int) -> str:
    """What the intervals of means are over, by the fewest and the most training seeds of a policy."""
    if most < 2:
        return "problems"
    return f"problems and training seeds{'' if fewest > 1 else ' (of policies with several)'}"


def seed_notes(fewest: int, most: int) -> list[str]:
    """What one training seed cannot show, where a policy has but one."""
    if fewest != 1:
        return []
    policies = "these trained policies" if most == 1 else "the trained policies that have no other"
    return [f"One training seed: no claim about methods, only about {policies}."]
