"""The paper's tables 1–14 from scores: CSV for machines, Markdown and LaTeX as in the paper.

Each table is declared once in `maxk.reporting.specs`: its columns (dataset × quantity) and its rows. Best values are
bold, second best underlined; a star marks a best value that is significantly better than the second (the paper's
Wilcoxon signed-rank test on the problems' values, two-sided, here Holm-corrected over the datasets). Equal best values
are all bold and never starred. Footnotes give the tests that the stars come from.

    maxk table table2 table3 --config results/config.json      # results/table2.{csv,md,tex}, …
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from maxk.artifacts import files
from maxk.artifacts.paths import BASE
from maxk.config import Config
from maxk.errors import UserError
from maxk.reporting import estimates, markdown, pages, specs
from maxk.reporting.load import EVERY, Scores, load
from maxk.reporting.specs import MEAN, Column, Spec
from maxk.statistics import SignedRank

BEST, SECOND = 1, 2
# Below so many problems that differ, Wilcoxon's two-sided p is 2/2⁵ at least.
FEWEST_FOR_SIGNIFICANCE = 6
WIDEST_UNSCALED = 5  # columns that fit a page in LaTeX
SUFFIXES = ("csv", "md", "tex")


# ------------------------------------------------------------------------------------------------------ table
@dataclass(frozen=True)
class Entry:
    """A cell: its value (None: blank), BEST or SECOND of its column (else 0), and whether it is starred."""

    value: float | None
    rank: int = 0
    starred: bool = False


@dataclass(frozen=True)
class Table:
    """A table ready to be written: `entries` by row, then column."""

    spec: Spec
    labels: Mapping[str, str]
    entries: Mapping[str, Sequence[Entry]]
    notes: tuple[str, ...]


def build(scores: Scores, config: Config, spec: Spec) -> Table:
    """The table of `spec`. Rows that nothing trains are left out, those that an experiment has yet to train are blank.

    Notes name both.
    """
    wanted = scores.rows if spec.rows is None else spec.rows
    rows = [row for row in wanted if row == BASE or row in config.every_objective]
    scores, further = _with_experiments(scores, config, spec)
    tests = _best_against_second(scores, spec, rows)
    significant = {
        place
        for place, (test, p_holm) in tests.items()
        if p_holm < 1 - config.report.confidence and test.rank_biserial > 0
    }
    columns = [_column(scores, rows, column, significant) for column in spec.columns]
    return Table(
        spec=spec,
        labels={row: config.label(row) for row in rows},
        entries={row: [column[row] for column in columns] for row in rows},
        notes=(*_notes(scores, config, spec, rows, tests, set(wanted) - set(rows)), *further),
    )


def _with_experiments(scores: Scores, config: Config, spec: Spec) -> tuple[Scores, list[str]]:
    """The scores that a table needs, with those of experiments' policies where they fit, and notes on all others."""
    made = specs.made_by_experiments(config, spec)
    blank = [row for row in spec.rows or () if config.owner(row) is not None and row not in made]
    notes = list(_blank(config, blank))
    if not made:
        return scores, notes
    try:
        return load(config.only([row for row in spec.rows or () if row in config.objectives or row in made])), notes
    except UserError as error:  # left by another run: it must not keep this one from its tables
        return scores, [*_blank(config, [*made, *blank]), f"{error}."]


def _blank(config: Config, rows: Sequence[str]) -> Iterator[str]:
    """What makes the scores of rows without, a note an experiment. In a run before: the tables' is planned by then."""
    owners = {row: str(config.owner(row)) for row in rows}
    for owner in dict.fromkeys(owners.values()):
        labels = "; ".join(config.label(row) for row in rows if owners[row] == owner)
        target = config.layout.experiment(owner, "csv")
        yield f"Blank until `snakemake --cores all {target}` has been run, and the tables after it: {labels}."


def _column(scores: Scores, rows: Sequence[str], column: Column, significant: set[tuple[str, str]]) -> dict[str, Entry]:
    ranked = estimates.ranking(scores, rows, column.dataset, column.quantity)
    values = sorted({value for _, value in ranked}, reverse=True)
    rank = {row: values.index(value) + 1 for row, value in ranked if len(rows) > 1}
    alone = sum(1 for place in rank.values() if place == BEST) == 1
    starred = alone and (column.dataset, column.quantity) in significant
    return {
        row: Entry(
            value=scores.mean(row, column.dataset, column.quantity),
            rank=rank.get(row, 0) if rank.get(row, 0) in (BEST, SECOND) else 0,
            starred=starred and rank.get(row) == BEST,
        )
        for row in rows
    }


Tests = Mapping[tuple[str, str], tuple[SignedRank, float]]


def _best_against_second(scores: Scores, spec: Spec, rows: Sequence[str]) -> Tests:
    """By (dataset, quantity): the test and its p, corrected over all datasets whichever the table shows."""
    found = {}
    for quantity in dict.fromkeys(column.quantity for column in spec.columns):
        pairs = estimates.best_and_second(scores, rows, quantity, scores.datasets)
        for dataset, one in estimates.signed_ranks(scores, pairs, quantity).items():
            found[dataset, quantity] = one
    return found


