"""The paper's tables 1–14 from scores: CSV for machines, Markdown and LaTeX as in the paper.

Each table is declared once in `specs`: its columns (dataset × quantity) and its rows. Best values are bold,
second best underlined; a star marks a best value that is significantly better than the second (the paper's
Wilcoxon signed-rank test on the problems' values, two-sided, here Holm-corrected over the datasets). Equal
best values are all bold and never starred.

    maxk table table2 table3 --config results/config.json      # results/table2.{csv,md,tex}, …
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from maxk import files
from maxk.config import Config
from maxk.errors import UserError
from maxk.paths import BASE
from maxk.reporting import statistics
from maxk.reporting.load import MEAN, Scores

BEST, SECOND = 1, 2
SUFFIXES = ("csv", "md", "tex")
# Table 4's rows: GRPO trained for more epochs and with more PPO iterations, where the config has them.
LONGER_TRAINING = ("grpo", "grpo_4epochs", "grpo_3iterations", "grpo_3iterations_4epochs")


@dataclass(frozen=True)
class Column:
    """Where a column's numbers come from: a dataset (or `mean`) and a quantity such as "max@128"."""

    dataset: str
    quantity: str
    header: str


@dataclass(frozen=True)
class Spec:
    """A table's declaration. `rows` None means every policy."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[str, ...] | None = None


def specs(config: Config) -> dict[str, Spec]:
    """All tables of an experiment by name, in the paper's order; two for each dataset from table 5 on."""
    headline = f"max@{config.report.headline_k}"
    both = (1, config.report.headline_k)
    listed = [
        Spec(
            "table1",
            "Binary against continuous reward: pass@k of the base model and of GRPO",
            _per_dataset(config, [f"pass@{k}" for k in both]),
            (BASE, "grpo", "grpo_binary"),
        ),
        Spec("table2", f"{headline} of all policies", _per_dataset(config, [headline])),
        Spec("table3", "max@1 of all policies", _per_dataset(config, ["max@1"])),
        Spec(
            "table4",
            f"max@1 and {headline} of GRPO with more epochs and PPO iterations",
            _per_dataset(config, [f"max@{k}" for k in both]),
            (BASE, *LONGER_TRAINING),
        ),
    ]
    for dataset in config.evaluated:
        for metric in ("pass", "max"):
            columns = tuple(Column(dataset, q, q) for q in (f"{metric}@{k}" for k in config.report.ks))
            title = f"{metric}@k on {dataset} for different values of k"
            listed.append(Spec(f"table{len(listed) + 1}", title, columns))
    return {spec.name: spec for spec in listed}


def _per_dataset(config: Config, quantities: Sequence[str]) -> tuple[Column, ...]:
    places = (*config.evaluated, MEAN)
    if len(quantities) == 1:
        return tuple(Column(place, quantities[0], place) for place in places)
    return tuple(Column(place, q, f"{place} {q}") for place in places for q in quantities)


def spec_of(config: Config, name: str) -> Spec:
    """The declaration of a table. Raises UserError where the experiment has no such table."""
    known = specs(config)
    if name not in known:
        raise UserError(
            f"no table {name!r}; this experiment has table1 … table{len(known)} (two for each of its "
            f"{len(config.evaluated)} evaluated datasets from table5 on)"
        )
    return known[name]


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
    """The table of `spec`; rows that the experiment does not train are left out and named in a note."""
    wanted = scores.rows if spec.rows is None else spec.rows
    rows = [row for row in wanted if row in scores.labels]
    significant = _significant(scores, config, spec, rows)
    columns = [_column(scores, rows, column, significant) for column in spec.columns]
    return Table(
        spec=spec,
        labels={row: scores.labels[row] for row in rows},
        entries={row: [column[row] for column in columns] for row in rows},
        notes=tuple(_notes(scores, config, spec, set(wanted) - set(rows))),
    )


def _column(scores: Scores, rows: Sequence[str], column: Column, significant: set[tuple[str, str]]) -> dict[str, Entry]:
    ranked = statistics.ranking(scores, rows, column.dataset, column.quantity)
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


def _significant(scores: Scores, config: Config, spec: Spec, rows: Sequence[str]) -> set[tuple[str, str]]:
    """(dataset, quantity) where the best row beats the second. Corrected over all datasets in any table."""
    found = set()
    for quantity in dict.fromkeys(column.quantity for column in spec.columns):
        pairs = statistics.best_and_second(scores, rows, quantity, scores.datasets)
        for dataset, (test, p_holm) in statistics.signed_ranks(scores, pairs, quantity).items():
            if p_holm < 1 - config.report.confidence and test.rank_biserial > 0:
                found.add((dataset, quantity))
    return found


