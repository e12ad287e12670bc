"""The table and the figure of an experiment (`maxk.reporting.experiments` says what goes into them).

A row of the table holds

- max@1 and max@headline_k, each the mean over datasets with its interval, and the paired difference to the reference;
- where training ended: KL to the base model and entropy (mean over the last tenth), and how far the ratios drifted;
- max@1 and max@n of the training groups at matched KL.

    maxk experiment k_sweep --config results/config.json      # results/experiments/k_sweep.{csv,md,png,pdf}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from maxk import statistics
from maxk.artifacts import files
from maxk.artifacts.paths import BASE
from maxk.config import Config
from maxk.reporting import markdown, pages, style
from maxk.reporting.experiments import (
    AT_THE_END,
    THROUGHOUT,
    Findings,
    Outcome,
    at_matched_kl,
    collect,
    matched_kl,
    trajectory,
)
from maxk.reporting.specs import MEAN
from maxk.reporting.tidy import write_csv
from maxk.statistics import Floats

_AXES = {
    "k": "k trained for",
    "iterations": "PPO iterations μ",
    "temperature": "training temperature",
    "learning_rate": "learning rate",
}


def write(name: str, config: Config) -> list[str]:
    """Makes the experiment's files; returns their paths. Raises UserError where there is no such experiment."""
    findings = collect(name, config)
    paths = [config.layout.experiment(name, suffix) for suffix in ("csv", "md", "png", "pdf")]
    table = list(rows(findings))
    text = to_markdown(findings, table)
    write_csv(paths[0], table)
    files.write_text(paths[1], text)
    draw(findings, paths[2:])
    return [*paths, pages.write(config, f"experiments/{name}", text)]


# ------------------------------------------------------------------------------------------------------ table
def rows(findings: Findings) -> Iterator[dict[str, Any]]:
    """One row a policy, the base model first."""
    target = matched_kl(findings)
    yield from (
        {
            "policy": outcome.policy if outcome else BASE,
            "label": outcome.label if outcome else findings.scores.labels[BASE],
            **(outcome.parameters if outcome else dict.fromkeys(findings.outcomes[0].parameters)),
            "chosen": None if outcome is None or outcome.chosen is None else "yes" if outcome.chosen else "no",
            f"development_{findings.headline}": outcome.development if outcome else None,
            **_estimates(findings, outcome.policy if outcome else BASE),
            **_training_means(outcome.log if outcome else {}),
            **at_matched_kl(outcome.log if outcome else {}, target),
            "seeds": _seeds(findings, outcome.policy) if outcome else None,
        }
        for outcome in (None, *findings.outcomes)
    )


def _estimates(findings: Findings, policy: str) -> dict[str, Any]:
    """Means over datasets with their intervals, and differences to the reference with theirs; blank without scores."""
    found: dict[str, Any] = {}
    for quantity in ("max@1", findings.headline):
        mean = findings.scores.mean(policy, MEAN, quantity)
        found[quantity] = mean
        drawn = None if mean is None else findings.replicates.of(policy, MEAN, quantity)
        found |= _ends(quantity, drawn, findings)
        difference, drawn = findings.difference(policy, quantity)
        found[f"{quantity}_difference"] = difference
        found |= _ends(f"{quantity}_difference", drawn, findings)
        found[f"{quantity}_p_bootstrap"] = None if drawn is None else statistics.bootstrap_p(drawn)
    return found


def _ends(name: str, drawn: Floats | None, findings: Findings) -> dict[str, float | None]:
    low, high = (None, None) if drawn is None else findings.replicates.interval(drawn)
    return {f"{name}_low": low, f"{name}_high": high}


def _training_means(log: Mapping[str, Floats]) -> dict[str, float | None]:
    ends = {f"final_{key}": float(_last_tenth(log[key]).mean()) if key in log else None for key in AT_THE_END}
    return ends | {f"mean_{key}": float(log[key].mean()) if key in log else None for key in THROUGHOUT}


