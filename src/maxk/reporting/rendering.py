"""The paper's tables as CSV, Markdown and LaTeX, with marks and notes.

The best value of a column is bold, the second best underlined; equal best values are all bold. A star is the paper's:
off-policy BoN is significantly better than the best of the paper's baselines, by Wilcoxon's signed-rank test over
problems, two-sided, Holm-corrected over the datasets. Rows that the paper does not have take no part. Notes give the
tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from maxk.artifacts.paths import BASE, command
from maxk.config import Config
from maxk.errors import UserError, counted
from maxk.reporting import MEAN, estimates, markdown
from maxk.reporting.load import Scores, load
from maxk.reporting.tables import PaperTable

Row = Mapping[str, Any]
# Below so many problems that differ, Wilcoxon's two-sided p is 2/2⁵ at least.
FEWEST_FOR_SIGNIFICANCE = 6
WIDEST_UNSCALED = 5  # columns that fit a page in LaTeX
DARKEST = 40  # percent of grey


# ------------------------------------------------------------------------------------------------------------- filling
@dataclass(frozen=True)
class Filled:
    """A table with its numbers: `values` by policy and header (NaN: no scores), which cells are best, and notes."""

    table: PaperTable
    labels: pd.Series[str]
    values: pd.DataFrame
    ranks: pd.DataFrame  # 1 best, 2 second; ties share a rank
    stars: frozenset[tuple[str | None, str]]  # policies and headers of starred values
    notes: tuple[str, ...]


def fill(table: PaperTable, scores: Scores, config: Config) -> Filled:
    """Looks up the numbers of a table. Rows that nothing trains are left out, and so are those of experiments that have
    not been made; other policies that lack scores are blank.
    """
    wanted = scores.rows if table.rows is None else table.rows
    known = [row for row in wanted if row == BASE or row in config.every_objective]
    offpolicy = estimates.roles(config).offpolicy
    tests = _against_best_baseline(scores, config, table) if offpolicy in known else {}
    scores, absent, reasons = _with_experiments(scores, config, table)
    rows = [row for row in known if row not in absent]
    numbers = {c.header: [scores.mean(row, c.dataset, c.quantity) for row in rows] for c in table.columns}
    values = pd.DataFrame(numbers, index=rows, dtype="float64")
    ranks = values.round(12).rank(method="dense", ascending=False)
    if len(rows) == 1:
        ranks[:] = float("nan")
    return Filled(
        table,
        pd.Series({row: config.label(row) for row in rows}),
        values,
        ranks,
        frozenset((offpolicy, header) for header, test in tests.items() if _significant(test, config)),
        (*_notes(scores, config, table, rows, tests, set(wanted) - set(known)), *reasons),
    )


def _against_best_baseline(scores: Scores, config: Config, table: PaperTable) -> dict[str, Row]:
    """By header of a dataset's column, the row of paired_tests.csv with the paper's comparison."""
    frame = estimates.differences(scores, config).query("comparison == @estimates.PAPER and dataset != @MEAN")
    rows = {(row["dataset"], f"{row['metric']}@{row['k']}"): row for row in estimates.records(frame)}
    places = {column.header: (column.dataset, column.quantity) for column in table.columns}
    return {header: rows[place] for header, place in places.items() if place in rows}


def _significant(test: Row, config: Config) -> bool:
    return bool(test["p_wilcoxon_holm"] < 1 - config.report.confidence and test["rank_biserial"] > 0)


def _with_experiments(scores: Scores, config: Config, table: PaperTable) -> tuple[Scores, list[str], list[str]]:
    """Scores with those of experiments' policies where they fit, the rows that lack them, and notes on these."""
    of_experiments = [row for row in table.rows or () if config.owner(row) is not None]
    made = table.made_by_experiments(config)
    absent = [row for row in of_experiments if row not in made]
    notes = list(_absent(config, absent))
    if not made:
        return scores, absent, notes
    try:
        found = load(config.only([row for row in table.rows or () if row in config.objectives or row in made]))
    except UserError as error:  # left by another run: it must not keep this one from its tables
        return scores, of_experiments, [*_absent(config, of_experiments), f"{error}."]
    return found, absent, notes


def _absent(config: Config, rows: Sequence[str]) -> Iterator[str]:
    """How to make missing scores, one note per experiment. It takes a run before: that of the tables is planned."""
    owners = {row: str(config.owner(row)) for row in rows}
    for owner in dict.fromkeys(owners.values()):
        labels = "; ".join(config.label(row) for row in rows if owners[row] == owner)
        done = command(config.layout, config.layout.experiment(owner, "csv"))
        yield f"No row until `{done}` has been run, and the tables after it: {labels}."


# --------------------------------------------------------------------------------------------------------------- notes
def _notes(
    scores: Scores,
    config: Config,
    table: PaperTable,
    rows: Sequence[str],
    tests: Mapping[str, Row],
    untrained: set[str],
) -> Iterator[str]:
    datasets = list(dict.fromkeys(c.dataset for c in table.columns if c.dataset != MEAN))
    problems = ", ".join(f"{dataset} {scores.problems(dataset)}" for dataset in datasets)
    shown = scores.only(rows, datasets)
    samples = counted(scores.n, "sample")
    yield f"Problems: {problems}; {samples} per problem; {_seeds(shown)}sandbox: {scores.sandbox}."
    yield f"Bold: best; underlined: second. {markdown.percent(config.report.confidence)} intervals: statistics.csv."
    yield from markdown.seed_notes(*shown.seed_range)
    yield from _test_notes(scores, config, tests)
    yield from _role_notes(config, datasets)
    if untrained:
        yield f"No row, because this experiment does not train them: {', '.join(sorted(untrained))}."
    yield from shown.notes()


