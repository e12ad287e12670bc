"""`summary.md`: one page on a run, for pasting into a discussion; and the report's page of what the run was.

Findings are computed from paired_tests.csv by a fixed rule: a difference counts if its interval excludes zero;
otherwise it is undecided. Which differences are looked at is fixed, too: the best policy against the second, GRPO
against the base model, and all other policies against GRPO, each at max@headline_k on the mean over datasets (GRPO
against the base model also at max@1).

    maxk summary --config results/config.json
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from maxk.artifacts import files
from maxk.artifacts.paths import BASE, Layout
from maxk.config import Config, HubBase
from maxk.reporting import MEAN, comparison, estimates, markdown, pages
from maxk.reporting.load import Scores

Row = Mapping[str, Any]
RUN_CAPTION = (
    "What made these results: policies and their differences, versions, sandbox tier, problems left by each filter, "
    "run times by stage, and the whole configuration."
)


def write(scores: Scores, config: Config) -> list[str]:
    """Writes the summary, its page and the page of the run; returns their paths."""
    text = to_markdown(scores, config)
    files.write_text(config.layout.summary, text)
    return [
        config.layout.summary,
        pages.write(config, "summary", text),
        pages.write(config, "run", run_to_markdown(scores, config)),
    ]


def to_markdown(scores: Scores, config: Config) -> str:
    """The page. Raises UserError if the tables of statistics are missing."""
    means, differences = (frame[frame.dataset == MEAN] for frame in estimates.read(config))
    sections = {
        "What was run": list(_what(scores, config)),
        f"max@1 and max@{config.report.headline_k}": list(_table(scores, config, means, differences)),
        "Findings": list(_numbered(_findings(scores, config, differences))),
        "Limits": [f"- {limit}" for limit in _limits(scores, config)],
        "Made with": [f"- {item}" for item in _made_with(config)],
    }
    parts = [f"## {heading}\n\n" + "\n".join(lines) for heading, lines in sections.items() if lines]
    return "\n\n".join([f"**maxk: experiment `{config.name}`**", *parts]) + "\n"


# --------------------------------------------------------------------------------------------------- sections
def _what(scores: Scores, config: Config) -> Iterator[str]:
    base = config.base.model if isinstance(config.base, HubBase) else "a small decoder pretrained in the pipeline"
    problems = ", ".join(f"{dataset} ({scores.problems(dataset)})" for dataset in scores.datasets)
    trained = (
        f"{markdown.count(len(config.objectives), 'objective')} trained from it on "
        f"{', '.join(config.training.datasets)}, training seeds: {', '.join(map(str, scores.seeds))}"
        if config.objectives
        else "Nothing was trained"
    )
    yield (
        f"Base model: {base}. {trained[0].upper()}{trained[1:]}. Evaluated by {scores.n} samples per problem at "
        f"temperature {config.sampling.temperature:g}; problems: {problems}. Sandbox: `{scores.sandbox}`."
    )


def _table(scores: Scores, config: Config, means: pd.DataFrame, differences: pd.DataFrame) -> Iterator[str]:
    headline, grpo = config.report.headline_k, estimates.roles(config).grpo
    references = [BASE, *([grpo] if grpo else [])]
    value = {(row["policy"], row["k"]): row for row in estimates.records(means[means.metric == "max"])}
    change = {(row["policy"], row["reference"]): row for row in estimates.records(_at(differences, headline))}
    header = ["Policy", "max@1", f"max@{headline}", *(f"max@{headline} − {scores.labels[one]}" for one in references)]
    yield from markdown.head(header)
    for policy, label in scores.labels.items():
        cells = [_interval(value.get((policy, k)), "mean", ".3f") for k in (1, headline)]
        cells += [_interval(change.get((policy, one)), "difference", "+.3f") for one in references]
        yield markdown.row([markdown.escape(label), *cells])
    yield ""
    yield (
        f"Means over {markdown.count(len(scores.datasets), 'dataset')} with {config.report.confidence:.0%} "
        "intervals over problems and seeds; differences are paired. Each dataset: table2.md, table3.md; every k: "
        "statistics.csv."
    )


def _interval(row: Row | None, key: str, form: str) -> str:
    if row is None:
        return "–"
    return f"{row[key]:{form}} [{row['low']:{form}}, {row['high']:{form}}]"


def _findings(scores: Scores, config: Config, differences: pd.DataFrame) -> Iterator[str]:
    grpo, headline = estimates.roles(config).grpo, _at(differences, config.report.headline_k)
    quantity = f"max@{config.report.headline_k}"
    for row in estimates.records(headline[headline.comparison == "best vs second"]):
        verdict = "above" if _sign(row) > 0 else "not distinguishable from"
        yield (
            f"At {quantity}, {scores.labels[row['policy']]} has the highest mean and is {verdict} the second, "
            f"{scores.labels[row['reference']]}: {_difference(row)}."
        )
    if grpo is None:
        return
    at = (_at(differences, k) for k in (1, config.report.headline_k))
    changes = [
        row for one in at for row in estimates.records(one[(one.comparison == f"vs {BASE}") & (one.policy == grpo)])
    ]
    if changes:
        listed = "; ".join(f"{_verb(row)} max@{row['k']} ({_difference(row)})" for row in changes)
        yield f"{scores.labels[grpo]} against the base model: {listed}."
    yield from _against_grpo(scores, headline[headline.comparison == f"vs {grpo}"], grpo, quantity)


def _against_grpo(scores: Scores, others: pd.DataFrame, grpo: str, quantity: str) -> Iterator[str]:
    """Which other policies are above or below GRPO."""
    names: dict[int, list[str]] = {1: [], 0: [], -1: []}
    for row in estimates.records(others):
        names[_sign(row)].append(scores.labels[row["policy"]])
    if len(others):
        counts = {sign: f"{len(found)} ({', '.join(found)})" if found else "none" for sign, found in names.items()}
        yield (
            f"Other policies against {scores.labels[grpo]} at {quantity}: above {counts[1]}, below {counts[-1]}, "
            f"undecided {counts[0]}."
        )


def _numbered(findings: Iterator[str]) -> Iterator[str]:
    numbered = [f"{number}. {finding}" for number, finding in enumerate(findings, 1)]
    if numbered:
        yield from numbered
        yield ""
        yield (
            "A difference counts if its interval excludes zero; otherwise it is undecided. Intervals are not corrected "
            "for multiple comparisons, or for selecting best and second on the same scores."
        )


def _limits(scores: Scores, config: Config) -> Iterator[str]:
    others = sorted({reason for dataset in scores.datasets if (reason := comparison.otherness(config, dataset))})
    if others:
        yield f"Not the paper's setting ({', '.join(others)}): no independent evidence for or against the paper."
    if config.objectives:
        yield from markdown.seed_notes(len(scores.seeds))
    if len(scores.seeds) > 1:
        yield f"{len(scores.seeds)} training seeds: a rough estimate of the spread between training runs at best."
    small = {dataset: scores.problems(dataset) for dataset in scores.datasets if scores.problems(dataset) < 100}
    if small:
        yield f"Few problems: {', '.join(f'{dataset} {number}' for dataset, number in small.items())}."
    if scores.sandbox in ("off", None):
        yield "Programs ran without a sandbox and could have tampered with verdicts."
    yield from (f"{note}." for note in scores.notes)


def _made_with(config: Config) -> Iterator[str]:
    versions = _versions(config)
    if versions:
        yield "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items())
    yield f"Command: `snakemake --cores all --configfile {config.layout.config}`"


# ------------------------------------------------------------------------------------------------ differences
def _at(differences: pd.DataFrame, k: int) -> pd.DataFrame:
    return differences[(differences.metric == "max") & (differences.k == k)]


def _sign(row: Row) -> int:
    """The sign of a difference whose interval excludes zero; else 0."""
    return int(row["low"] > 0) - int(row["high"] < 0)


def _verb(row: Row) -> str:
    return {1: "raises", 0: "no decided change of", -1: "lowers"}[_sign(row)]


def _difference(row: Row) -> str:
    return _interval(row, "difference", "+.3f")


# ---------------------------------------------------------------------------------------------------- the run
def run_to_markdown(scores: Scores, config: Config) -> str:
    """Policies, versions, funnels, run times and the whole configuration."""
    parts = {
        "Policies": _policies(scores, config),
        "Made with": [
            f"Sandbox: {scores.sandbox}. Sampling: {config.sampling.backend}. "
            + ", ".join(f"{name} {version}" for name, version in _versions(config).items())
        ],
        "Problems left after every filter": _funnels(config),
        "Run times": _run_times(config.layout),
        "Configuration": [
            "```yaml",
            yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True).rstrip(),
            "```",
        ],
    }
    sections = [f"## {heading}\n\n" + "\n".join(lines) for heading, lines in parts.items()]
    return "\n\n".join([f"**The run: experiment `{config.name}`**", RUN_CAPTION, *sections]) + "\n"


def _policies(scores: Scores, config: Config) -> list[str]:
    lines = markdown.head(["key", "row in tables", "objective", "training"], words=4)
    for name, objective in config.objectives.items():
        spec = ", ".join(f"{key} {value}" for key, value in objective.spec.items())
        training = ", ".join(f"{key} {value}" for key, value in objective.training.items()) or "as configured"
        lines.append(markdown.row(map(markdown.escape, (name, scores.labels[name], spec, training))))
    return lines


def _versions(config: Config) -> dict[str, str]:
    """Versions that the policies were made with; several where they differ."""
    paths = [Path(config.layout.policy(policy)) for policy in config.policies]
    environments = [files.read_policy(path).environment for path in paths if path.exists()]
    found: dict[str, list[str]] = {}
    for environment in environments:
        for name, version in environment.items():
            if isinstance(version, str) and version not in found.setdefault(name, []):
                found[name].append(version)
    return {name: " and ".join(versions) for name, versions in found.items()}


def _funnels(config: Config) -> list[str]:
    lines: list[str] = []
    for dataset in config.datasets:
        path = Path(config.layout.funnel(dataset))
        if path.exists():
            steps = " → ".join(f"{step} {rows}" for step, rows in files.read_json(path).items())
            lines.append(f"- {dataset}: {steps}")
    return lines or ["No funnel was recorded."]


def _run_times(layout: Layout) -> list[str]:
    """By stage, from Snakemake's benchmark files: sums over jobs, some of which ran in parallel."""
    jobs: dict[str, list[Row]] = {}
    folder = Path(layout.root, "benchmarks")
    for path in sorted(folder.rglob("*.tsv")):
        stage = path.relative_to(folder).parts[0].removesuffix(".tsv")
        with path.open(newline="") as handle:
            jobs.setdefault(stage, []).extend(csv.DictReader(handle, delimiter="\t"))
    lines = markdown.head(["stage", "jobs", "wall clock, s", "CPU, s", "longest job, s"])
    for stage, rows in jobs.items():
        wall = [_number(row, "s") for row in rows]
        cpu = sum(_number(row, "cpu_time") for row in rows)
        lines.append(markdown.row([stage, str(len(rows)), f"{sum(wall):.0f}", f"{cpu:.0f}", f"{max(wall):.0f}"]))
    return lines if jobs else ["No job's time was recorded."]


def _number(row: Row, key: str) -> float:
    """A number of a benchmark file; a job shorter than Snakemake's first measurement has "NA"."""
    value: Any = row.get(key)
    return float(value) if value not in (None, "", "NA", "-") else 0.0
