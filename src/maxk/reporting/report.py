"""The report: everything about an experiment in one HTML file that opens without a network.

It opens on the result: two sentences, the main table and the main figure. Findings, further figures and tables, the
experiments that have been made, and what made the results follow. The parts are those of the other stages: the summary,
figures (PNG) and tables (Markdown, CSV) are read from their files and put into the template `report.html.j2`. Tables
and figures must be as they were written, of the scores that there are. A run makes no experiment again unasked, so one
that is not like that is left out, and a line names the command that makes it again.

    maxk report --config results/config.json      # results/report.html
"""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from maxk.artifacts import files
from maxk.config import Config
from maxk.reporting import figures, lineage, markdown, summary, tables, written
from maxk.reporting.load import Scores

MAIN_FIGURE = "max_at_k"
OF_EXPERIMENTS = (
    "A question beyond the paper's tables. Differences are paired and taken to the reference policy named in the "
    "notes; at equal KL, policies are compared where each first reaches the KL that all of them reach."
)


@dataclass(frozen=True)
class Picture:
    """A figure of the report; `image` is a data URI."""

    name: str
    title: str
    caption: Markup
    image: str


@dataclass(frozen=True)
class Sheet:
    """A table of the report; `body` is empty for one that is for programs only, `csv` a data URI."""

    name: str
    title: str
    caption: Markup
    body: Markup
    csv: str


def write(scores: Scores, config: Config, revision: str | None) -> str:
    """Writes the report; returns its path. Raises UserError if a table or figure is missing, changed or outdated."""
    files.write_text(config.layout.report, to_html(scores, config, revision))
    for line in _left_out(config):
        print(f"{config.layout.report}: {line}", file=sys.stderr)
    return config.layout.report


def to_html(scores: Scores, config: Config, revision: str | None) -> str:
    """The page. `revision` is that of the working tree, if it is one."""
    _require(scores, config)
    environment = Environment(
        loader=PackageLoader("maxk.reporting", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    found = summary.summarise(scores, config)
    linked = {*tables.tables(config), *figures.figures(config)}
    drawn = {one.name: one for one in _pictures(config, linked)}
    stages = lineage.stages(config.layout)
    return environment.get_template("report.html.j2").render(
        name=config.name,
        summary={key: html(text, linked) for key, text in vars(found).items()},
        narrow=html(narrow(found.table), linked),
        main=drawn.pop(MAIN_FIGURE),
        figures=list(drawn.values()),
        tables=list(_sheets(config, linked)),
        experiments=list(_experiments(config, linked)),
        left_out=list(_left_out(config)),
        policies=html(lineage.policies(config)) if config.objectives else "",
        facts=_facts(scores, config, revision),
        funnels=lineage.funnels(config),
        configuration=lineage.configuration(config),
        stages=stages,
        graph=[names for rank in lineage.GRAPH if (names := [name for name in rank if name in stages])],
    )


def _require(scores: Scores, config: Config) -> None:
    """Raises UserError unless all tables and figures are as they were written of these scores."""
    paths = [path for one in tables.tables(config).values() for path in one.paths(config) if not path.endswith(".tex")]
    paths += [config.layout.figure(name) for name in figures.figures(config)]
    written.require(config.layout, paths, scores.digest)


def _made(config: Config) -> dict[str, list[str]]:
    """What is wrong with each experiment that has been made: nothing if it is as written, of the scores there are."""
    made = {}
    for name in config.experiments:
        paths = _files(config, name)
        if Path(paths[0]).exists():
            made[name] = list(
                written.faults(config.layout, paths, written.digest_of_scores(config.restricted_to(name)))
            )
    return made


def _files(config: Config, name: str) -> list[str]:
    return [config.layout.experiment(name, suffix) for suffix in ("csv", "md", "png")]


def _left_out(config: Config) -> Iterator[str]:
    """A line for each experiment that has been made and is not shown."""
    given = f"--config {config.layout.config}"
    for name, faults in _made(config).items():
        if faults:
            again = f"maxk experiment {name} {given} && maxk report {given}"
            yield f"experiment {name} is left out: {', '.join(faults)}; make it again: `{again}`"


def html(text: str, names: Collection[str] = ()) -> Markup:
    """HTML of our own Markdown. Its texts are escaped where they are written (`maxk.reporting.markdown`).

    Its headings stand below those of the page's sections. Where it names a table or figure of the page (`names`), as
    `table2`, table2.md or table2.csv, it links to it.
    """
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = reader.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
    found = reader.renderer.render(tokens, reader.options, {})
    return Markup(_NAMED.sub(lambda match: _link(match, names), found))


# A name alone in a code span, or the name of a file that is in no folder and no attribute.
_NAMED = re.compile(r'<code>(?P<code>[\w-]+)</code>|(?<![\w/."-])(?P<file>[\w-]+)\.(?:csv|md|png)\b')


def _link(match: re.Match[str], names: Collection[str]) -> str:
    name = match["code"] or match["file"]
    return f'<a href="#{name}">{match[0]}</a>' if name in names else match[0]


def narrow(text: str) -> str:
    """The main table for a phone, two columns at a time beside the first; the note below it stays.

    The ends of an interval stay together, so that a cell breaks before them.
    """
    table, _, note = text.partition("\n\n")
    last = len(markdown.cells(table.partition("\n")[0]))
    parts = [markdown.columns(table, (0, *range(first, min(first + 2, last)))) for first in range(1, last, 2)]
    return "\n\n".join([re.sub(r"(\[[^],|]*), ", r"\1,&nbsp;", part) for part in parts] + [note])


def _facts(scores: Scores, config: Config, revision: str | None) -> dict[str, str]:
    versions, sampling = lineage.versions(config), config.sampling
    key, seeds = (
        scores.seeds_text().split(": ", maxsplit=1) if config.objectives else ("training seeds", "nothing was trained")
    )
    return {
        "experiment": config.name,
        key: seeds,
        "samples per problem": f"{scores.n}, at temperature {sampling.temperature:g}, by {sampling.backend}",
        "sandbox": str(scores.sandbox),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items() if name != "sandbox"),
        "revision of this page": revision or "not in a git repository",
        "command": f"snakemake --cores all --configfile {config.layout.config}",
    }


def _pictures(config: Config, linked: Collection[str]) -> Iterator[Picture]:
    for name, one in figures.figures(config).items():
        yield Picture(name, one.title, html(one.caption, linked), _data(config.layout.figure(name), "image/png"))


def _sheets(config: Config, linked: Collection[str]) -> Iterator[Sheet]:
    for table in tables.tables(config).values():
        paths = {Path(path).suffix: path for path in table.paths(config)}
        yield _sheet(table.name, table.title, table.caption, paths[".csv"], paths.get(".md"), linked)


def _experiments(config: Config, linked: Collection[str]) -> Iterator[tuple[Sheet, str]]:
    """Table and figure of the experiments that are shown."""
    for name in (name for name, faults in _made(config).items() if not faults):
        csv, text, png = _files(config, name)
        question = config.experiments[name].question
        yield _sheet(name, question, OF_EXPERIMENTS, csv, text, linked), _data(png, "image/png")


def _sheet(name: str, title: str, caption: str, csv: str, text: str | None, linked: Collection[str]) -> Sheet:
    """`text` is a Markdown file whose first line is its title."""
    body = html(Path(text).read_text(encoding="utf-8").partition("\n")[2], linked) if text else Markup()
    return Sheet(name, title, html(caption, linked), body, _data(csv, "text/csv"))


def _data(path: str, kind: str) -> str:
    return f"data:{kind};base64,{b64encode(Path(path).read_bytes()).decode()}"