def _seeds(shown: Scores) -> str:
    """Nothing in a run that trains no policy."""
    if not shown.configured:
        return ""
    return f"{shown.seeds_text(*(['mean over seeds'] if shown.seed_range[1] > 1 else []))}; "


def _test_notes(scores: Scores, config: Config, tests: Mapping[str, Row]) -> Iterator[str]:
    """The tests behind the stars, if there are any, and columns in which too few problems differ for one."""
    differing = {header: int(test["problems"] - test["zero_differences"]) for header, test in tests.items()}
    listed = "; ".join(
        f"{header} {scores.labels[test['reference']]}, p = {markdown.p_value(test['p_wilcoxon_holm'])}, "
        f"r = {markdown.number(test['rank_biserial'], '.2f')}, {differing[header]} of {test['problems']}"
        for header, test in tests.items()
    )
    if any(_significant(test, config) for test in tests.values()):
        yield (
            "*: off-policy BoN is better than the paper's best baseline; Wilcoxon signed-rank test over problems (not "
            f"of the means), two-sided, Holm-corrected over {counted(len(scores.datasets), 'dataset')}, p < "
            f"{1 - config.report.confidence:g}. Best baseline, p, rank-biserial r, problems that differ: {listed}."
        )
    few = [header for header, number in differing.items() if number < FEWEST_FOR_SIGNIFICANCE]
    if few:
        yield f"p < 0.05 is impossible with fewer than {FEWEST_FOR_SIGNIFICANCE} differing problems: {', '.join(few)}."


def _role_notes(config: Config, datasets: Sequence[str]) -> Iterator[str]:
    papers = {dataset: config.datasets[dataset].paper for dataset in datasets}
    named = [f"{one} is used in place of {paper}" for one, paper in papers.items() if paper not in (None, one)]
    if named:
        generated = any(config.datasets[dataset].synthetic for dataset in datasets)
        suffix = " (generated tasks, not the benchmarks)" if generated else ""
        yield f"Datasets: {', '.join(named)}{suffix}."


# --------------------------------------------------------------------------------------------------------------- texts
def render(table: PaperTable, scores: Scores, config: Config) -> list[str]:
    """CSV, Markdown and LaTeX."""
    filled = fill(table, scores, config)
    return [values_to_csv(filled), to_markdown(filled), to_latex(filled)]


def values_to_csv(filled: Filled) -> str:
    """Plain numbers with six decimals; blank where there are no scores."""
    frame = filled.values.copy()
    frame.insert(0, "label", filled.labels)
    return frame.to_csv(index_label="policy", float_format="%.6f", lineterminator="\n")


def to_csv(frame: pd.DataFrame) -> str:
    """Numbers with six significant digits; blank where something does not apply."""
    return frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def to_markdown(filled: Filled) -> str:
    """Title, table and notes."""
    lines = [f"**{_title(filled.table)}**", "", *markdown.head(["Method", *filled.values.columns])]
    for row in filled.values.index:
        cells = _cells(filled, row, blank="–", bold="**{}**", underline="<u>{}</u>", star=r"\*")
        lines.append(markdown.row([markdown.escape(filled.labels[row]), *cells]))
    return markdown.below(lines, filled.notes)


def to_latex(filled: Filled) -> str:
    """A booktabs table, scaled to the line where it is wide."""
    table, columns = filled.table, list(filled.values.columns)
    wide = len(columns) > WIDEST_UNSCALED
    shades = _shades(filled) if table.shaded else None
    lines = [
        r"% \usepackage{booktabs,graphicx}" + ("" if shades is None else r" \usepackage[table]{xcolor}"),
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_escape_latex(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        *([r"\resizebox{\linewidth}{!}{%"] if wide else []),
        r"\begin{tabular}{l" + "r" * len(columns) + "}",
        r"\toprule",
        " & ".join(["Method", *map(_escape_latex, columns)]) + r" \\",
        r"\midrule",
    ]
    for row in filled.values.index:
        cells = _cells(filled, row, blank="--", bold=r"\textbf{{{}}}", underline=r"\underline{{{}}}", star="*")
        if shades is not None:
            cells = (shade + cell for shade, cell in zip(shades.loc[row], cells, strict=True))
        lines.append(" & ".join([_escape_latex(filled.labels[row]), *cells]) + r" \\")
    notes = " ".join(_escape_latex(note) for note in filled.notes)
    lines += [r"\bottomrule", r"\end{tabular}" + ("}" if wide else ""), ""]
    lines += [rf"\par\smallskip\footnotesize {notes}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _shades(filled: Filled) -> pd.DataFrame:
    """LaTeX that shades a cell: from white at the lowest value of its column to DARKEST % grey at the highest."""
    spread = filled.values.max() - filled.values.min()
    fractions = ((filled.values - filled.values.min()) / spread.where(spread > 0)).fillna(0)
    return fractions.map(lambda one: rf"\cellcolor{{gray!{round(DARKEST * one)}}}" if one else "")


def _title(table: PaperTable) -> str:
    return f"{table.name.replace('table', 'Table ')}: {markdown.escape(table.title)}"


def _cells(filled: Filled, row: str, blank: str, bold: str, underline: str, star: str) -> Iterator[str]:
    """The numbers of a row with their marks."""
    for header, value, rank in zip(filled.values, filled.values.loc[row], filled.ranks.loc[row], strict=True):
        text = f"{value:.3f}" + (star if (row, header) in filled.stars else "")
        yield blank if pd.isna(value) else {1: bold, 2: underline}.get(rank, "{}").format(text)


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "−": "$-$",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in " ".join(text.split()))
