"""Numbers that pages repeat are those of the committed results."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxk.reporting import markdown

ROOT = Path(__file__).parent.parent
README, POCKET, ARITHMETIC = (
    (ROOT / page).read_text(encoding="utf-8")
    for page in ("README.md", "docs/results-pocket/summary.md", "docs/results-arithmetic.md")
)
OTHER_BASES = [
    (ROOT / f"docs/results-arithmetic/other-bases/seed{seed}.md").read_text(encoding="utf-8") for seed in (1, 2)
]


def rows(text: str, heading: str) -> dict[str, list[str]]:
    """The table under the line that starts with this heading: other cells by the first cell."""
    lines = text[text.index(f"\n{heading}") :].strip().split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: others for first, *others in cells}


def test_the_readme_has_the_main_table_of_the_study() -> None:
    shown = {name.removesuffix(", k = 4"): cells for name, cells in rows(README, "| policy | max@1 |").items()}
    whole = rows(POCKET, "| Policy | max@1 |")
    assert shown == {name: [cells[0][:5], cells[1][:5], *cells[2:]] for name, cells in whole.items()}


def test_the_arithmetic_page_has_the_table_of_its_file() -> None:
    with (ROOT / "docs/results-arithmetic/numeric_reward.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            values = {key: float(value) for key, value in row.items() if re.match("max@", key) and value}
            cells = [markdown.of_row(values, "max@1"), markdown.of_row(values, "max@64")]
            reference = row["policy"] == "grpo"
            cells.append("–" if reference else markdown.of_row(values, "max@64_difference", "+.3f"))
            assert rows(ARITHMETIC, "| Policy | max@1 |")[row["label"]][:3] == cells


def answers(text: str) -> Iterator[tuple[str, str, bool]]:
    """What every rule compares, the difference with its interval, and whether that is shown."""
    found = re.findall(r"^- \*\*.*\*\* (.+ at max@\d+): (.+), p = ([\d.]+)\.$", text, re.MULTILINE)
    assert len(found) == 5
    for compared, difference, p in found:
        yield compared.replace(" at max@64", "").replace(" at max@1", ", at max@1"), difference, float(p) < 0.05


@pytest.mark.parametrize(("column", "text"), enumerate([ARITHMETIC, *OTHER_BASES]))
def test_the_table_of_other_base_models_is_that_of_their_files(column: int, text: str) -> None:
    """Bold where a difference is shown; the reference of the files is GRPO."""
    shown = {name: cells[column] for name, cells in rows(ARITHMETIC, "| max@64, and").items()}
    of_policies = rows(text, "| Policy | max@1 |")
    for name in ("Base model", "GRPO"):
        assert shown.pop(name) == of_policies[name][1][:5]
    below = of_policies["Base model"][2]
    value, low, high = re.findall(r"−[\d.]+", below)
    assert shown.pop("GRPO − base model") == f"{value} [{high}, {low}]".replace("−", "+")
    found = {compared: (difference.replace("\\", ""), bold) for compared, difference, bold in answers(text)}
    assert shown == {name: f"**{difference}**" if bold else difference for name, (difference, bold) in found.items()}
