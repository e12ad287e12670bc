"""A comparison of systems (`maxk.evaluation.comparing`) as Markdown and as a figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from maxk.errors import counted
from maxk.evaluation.comparing import Comparison, Crossing, Difference, Solved
from maxk.reporting import markdown

_DISTINCT = ("grpo", "bon_offpolicy", "bon_loo1", "bon_mean")  # colours of a few systems that are far apart
_SHOWN = 10  # ids of problems; all are in the JSON


def to_markdown(found: Comparison) -> str:
    """A table of every k per metric and pair, with what is said about crossings and solved problems."""
    seeds = any(one["seeds"] > 1 for one in found.systems)
    names = [one["name"] + (f" ({counted(one['seeds'], 'seed')})" if seeds else "") for one in found.systems]
    lines = [f"**{markdown.escape(' against '.join(names))}**", ""]
    lines += [f"{counted(found.problems, 'problem')}, {markdown.percent(found.level)} intervals."]
    for metric in dict.fromkeys(one.metric for one in found.estimates):
        lines += ["", *_means(found, metric)]
        pairs: dict[tuple[str, str], list[Difference]] = {}
        for one in found.differences:
            if one.metric == metric:
                pairs.setdefault((one.a, one.b), []).append(one)
        lines += [line for rows in pairs.values() for line in ("", *_differences(rows, len(pairs) > 1))]
    crossings = found.crossings if len({one.k for one in found.estimates}) > 1 else []  # of one k, there is no curve
    lines += ["", *(f"- {_crossed(one)}" for one in crossings), *(f"- {_solved(one)}" for one in found.solved)]
    return markdown.below(lines, [*found.notes, *_tests(found)])


def _means(found: Comparison, metric: str) -> Iterator[str]:
    names = [one["name"] for one in found.systems]
    by_place = {(one.system, one.k): one for one in found.estimates if one.metric == metric}
    yield from markdown.head([f"{metric}@k", *names])
    for k in dict.fromkeys(k for _, k in by_place):
        each = [by_place[name, k] for name in names]
        yield markdown.row([str(k), *(markdown.with_ends(one.mean, one.low, one.high) for one in each)])


def _differences(rows: Sequence[Difference], corrected: bool) -> Iterator[str]:
    """Of one pair; for the only one, there is nothing to correct."""
    first = rows[0]
    yield from markdown.head([f"{first.metric}@k", f"{first.a} − {first.b}", "p", *(["p (Holm)"] * corrected)])
    for one in rows:
        difference = markdown.with_ends(one.difference, one.low, one.high, "+.3f")
        ps = map(markdown.p_value, (one.p, one.p_holm) if corrected else (one.p,))
        yield markdown.row([str(one.k), difference, *ps])


def _crossed(one: Crossing) -> str:
    upper, lower = markdown.escape(one.upper), markdown.escape(one.lower)
    low, high = (f"beyond {one.largest}" if k is None else str(k) for k in (one.low, one.high))
    ends = low if low == high else f"{low} to {high}"
    said = (
        f"{upper} is above {lower} from k = {one.k} on"
        if one.k
        else f"{upper} is behind {lower} at small k, and not ahead at the largest, k = {one.largest}"
    )
    return f"{one.metric}@k: {said} (interval of the crossing k: {ends})"


def _solved(one: Solved) -> str:
    a, b = markdown.escape(one.a), markdown.escape(one.b)
    return (
        f"Solved by both {one.both}, by neither {one.neither}, only by {a} {_ids(one.only_a)}, "
        f"only by {b} {_ids(one.only_b)}"
    )


def _ids(names: Sequence[str]) -> str:
    shown = ", ".join(markdown.escape(name) for name in names[:_SHOWN])
    more = ", …" if len(names) > _SHOWN else ""
    return f"{len(names)} ({shown}{more})" if names else "0"


def _tests(found: Comparison) -> Iterator[str]:
    """What the statements and p-values are, and are not."""
    compared = {(one.a, one.b) for one in found.differences}
    for about in dict.fromkeys(one.about for one in found.differences):
        pairs = dict.fromkeys(f"{one.a} − {one.b}" for one in found.differences if one.about == about)
        tests = dict.fromkeys(one.test for one in found.differences if one.about == about)
        yield f"{', '.join(pairs)}: a statement about {about}; p is two-sided, by {', '.join(tests)}."
    if len(compared) > 1:
        yield f"Holm's correction is over the {len(compared)} pairs at the same k and metric, not over k."


def draw(found: Comparison, path: str) -> None:
    """Curves of all systems against k with their intervals, a panel per metric, as PNG or PDF."""
    import pandas as pd

    from maxk.config.colours import COLOURS
    from maxk.reporting import style

    data = pd.DataFrame([one._asdict() for one in found.estimates]).rename(columns={"system": "policy"})
    data["metric"] += "@k"
    names = [one["name"] for one in found.systems]
    colours = list(dict.fromkeys([COLOURS[name] for name in _DISTINCT] + list(COLOURS.values())))
    looks = {
        name: style.Look(colours[i % len(colours)], marker=style.MARKERS[i % len(style.MARKERS)])
        for i, name in enumerate(names)
    }
    with style.applied():
        metrics = list(dict.fromkeys(data.metric))
        drawn = style.curves(data, looks, "k", "metric", metrics, columns=len(metrics), size=(2.88 * len(metrics), 2.4))
        drawn.label("k", f"mean, {markdown.percent(found.level)} interval")
        style.log2_axis(drawn.axes, sorted(set(data.k)), sparse=len(set(data.k)) > 9)
        style.legend(drawn.figure, names, dict(zip(names, names, strict=True)), looks)
        style.save(drawn.figure, [path])
