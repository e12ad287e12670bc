"""What selectors reach (`maxk.evaluation.selection`) as Markdown and as JSON values."""

from __future__ import annotations

from typing import Any

from maxk.errors import counted
from maxk.evaluation.selection import DRAWS, Selection
from maxk.reporting import markdown
from maxk.statistics import MEAN_BOUNDS


def to_markdown(name: str, found: Selection, level: float) -> str:
    """One table: k, the mean reward by selector with its interval, and distinct programs and outputs among k.

    Where asserts judge, one line says why there are no outputs.
    """
    selectors = list(dict.fromkeys(selector for selector, _ in found.rewards))
    lines = [f"**{markdown.escape(name)}**", ""]
    counts = {"distinct programs": found.programs}
    if found.outputs is not None:
        counts["distinct outputs"] = found.outputs
    lines += markdown.head(["k", *selectors, *counts])
    for k in found.programs:
        cells = [markdown.interval(found.rewards[one, k], level) for one in selectors]
        lines.append(markdown.row([str(k), *cells, *(f"{of[k]:.1f}" for of in counts.values())]))
    left_out = f"; {found.left_out} without other tests left out" if found.left_out else ""
    notes = [
        "Mean reward, on the tests that are not visible, of the one of k samples that a selector picks (the oracle, "
        f"max@k, knows it), {markdown.percent(level)} intervals over {counted(found.problems, 'problem')}{left_out}.",
        "The majority vote compares the outputs on all tests, the visible and the others: it knows inputs and no "
        f"expected output. With two or more samples it is simulated: {DRAWS:,} random draws per problem."
        if found.outputs is not None
        else "No majority vote and no distinct outputs: these programs are judged by asserts and have no outputs.",
    ]
    return markdown.below(lines, notes)


def content(found: Selection, level: float) -> dict[str, Any]:
    """As JSON values."""
    rewards = []
    for (selector, k), one in found.rewards.items():
        low, high = one.interval(level, MEAN_BOUNDS)
        rewards.append({"selector": selector, "k": k, "mean": one.value, "low": low, "high": high})
    return {
        "problems": found.problems,
        "left_out": found.left_out,
        "level": level,
        "rewards": rewards,
        "distinct_programs": found.programs,
        "distinct_outputs": found.outputs,
    }