def _last_tenth(values: Floats) -> Floats:
    return values[:, -max(1, values.shape[1] // 10) :]


def _seeds(findings: Findings, policy: str) -> int:
    return len({seed for (row, _), cell in findings.scores.cells.items() if row == policy for seed in cell.seeds})


# --------------------------------------------------------------------------------------------------- Markdown
def to_markdown(findings: Findings, table: Sequence[Mapping[str, Any]]) -> str:
    """The table (`rows`) as one reads it: estimates with intervals, differences to the reference, KL."""
    headline, scores = findings.headline, findings.scores
    header = ["Policy", "max@1", headline, f"{headline} − reference", "final KL", "at equal KL: max@1", "max@n"]
    lines = [f"**{findings.name}: {findings.experiment.question}**", "", *markdown.head(header)]
    lines += [markdown.row(_markdown_cells(row, findings)) for row in table]
    level = f"{findings.replicates.level:.0%}"
    problems = sum(scores.problems(dataset) for dataset in scores.datasets)
    notes = [
        f"Means over {markdown.count(len(scores.datasets), 'dataset')} ({problems} problems, {scores.n} samples each; "
        f"training seeds: {', '.join(map(str, scores.seeds))}) with {level} bootstrap intervals over problems and "
        f"seeds. Reference: {scores.labels[findings.experiment.reference]}; differences are paired. Sandbox: "
        f"{scores.sandbox}.",
        "At equal KL: max@k of the training groups where each policy first reaches the KL that all of them reach.",
    ]
    if any(outcome.chosen is not None for outcome in findings.outcomes):
        notes.append(
            f"✓ marks the learning rate with the higher {headline} on every other problem; all numbers are those of "
            "the remaining problems."
        )
    notes += [f"{note}." for note in scores.notes]
    return markdown.below(lines, notes)


def _markdown_cells(row: Mapping[str, Any], findings: Findings) -> list[str]:
    def interval(key: str, sign: str = "") -> str:
        if row[key] is None:
            return "–"
        return f"{row[key]:{sign}.3f} [{row[f'{key}_low']:{sign}.3f}, {row[f'{key}_high']:{sign}.3f}]"

    def plain(key: str) -> str:
        return "–" if row[key] is None else f"{row[key]:.3f}"

    mark = " ✓" if row["chosen"] == "yes" else ""
    estimates = [interval("max@1"), interval(findings.headline), interval(f"{findings.headline}_difference", "+")]
    ends = [plain("final_kl"), plain("train_max@1_at_kl"), plain("train_max@n_at_kl")]
    return [markdown.escape(row["label"]) + mark, *estimates, *ends]


# ----------------------------------------------------------------------------------------------------- figure
def draw(findings: Findings, paths: Sequence[str]) -> None:
    """Three panels and a legend: against k (or the parameter varied), the trade-off, and max@n against KL."""
    looks = _looks(findings)
    with style.figure(9.4, 3.0 + 0.16 * (len(looks) // 3 + 1)) as figure:
        figure.set_layout_engine("constrained")
        first, second, third = figure.subplots(1, 3)
        (_draw_against if findings.experiment.against else _draw_curves)(first, findings, looks)
        _draw_trade_off(second, findings, looks)
        _draw_kl(third, findings, looks)
        handles, labels = second.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7)
        style.save(figure, paths)


def _shown(findings: Findings) -> list[Outcome]:
    """What is drawn: policies with scores, of candidates the chosen ones."""
    return [
        outcome
        for outcome in findings.outcomes
        if outcome.chosen is not False and (outcome.policy, MEAN) in findings.replicates.means
    ]


def _looks(findings: Findings) -> dict[str, style.Look]:
    """By series: the colour that a policy of it has in the main figures, or one that none has there."""
    members: dict[str, list[str]] = {}
    for outcome in _shown(findings):
        members.setdefault(outcome.series, []).append(outcome.policy)
    main = findings.palette
    shared = {series: next((row for row in rows if row in main), series) for series, rows in members.items()}
    looks = style.looks(list(dict.fromkeys((BASE, *main, *shared.values()))))
    return {BASE: looks[BASE], **{series: looks[row] for series, row in shared.items()}}


def _interval(findings: Findings, policy: str, quantity: str) -> tuple[float, float, float]:
    """Mean over datasets and the ends of its interval."""
    mean = findings.scores.mean(policy, MEAN, quantity)
    assert mean is not None  # only policies with scores are drawn
    return mean, *findings.replicates.interval(findings.replicates.of(policy, MEAN, quantity))


def _draw_curves(ax: Axes, findings: Findings, looks: Mapping[str, style.Look]) -> None:
    """max@k against k, the mean over datasets."""
    ks = findings.scores.ks
    for policy, series in ((BASE, BASE), *((one.policy, one.series) for one in _shown(findings))):
        means, lows, highs = zip(*(_interval(findings, policy, f"max@{k}") for k in ks), strict=True)
        ax.fill_between(ks, lows, highs, color=looks[series].colour, alpha=0.08, linewidth=0)
        ax.plot(ks, means, color=looks[series].colour, linestyle=looks[series].dashes)
    style.log2_axis([ax], ks)
    ax.set(title="max@k, mean over datasets", xlabel="k (samples drawn)")


def _draw_against(ax: Axes, findings: Findings, looks: Mapping[str, style.Look]) -> None:
    """max@headline_k against the parameter that is varied, a line a series; the base model as a level."""
    key = findings.experiment.against
    assert key is not None
    mean, low, high = _interval(findings, BASE, findings.headline)
    ax.axhspan(low, high, color=looks[BASE].colour, alpha=0.06, linewidth=0)
    ax.axhline(mean, color=looks[BASE].colour, linestyle=looks[BASE].dashes, linewidth=1.0)
    for series, look in looks.items():
        members = sorted((o for o in _shown(findings) if o.series == series), key=lambda o: float(o.parameters[key]))
        if not members:
            continue
        at = [float(one.parameters[key]) for one in members]
        means, lows, highs = zip(*(_interval(findings, one.policy, findings.headline) for one in members), strict=True)
        ax.vlines(at, lows, highs, color=look.colour, linewidth=0.8, alpha=0.6)
        ax.plot(at, means, color=look.colour, linestyle=look.dashes, marker=look.marker, markersize=3.5)
    ax.set_xticks(sorted({float(one.parameters[key]) for one in _shown(findings)}))
    ax.set(title=f"{findings.headline}, mean over datasets", xlabel=_AXES[key])


def _draw_trade_off(ax: Axes, findings: Findings, looks: Mapping[str, style.Look]) -> None:
    """max@headline_k against max@1, with both intervals and the value of what is varied; makes the legend's handles."""
    named: set[str] = set()
    key = findings.experiment.against
    values = {one.policy: one.parameters[key] for one in _shown(findings)} if key else {}
    for policy, series in ((BASE, BASE), *((one.policy, one.series) for one in _shown(findings))):
        (x, *x_ends), (y, *y_ends) = (_interval(findings, policy, q) for q in ("max@1", findings.headline))
        label = None if series in named else findings.scores.labels[BASE] if series == BASE else series
        named.add(series)
        look = looks[series]
        ax.hlines(y, x_ends[0], x_ends[1], color=look.colour, linewidth=0.7)
        ax.vlines(x, y_ends[0], y_ends[1], color=look.colour, linewidth=0.7)
        # One point draws no line, but its handle in the legend does.
        ax.plot(x, y, color=look.colour, linestyle=look.dashes, marker=look.marker, markersize=4, label=label)
        text = f"{values.get(policy, '')}"
        ax.annotate(text, (x, y), (3, 3), textcoords="offset points", fontsize=6.5, color=look.text)
    ax.set(title="Trade-off", xlabel="max@1, mean over datasets", ylabel=findings.headline)


def _draw_kl(ax: Axes, findings: Findings, looks: Mapping[str, style.Look]) -> None:
    """max@n of the training groups against KL: what a policy gains for how far it has moved."""
    for outcome in _shown(findings):
        if not outcome.log:
            continue
        kl, maxima = trajectory(outcome.log)
        look = looks[outcome.series]
        ax.plot(kl, list(maxima.values())[-1], color=look.colour, linestyle=look.dashes, linewidth=1.0)
    target = matched_kl(findings)
    if target is not None:
        ax.axvline(target, color="#888888", linewidth=0.6)
    ax.set(title="Training groups: best of n against KL", xlabel="KL to the base model")
