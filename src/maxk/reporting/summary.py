"""`summary.md`: one page on a run, for pasting into a discussion; and what the run was, as a page of the report.

Findings are computed, never written: a difference counts as found where its bootstrap interval over problems and
seeds (`paired_tests.csv`) excludes zero, and is called undecided elsewhere. Which differences are looked at is fixed:
the best policy against the second, GRPO against the base model, and all other policies against GRPO, each at
max@headline_k on the mean over datasets (the second at max@1, too).

    maxk summary --config results/config.json
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from maxk.artifacts import files
from maxk.artifacts.paths import BASE, Layout
from maxk.config import Config, HubBase
from maxk.errors import UserError
from maxk.reporting import comparison, markdown, pages
from maxk.reporting.estimates import grpo_row
from maxk.reporting.load import Scores
from maxk.reporting.specs import MEAN

Row = Mapping[str, str]


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
    statistics = [row for row in _read(config.layout.statistics, "statistics") if row["dataset"] == MEAN]
    tests = [row for row in _read(config.layout.table("paired_tests"), "statistics") if row["dataset"] == MEAN]
    sections = {
        "What was run": list(_what(scores, config)),
        f"max@1 and max@{config.report.headline_k}": list(_table(scores, config, statistics, tests)),
        "Findings": list(_numbered(_findings(scores, config, tests))),
        "Limits": [f"- {limit}" for limit in _limits(scores, config)],
        "Made with": [f"- {item}" for item in _made_with(config)],
    }
    parts = [f"## {heading}\n\n" + "\n".join(lines) for heading, lines in sections.items() if lines]
    return "\n\n".join([f"**maxk: experiment `{config.name}`**", *parts]) + "\n"


def _read(path: str, name: str) -> list[Row]:
    try:
        with Path(path).open(newline="", encoding="utf-8") as handle:
            return list(csv.DictReader(handle))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run `maxk table {name}`") from None


# --------------------------------------------------------------------------------------------------- sections
def _what(scores: Scores, config: Config) -> Iterator[str]:
    base = config.base.model if isinstance(config.base, HubBase) else "a small decoder pretrained in the pipeline"
    problems = ", ".join(f"{dataset} ({scores.problems(dataset)})" for dataset in scores.datasets)
    yield (
        f"Base model: {base}. {len(config.objectives)} policies trained from it on "
        f"{', '.join(config.training.datasets)}; training seeds: {', '.join(map(str, scores.seeds))}. Evaluated by "
        f"{scores.n} samples a problem at temperature {config.sampling.temperature:g} on {problems} problems; "
        f"programs ran in the sandbox tier `{scores.sandbox}`."
    )


def _table(scores: Scores, config: Config, statistics: Sequence[Row], tests: Sequence[Row]) -> Iterator[str]:
    headline, grpo = f"max@{config.report.headline_k}", grpo_row(config)
    references = [BASE, *([grpo] if grpo else [])]
    value = {(row["policy"], f"{row['metric']}@{row['k']}"): row for row in statistics}
    change = {(row["policy"], row["reference"]): row for row in _at(tests, headline)}
    header = ["Policy", "max@1", headline, *(f"{headline} − {scores.labels[one]}" for one in references)]
    yield from markdown.head(header)
    for policy, label in scores.labels.items():
        cells = [_interval(value.get((policy, quantity)), "mean", ".3f") for quantity in ("max@1", headline)]
        cells += [_interval(change.get((policy, one)), "difference", "+.3f") for one in references]
        yield markdown.row([markdown.escape(label), *cells])
    yield ""
    yield (
        f"Means over {markdown.count(len(scores.datasets), 'dataset')}, with {config.report.confidence:.0%} bootstrap "
        "intervals over problems and seeds; differences are paired. Every dataset: table2.md, "
        "table3.md; every k: statistics.csv."
    )


def _interval(row: Row | None, key: str, form: str) -> str:
    if row is None:
        return "–"
    return f"{float(row[key]):{form}} [{float(row['low']):{form}}, {float(row['high']):{form}}]"


def _findings(scores: Scores, config: Config, tests: Sequence[Row]) -> Iterator[str]:
    headline, grpo = f"max@{config.report.headline_k}", grpo_row(config)
    for row in _at(tests, headline):
        if row["comparison"] == "best vs second":
            verdict = "is above" if _sign(row) > 0 else "is not told apart from"
            yield (
                f"At {headline}, {scores.labels[row['policy']]} has the highest mean; it {verdict} the second, "
                f"{scores.labels[row['reference']]}: {_difference(row)}."
            )
    if grpo is None:
        return
    against_base = [row for q in ("max@1", headline) for row in _pair(_at(tests, q), grpo, BASE)]
    if against_base:
        told = "; ".join(f"{_verb(row)} max@{row['k']} ({_difference(row)})" for row in against_base)
        yield f"{scores.labels[grpo]} against the base model: {told}."
    others = [row for row in _at(tests, headline) if row["comparison"] == f"vs {grpo}"]
    if others:
        above, below = ([row for row in others if _sign(row) == sign] for sign in (1, -1))
        undecided = len(others) - len(above) - len(below)
        yield (
            f"Of {len(others)} other policies, {len(above)} are above {scores.labels[grpo]} at {headline} "
            f"({_names(scores, above)}), {len(below)} below ({_names(scores, below)}), {undecided} undecided."
        )


def _numbered(findings: Iterator[str]) -> Iterator[str]:
    numbered = [f"{number}. {finding}" for number, finding in enumerate(findings, 1)]
    if numbered:
        yield from numbered
        yield ""
        yield (
            "Found is what an interval that excludes zero shows; all else is undecided. Intervals are corrected "
            "neither for their number nor for best and second being picked by the same scores."
        )


def _limits(scores: Scores, config: Config) -> Iterator[str]:
    others = sorted({reason for dataset in scores.datasets if (reason := comparison.otherness(config, dataset))})
    if others:
        yield f"Not the paper's setting ({', '.join(others)}): no independent evidence for or against the paper."
    if len(scores.seeds) == 1:
        yield "One training seed: the intervals do not hold the spread between training runs."
    else:
        yield f"{len(scores.seeds)} training seeds: the spread between training runs is known roughly at best."
    small = {dataset: scores.problems(dataset) for dataset in scores.datasets if scores.problems(dataset) < 100}
    if small:
        yield f"Few problems: {', '.join(f'{dataset} {number}' for dataset, number in small.items())}."
    if scores.sandbox in ("off", None):
        yield "Programs ran without a sandbox: verdicts can have been tampered with."
    yield from (f"{note}." for note in scores.notes)


def _made_with(config: Config) -> Iterator[str]:
    versions = _versions(config)
    if versions:
        yield "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items())
    yield f"Command: `snakemake --cores all --configfile {config.layout.config}`"


# ------------------------------------------------------------------------------------------------ differences
def _at(tests: Sequence[Row], quantity: str) -> list[Row]:
    return [row for row in tests if f"{row['metric']}@{row['k']}" == quantity]


def _pair(tests: Sequence[Row], policy: str, reference: str) -> list[Row]:
    return [row for row in tests if (row["comparison"], row["policy"]) == (f"vs {reference}", policy)]


def _sign(row: Row) -> int:
    """Of a difference, where its interval excludes zero; else 0."""
    return (float(row["low"]) > 0) - (float(row["high"]) < 0)


def _verb(row: Row) -> str:
    return {1: "raises", 0: "no decided change of", -1: "lowers"}[_sign(row)]


def _difference(row: Row) -> str:
    return _interval(row, "difference", "+.3f")


def _names(scores: Scores, rows: Sequence[Row]) -> str:
    return ", ".join(scores.labels[row["policy"]] for row in rows) or "none"


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
    return "\n\n".join([f"**The run: experiment `{config.name}`**", *sections]) + "\n"


def _policies(scores: Scores, config: Config) -> list[str]:
    lines = markdown.head(["key", "row in tables", "objective", "training"], words=4)
    for name, objective in config.objectives.items():
        spec = ", ".join(f"{key} {value}" for key, value in objective.spec.items())
        training = ", ".join(f"{key} {value}" for key, value in objective.training.items()) or "as configured"
        lines.append(markdown.row(map(markdown.escape, (name, scores.labels[name], spec, training))))
    return lines


def _versions(config: Config) -> dict[str, str]:
    """What the policies were made with; where they differ, all of it."""
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
    """By stage, from Snakemake's benchmark files: sums over jobs, some of which ran side by side."""
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
    """A job shorter than Snakemake's first look at it has "NA"."""
    value: Any = row.get(key)
    return float(value) if value not in (None, "", "NA", "-") else 0.0
