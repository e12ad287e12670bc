"""`summary.md`: one page on a run, for pasting into a discussion. The report opens with the same parts, and a run ends
with the first two.

The result and the findings are computed from paired_tests.csv by a fixed rule: a difference counts if its p-value after
Holm's correction (`p_mean_holm`) is below 5 %; otherwise it is undecided, also where its own interval excludes zero.
Which differences are looked at is fixed, too, each at max@headline_k on the mean over datasets: the best policy against
the second and against the base model, GRPO against the base model (also at max@1), and all other policies against GRPO.

    maxk summary --config results/config.json
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from maxk.artifacts import files
from maxk.artifacts.paths import BASE
from maxk.config import Config, HubBase
from maxk.errors import counted
from maxk.reporting import MEAN, comparison, estimates, lineage, markdown, written
from maxk.reporting.load import Scores

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Summary:
    """The parts of the summary, as Markdown; `findings` is empty if nothing was trained."""

    result: str
    table: str
    what: str
    findings: str
    limits: str


def write(scores: Scores, config: Config) -> str:
    """Writes the summary; returns its path."""
    files.write_text(config.layout.summary, to_markdown(scores, config))
    written.record(config.layout, [config.layout.summary], scores.digest)
    return config.layout.summary


def to_markdown(scores: Scores, config: Config) -> str:
    """The page. Raises UserError if the tables of statistics are missing."""
    found = summarise(scores, config)
    sections = {
        "Result": found.result,
        f"max@1 and max@{config.report.headline_k}": found.table,
        "What was run": found.what,
        "Findings": found.findings,
        "Limits": found.limits,
        "Made with": _lines(f"- {item}" for item in _made_with(config)),
    }
    parts = [f"## {heading}\n\n{text}" for heading, text in sections.items() if text]
    return "\n\n".join([f"**maxk: experiment `{config.name}`**", *parts]) + "\n"


def summarise(scores: Scores, config: Config) -> Summary:
    """The parts of the summary. Raises UserError if the tables of statistics are missing."""
    means, differences = estimates.read(scores, config)
    changes = differences[differences.dataset == MEAN]
    table = _table(scores, config, means, changes) if config.objectives else _by_dataset(scores, config, means)
    return Summary(
        result=" ".join(_result(scores, config, means[means.dataset == MEAN], changes)),
        table=_lines(table),
        what=_lines(_what(scores, config)),
        findings=_lines(_numbered(_findings(scores, config, changes), config)),
        limits=_lines(f"- {limit}" for limit in _limits(scores, config)),
    )


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


# ----------------------------------------------------------------------------------------------------- result
def _result(scores: Scores, config: Config, means: pd.DataFrame, changes: pd.DataFrame) -> Iterator[str]:
    """Which policy has the highest mean, or which share it; is it above GRPO, the second and the base model?

    With one training seed, a last sentence says that this is no statement about methods.
    """
    k, labels = config.report.headline_k, _labels(scores)
    at = _at(means, k).set_index("policy")["mean"].round(12)
    if at.empty:
        yield "No policy has scores on every dataset."
    elif list(at.index) == [BASE]:
        rows = [row for one in dict.fromkeys((1, k)) for row in estimates.records(_at(means, one))]
        values = (f"max@{row['k']} {_interval(row, 'mean', '.3f')}" for row in rows)
        yield f"{labels[BASE]}: {', '.join(values)}."
    else:
        best = [str(policy) for policy in at.index[at == at.max()]]
        named, value = [labels[policy] for policy in best], f"the highest mean max@{k}, {at.max():.3f}"
        yield f"{_listed(named, 'and')} {'share' if best[1:] else 'has'} {value}."
        compared = list(_compared(_at(changes, k), best, estimates.roles(config).grpo, labels))
        yield from compared
        if compared and len(at) > 2:
            yield f"No correction is made for choosing the best of {len(at)} policies."
        yield from markdown.seed_notes(*scores.seed_range)


def _compared(changes: pd.DataFrame, best: Sequence[str], grpo: str | None, labels: Mapping[str, str]) -> Iterator[str]:
    """The best policy, of equal ones the first, beside GRPO, the second and the base model."""
    second = changes[(changes.comparison == "best vs second") & (len(best) == 1)]
    references = [one for one in (grpo, BASE) if one not in best and one not in set(second.reference) - {BASE}]
    others = [changes[(changes.comparison == f"vs {one}") & (changes.policy == best[0])] for one in references]
    verdicts: dict[bool, list[str]] = {True: [], False: []}
    for row in estimates.records(pd.concat([second[second.reference != BASE], *others])):
        name = "the base model" if row["reference"] == BASE else labels[row["reference"]]
        name = f"the second, {name}" if row["comparison"] == "best vs second" else name
        verdicts[_sign(row) > 0].append(f"{name} ({_difference(row)})")
    said = [
        f"{'above' if above else 'not distinguishable from'} {_listed(names, 'and' if above else 'or')}"
        for above, names in verdicts.items()
        if names
    ]
    if said:
        yield f"{labels[best[0]] if best[1:] else 'It'} is {'; '.join(said)}."


def _listed(names: Sequence[str], last: str) -> str:
    return f"{', '.join(names[:-1])} {last} {names[-1]}" if names[1:] else names[0]


# --------------------------------------------------------------------------------------------------- sections
def _what(scores: Scores, config: Config) -> Iterator[str]:
    base = "a small decoder pretrained in the pipeline"
    if isinstance(config.base, HubBase):
        base = markdown.escape(config.base.model)
    problems = ", ".join(f"{dataset} ({scores.problems(dataset)})" for dataset in scores.datasets)
    trained = (
        f"{counted(len(config.objectives), 'objective')} trained from it on "
        f"{', '.join(config.training.datasets)}, {scores.seeds_text()}"
        if config.objectives
        else "Nothing was trained"
    )
    samples = counted(scores.n, "sample")
    yield (
        f"Base model: {base}. {trained[0].upper()}{trained[1:]}. Evaluated by {samples} per problem at "
        f"temperature {config.sampling.temperature:g}; problems: {problems}. Sandbox: `{scores.sandbox}`."
    )


def _table(scores: Scores, config: Config, means: pd.DataFrame, differences: pd.DataFrame) -> Iterator[str]:
    headline, grpo = config.report.headline_k, estimates.roles(config).grpo
    references = [BASE, *([grpo] if grpo else [])]
    shown = means.query("dataset == @MEAN and metric == 'max'")
    value = {(row["policy"], row["k"]): row for row in estimates.records(shown)}
    change = {(row["policy"], row["reference"]): row for row in estimates.records(_at(differences, headline))}
    header = ["Policy", "max@1", f"max@{headline}", *(f"max@{headline} − {scores.labels[one]}" for one in references)]
    yield from markdown.head(header)
    for policy, label in scores.labels.items():
        cells = [_interval(value.get((policy, k)), "mean", ".3f") for k in (1, headline)]
        cells += [_interval(change.get((policy, one)), "difference", "+.3f") for one in references]
        yield markdown.row([markdown.escape(label), *cells])
    yield ""
    yield (
        f"Means over {counted(len(scores.datasets), 'dataset')} with {markdown.percent(config.report.confidence)} "
        f"intervals over {markdown.interval_over(*scores.seed_range)}; differences are paired. Each dataset: "
        "table2.md, table3.md; every k: statistics.csv."
    )


def _by_dataset(scores: Scores, config: Config, means: pd.DataFrame) -> Iterator[str]:
    """Where only the base model is scored: max@k and pass@k on every dataset and their mean."""
    quantities = [(metric, k) for k in (1, config.report.headline_k) for metric in ("max", "pass")]
    value = {(row["dataset"], row["metric"], row["k"]): row for row in estimates.records(means)}
    yield from markdown.head(["Dataset", *(f"{metric}@{k}" for metric, k in quantities)])
    for place in (*scores.datasets, *([MEAN] if len(scores.datasets) > 1 else [])):
        cells = [_interval(value.get((place, *quantity)), "mean", ".3f") for quantity in quantities]
        yield markdown.row([markdown.escape(place), *cells])
    yield ""
    yield f"{markdown.percent(config.report.confidence)} intervals over problems. Every k: statistics.csv."


def _interval(row: Row | None, key: str, form: str) -> str:
    return "–" if row is None else markdown.with_ends(row[key], row["low"], row["high"], form)


def _findings(scores: Scores, config: Config, differences: pd.DataFrame) -> Iterator[str]:
    grpo, headline = estimates.roles(config).grpo, _at(differences, config.report.headline_k)
    if grpo is None:
        return
    labels, at = _labels(scores), (_at(differences, k) for k in (1, config.report.headline_k))
    changes = [
        row for one in at for row in estimates.records(one[(one.comparison == f"vs {BASE}") & (one.policy == grpo)])
    ]
    if changes:
        listed = "; ".join(f"{_verb(row)} max@{row['k']} ({_difference(row)})" for row in changes)
        yield f"{labels[grpo]} against the base model: {listed}."
    others = headline[headline.comparison == f"vs {grpo}"]
    yield from _against_grpo(scores, others, grpo, f"max@{config.report.headline_k}")


def _against_grpo(scores: Scores, others: pd.DataFrame, grpo: str, quantity: str) -> Iterator[str]:
    """Which other policies are above or below GRPO."""
    labels = _labels(scores)
    names: dict[int, list[str]] = {1: [], 0: [], -1: []}
    for row in estimates.records(others):
        names[_sign(row)].append(labels[row["policy"]])
    if len(others):
        counts = {sign: f"{len(found)} ({'; '.join(found)})" if found else "none" for sign, found in names.items()}
        yield (
            f"Other policies against {labels[grpo]} at {quantity}: above {counts[1]}, below {counts[-1]}, "
            f"undecided {counts[0]}."
        )


def _labels(scores: Scores) -> dict[str, str]:
    return {policy: markdown.escape(label) for policy, label in scores.labels.items()}


def _numbered(findings: Iterator[str], config: Config) -> Iterator[str]:
    numbered = [f"{number}. {finding}" for number, finding in enumerate(findings, 1)]
    if numbered:
        yield from numbered
        yield ""
        yield (
            f"A difference counts if p < {1 - config.report.confidence:g} after Holm's correction over the policies "
            "compared with the same reference; otherwise it is undecided. The intervals are not corrected, so one can "
            "exclude zero where the difference is undecided."
        )


def _limits(scores: Scores, config: Config) -> Iterator[str]:
    others = sorted({reason for dataset in scores.datasets if (reason := comparison.otherness(config, dataset))})
    if others:
        yield f"Not the paper's setting ({', '.join(others)}): no independent evidence for or against the paper."
    fewest, most = scores.seed_range
    yield from markdown.seed_notes(fewest, most)
    if most > 1:
        seeds = f"{most} training seeds" if fewest == most else f"{fewest} to {most} training seeds per policy"
        yield f"{seeds}: a rough estimate of the spread between training runs at best."
    small = {dataset: scores.problems(dataset) for dataset in scores.datasets if scores.problems(dataset) < 100}
    if small:
        yield f"Few problems: {', '.join(f'{dataset} {number}' for dataset, number in small.items())}."
    if scores.sandbox in ("off", None):
        yield "Programs ran without a sandbox and could have tampered with verdicts."
    yield from map(markdown.escape, scores.notes())


def _made_with(config: Config) -> Iterator[str]:
    versions = lineage.versions(config)
    if versions:
        yield "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items())
    yield f"Command: `snakemake --cores all --configfile {config.layout.config}`"


# ------------------------------------------------------------------------------------------------ differences
def _at(differences: pd.DataFrame, k: int) -> pd.DataFrame:
    return differences[(differences.metric == "max") & (differences.k == k)]


def _sign(row: Row) -> int:
    """The sign of a difference that is decided after Holm's correction; else 0."""
    decided = row["p_mean_holm"] < 1 - row["level"]
    return int(decided and row["difference"] > 0) - int(decided and row["difference"] < 0)


def _verb(row: Row) -> str:
    return {1: "raises", 0: "is not shown to change", -1: "lowers"}[_sign(row)]


def _difference(row: Row) -> str:
    return _interval(row, "difference", "+.3f")