def _notes(scores: Scores, config: Config, spec: Spec, untrained: set[str]) -> Iterable[str]:
    datasets = list(dict.fromkeys(c.dataset for c in spec.columns if c.dataset != MEAN))
    problems = ", ".join(f"{dataset} {scores.problems(dataset)}" for dataset in datasets)
    seeds = ", ".join(str(seed) for seed in scores.seeds)
    yield (
        f"Problems: {problems}; {scores.n} samples a problem; training seeds: {seeds}"
        f"{' (mean over seeds)' if len(scores.seeds) > 1 else ''}; sandbox: {scores.sandbox}."
    )
    yield (
        "Bold: best; underlined: second; *: better than the second, Wilcoxon signed-rank test over problems, "
        f"two-sided, Holm-corrected over {_count(len(scores.datasets), 'dataset')}, p < "
        f"{1 - config.report.confidence:g}. {config.report.confidence:.0%} intervals: statistics.csv."
    )
    roles = {dataset: config.datasets[dataset].paper for dataset in datasets}
    if any(roles.values()):
        named = ", ".join(f"{dataset} = {paper}" for dataset, paper in roles.items() if paper)
        synthetic = " (generated tasks, not the benchmarks)" if _is_synthetic(config, datasets) else ""
        yield f"In the place of the paper's datasets: {named}{synthetic}."
    if untrained:
        yield f"Not trained in this experiment: {', '.join(sorted(untrained))}."
    for note in scores.notes:
        if any(f" on {dataset}: " in note for dataset in datasets):
            yield f"{note}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _is_synthetic(config: Config, datasets: Iterable[str]) -> bool:
    return any(config.datasets[dataset].source == "pocket" for dataset in datasets)


# -------------------------------------------------------------------------------------------------- renderers
def write(table: Table, config: Config) -> list[str]:
    """Writes the CSV and its twins; returns the paths."""
    paths = [config.layout.table(table.spec.name, suffix) for suffix in SUFFIXES]
    for path, render in zip(paths, (to_csv, to_markdown, to_latex), strict=True):
        files.write_text(path, render(table))
    return paths


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
    header = ["Method", *(escape_markdown(column.header) for column in table.spec.columns)]
    lines = [f"**{_title(table)}**", "", pipes(header), pipes([":---", *["---:"] * (len(header) - 1)])]
    for row, entries in table.entries.items():
        lines.append(pipes([escape_markdown(table.labels[row]), *map(_markdown_entry, entries)]))
    lines += ["", *(line for note in table.notes for line in (escape_markdown(note), ""))]
    return "\n".join(lines).rstrip() + "\n"


def to_latex(table: Table) -> str:
    """A booktabs table; needs \\usepackage{booktabs}."""
    columns = table.spec.columns
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_escape_latex(table.spec.title)}}}",
        rf"\label{{tab:{table.spec.name}}}",
        r"\begin{tabular}{l" + "r" * len(columns) + "}",
        r"\toprule",
        " & ".join(["Method", *(_escape_latex(column.header) for column in columns)]) + r" \\",
        r"\midrule",
    ]
    for row, entries in table.entries.items():
        cells = [_escape_latex(table.labels[row]), *map(_latex_entry, entries)]
        lines.append(" & ".join(cells) + r" \\")
    notes = " ".join(_escape_latex(note) for note in table.notes)
    lines += [r"\bottomrule", r"\end{tabular}", "", rf"\par\smallskip\footnotesize {notes}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _title(table: Table) -> str:
    return f"{table.spec.name.replace('table', 'Table ')}: {escape_markdown(table.spec.title)}"


def pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_entry(entry: Entry) -> str:
    return _decorate(entry, blank="–", bold="**{}**", underline="<u>{}</u>", star=r"\*")


def _latex_entry(entry: Entry) -> str:
    return _decorate(entry, blank="--", bold=r"\textbf{{{}}}", underline=r"\underline{{{}}}", star="*")


def _decorate(entry: Entry, blank: str, bold: str, underline: str, star: str) -> str:
    if entry.value is None:
        return blank
    text = f"{entry.value:.3f}" + (star if entry.starred else "")
    return {BEST: bold, SECOND: underline}.get(entry.rank, "{}").format(text)


def escape_markdown(text: str) -> str:
    return "".join(f"\\{c}" if c in r"\|*_`<[" else c for c in " ".join(text.split()))


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
