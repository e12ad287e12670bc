"""What selectors reach (`maxk.evaluation.selection`) as Markdown and as JSON values."""

from __future__ import annotations

from typing import Any

from maxk.evaluation.selection import DRAWS, Selection
from maxk.reporting import markdown


def to_markdown(name: str, found: Selection, level: float) -> str:
    """One table: k, the mean reward by selector with its interval, and distinct programs and outputs among k."""
    selectors = list(dict.fromkeys(selector for selector, _ in found.rewards))
    lines = [f"**{markdown.escape(name)}**", ""]
    lines += markdown.head(["k", *selectors, "distinct programs", "distinct outputs"])
    for k, programs in found.programs.items():
        cells = [markdown.interval(found.rewards[one, k], level) for one in selectors]
        lines.append(markdown.row([str(k), *cells, f"{programs:.1f}", f"{found.outputs[k]:.1f}"]))
    left_out = f"; {found.left_out} without other tests left out" if found.left_out else ""
    notes = [
        f"Mean reward of the selected sample on the tests that are not visible, {level:.0%} intervals over "
        f"{markdown.count(found.problems, 'problem')}{left_out}. Majority vote: {DRAWS} random draws a problem."
    ]
    return markdown.below(lines, notes)


def content(found: Selection, level: float) -> dict[str, Any]:
    """As JSON values."""
    rewards = []
    for (selector, k), one in found.rewards.items():
        low, high = one.interval(level)
        rewards.append({"selector": selector, "k": k, "mean": one.value, "low": low, "high": high})
    return {
        "problems": found.problems,
        "left_out": found.left_out,
        "level": level,
        "rewards": rewards,
        "distinct_programs": found.programs,
        "distinct_outputs": found.outputs,
    }
