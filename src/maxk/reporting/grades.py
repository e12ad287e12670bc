"""The summary of `maxk grade`: counts of problems and tests, and max@k and pass@k, as JSON values and as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from maxk import statistics
from maxk.errors import UserError, counted
from maxk.estimators import usual_ks
from maxk.evaluation.systems import System, of_tally
from maxk.evaluation.verdict_files import Tally
from maxk.reporting import markdown

LEVEL = 0.95
METRICS = ("max", "pass")
_SHOWN = 3  # ids of problems


def require_ks(sizes: Mapping[str, int], ks: Sequence[int] | None, only_sampled: bool) -> None:
    """Raises UserError if a k is above the samples of a problem. `only_sampled`: not of one that has none."""
    if not ks:
        return
    if (lack := _lack(sizes)) and not only_sampled:
        raise UserError(f"--k: {lack}; --only-sampled leaves them out")
    few, fewest = min(_sampled(sizes).items(), key=lambda one: one[1])
    if max(ks) > fewest:
        raise UserError(f"--k: {max(ks)} is more than the {counted(fewest, 'sample')} of problem {few!r}")


def summary(tally: Tally, ks: Sequence[int] | None, only_sampled: bool) -> dict[str, Any]:
    """Counts, and max@k and pass@k as means over problems, at ks up to the fewest samples of a problem.

    `ks` None: 1, 2, 4, … and the fewest. Where a problem has no sample, there are no means, unless `only_sampled` asks
    for those over the others. Raises UserError if a sample was not graded.
    """
    tally.require_graded()
    counts = {
        "problems": len(tally.sizes),
        "test_statuses": dict(tally.statuses),
        "judged": dict(tally.judged),
    }
    lack = _lack(tally.sizes)
    if lack and not only_sampled:
        return counts | {"note": f"no max@k: {lack}; --only-sampled leaves them out"}
    return counts | _sizes(_sampled(tally.sizes), lack) | _estimates(tally, ks)


def _sampled(sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: n for name, n in sizes.items() if n}


def _lack(sizes: Mapping[str, int]) -> str:
    """How many problems have no sample, and which; "" if none lacks them."""
    names = [name for name, n in sizes.items() if n == 0]
    if not names:
        return ""
    shown = ", ".join(names[:_SHOWN]) + ", …" * (len(names) > _SHOWN)
    return f"{len(names)} of {counted(len(sizes), 'problem')} {'have' if len(names) > 1 else 'has'} no sample ({shown})"


def _sizes(sizes: Mapping[str, int], lack: str) -> dict[str, Any]:
    """How many problems are scored, and their samples."""
    few, many = (extreme(sizes, key=sizes.__getitem__) for extreme in (min, max))
    found: dict[str, Any] = {"problems_scored": len(sizes)}
    notes = [f"left out: {lack}"] * bool(lack)
    if sizes[few] == sizes[many]:
        found["samples_a_problem"] = sizes[few]
    else:
        has = f"problem {few!r} has {counted(sizes[few], 'sample')}, {many!r} {sizes[many]}"
        notes.append(f"no k above {sizes[few]}: {has}")
    return found | ({"note": "; ".join(notes)} if notes else {})


def _estimates(tally: Tally, ks: Sequence[int] | None) -> dict[str, Any]:
    """The means of each metric by k, and the ends of their intervals; None for the ends if there is one problem."""
    system = System("samples", [of_tally(tally)])
    ks = ks or usual_ks(system.n)
    found: dict[str, Any] = {}
    for metric in METRICS:
        values = system.estimates(metric, ks)
        means = {k: statistics.mean(values[:, :, i]) for i, k in enumerate(ks)}
        ends = {k: one.interval(LEVEL, statistics.MEAN_BOUNDS) for k, one in means.items()}
        found[f"{metric}@k"] = {k: one.value for k, one in means.items()}
        for i, end in enumerate(("low", "high")):
            found[f"{metric}@k_{end}"] = {k: None if math.isnan(two[i]) else two[i] for k, two in ends.items()}
    return found | {"interval": {"level": LEVEL, "over": "problems"}}


# ------------------------------------------------------------------------------------------------------ text
def to_text(found: Mapping[str, Any]) -> str:
    """A summary's table of max@k and pass@k, with what they are means over, and its note."""
    parts = ["\n".join(_table(found)), f"note: {found['note']}" if "note" in found else ""]
    return "\n\n".join(part for part in parts if part)


def _table(found: Mapping[str, Any]) -> Iterator[str]:
    if "max@k" not in found:
        return
    of = "" if found["problems_scored"] == found["problems"] else f"{found['problems_scored']} of "
    several = f"{markdown.percent(found['interval']['level'])} intervals over problems"
    ends = several if found["problems_scored"] > 1 else "no interval"
    yield f"means over {of}{counted(found['problems'], 'problem')}, {ends}"
    yield ""
    names = [f"{metric}@k" for metric in METRICS]
    yield from markdown.head(["k", *names])
    for k in found["max@k"]:
        yield markdown.row([str(k), *(_cell(found, name, k) for name in names)])


def _cell(found: Mapping[str, Any], name: str, k: int) -> str:
    low, high = (math.nan if (end := found[f"{name}_{side}"][k]) is None else end for side in ("low", "high"))
    return markdown.with_ends(found[name][k], low, high)