def _notes(
    scores: Scores, config: Config, spec: Spec, rows: Sequence[str], tests: Tests, untrained: set[str]
) -> Iterable[str]:
    datasets = list(dict.fromkeys(c.dataset for c in spec.columns if c.dataset != MEAN))
    problems = ", ".join(f"{dataset} {scores.problems(dataset)}" for dataset in datasets)
    seeds = ", ".join(str(seed) for seed in scores.seeds)
    yield (
        f"Problems: {problems}; {scores.n} samples a problem; training seeds: {seeds}"
        f"{' (mean over seeds)' if len(scores.seeds) > 1 else ''}; sandbox: {scores.sandbox}."
    )
    yield (
        "Bold: best; underlined: second; *: better than the second, Wilcoxon signed-rank test over problems, "
        f"two-sided, Holm-corrected over {markdown.count(len(scores.datasets), 'dataset')}, p < "
        f"{1 - config.report.confidence:g}. {config.report.confidence:.0%} intervals: statistics.csv."
    )
    yield from _test_notes(scores, spec, tests)
    roles = {dataset: config.datasets[dataset].paper for dataset in datasets}
    if any(roles.values()):
        named = ", ".join(f"{dataset} = {paper}" for dataset, paper in roles.items() if paper)
        synthetic = " (generated tasks, not the benchmarks)" if _is_synthetic(config, datasets) else ""
        yield f"In the place of the paper's datasets: {named}{synthetic}."
    if untrained:
        yield f"No row, as this experiment does not train them: {', '.join(sorted(untrained))}."
    for note in scores.notes:
        if note.row in rows and note.dataset in (*datasets, EVERY):
            yield f"{note}."


def _test_notes(scores: Scores, spec: Spec, tests: Tests) -> Iterable[str]:
    """The tests behind the stars, and where too few problems differ for any."""
    shown = {column.header: (column.dataset, column.quantity) for column in spec.columns}
    told = {header: (place[0], *tests[place]) for header, place in shown.items() if place in tests}
    if told:
        listed = "; ".join(
            f"{header} p = {p_holm:.2g}, r = {test.rank_biserial:.2f}, {test.differing} of {scores.problems(dataset)}"
            for header, (dataset, test, p_holm) in told.items()
        )
        yield (
            f"Best against second (p after Holm, rank-biserial r, problems that differ; zero differences are "
            f"dropped): {listed}."
        )
    few = [header for header, (_, test, _) in told.items() if test.differing < FEWEST_FOR_SIGNIFICANCE]
    if few:
        yield f"Fewer than {FEWEST_FOR_SIGNIFICANCE} problems differ, so p < 0.05 is out of reach: {', '.join(few)}."


def _is_synthetic(config: Config, datasets: Iterable[str]) -> bool:
    return any(config.datasets[dataset].synthetic for dataset in datasets)


# -------------------------------------------------------------------------------------------------- renderers
def write(table: Table, config: Config) -> list[str]:
    """Writes the CSV, its twins and its page of the report; returns the paths."""
    paths = [config.layout.table(table.spec.name, suffix) for suffix in SUFFIXES]
    for path, render in zip(paths, (to_csv, to_markdown, to_latex), strict=True):
        files.write_text(path, render(table))
    return [*paths, pages.write(config, table.spec.name, to_markdown(table))]


def to_csv(table: Table) -> str:
    """Plain numbers with six decimals; blank where there are no scores."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["policy", "label", *(column.header for column in table.spec.columns)])
    for row, entries in table.entries.items():
        values = ("" if entry.value is None else f"{entry.value:.6f}" for entry in entries)
        writer.writerow([row, table.labels[row], *values])
    return out.getvalue()


def to_markdown(table: Table) -> str:
    """A pipe table with bold, `<u>` and star, its title above and its notes below."""
    header = ["Method", *(column.header for column in table.spec.columns)]
    lines = [f"**{_title(table)}**", "", *markdown.head(header)]
    for row, entries in table.entries.items():
        lines.append(markdown.row([markdown.escape(table.labels[row]), *map(_markdown_entry, entries)]))
    return markdown.below(lines, table.notes)


def to_latex(table: Table) -> str:
    """A booktabs table, scaled to the line where it is wide."""
    columns = table.spec.columns
    wide = len(columns) > WIDEST_UNSCALED
    lines = [
        r"% \usepackage{booktabs,graphicx}",
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_escape_latex(table.spec.title)}}}",
        rf"\label{{tab:{table.spec.name}}}",
        *([r"\resizebox{\linewidth}{!}{%"] if wide else []),
        r"\begin{tabular}{l" + "r" * len(columns) + "}",
        r"\toprule",
        " & ".join(["Method", *(_escape_latex(column.header) for column in columns)]) + r" \\",
        r"\midrule",
    ]
    for row, entries in table.entries.items():
        cells = [_escape_latex(table.labels[row]), *map(_latex_entry, entries)]
        lines.append(" & ".join(cells) + r" \\")
    notes = " ".join(_escape_latex(note) for note in table.notes)
    lines += [r"\bottomrule", r"\end{tabular}" + ("}" if wide else ""), ""]
    lines += [rf"\par\smallskip\footnotesize {notes}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _title(table: Table) -> str:
    return f"{table.spec.name.replace('table', 'Table ')}: {markdown.escape(table.spec.title)}"


def _markdown_entry(entry: Entry) -> str:
    return _decorate(entry, blank="–", bold="**{}**", underline="<u>{}</u>", star=r"\*")


def _latex_entry(entry: Entry) -> str:
    return _decorate(entry, blank="--", bold=r"\textbf{{{}}}", underline=r"\underline{{{}}}", star="*")


def _decorate(entry: Entry, blank: str, bold: str, underline: str, star: str) -> str:
    if entry.value is None:
        return blank
    text = f"{entry.value:.3f}" + (star if entry.starred else "")
    return {BEST: bold, SECOND: underline}.get(entry.rank, "{}").format(text)


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in " ".join(text.split()))
