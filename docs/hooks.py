"""What MkDocs runs while it builds the site (`mkdocs build --strict`; `make docs`).

The reference is generated from the code on every build: the configuration from the schema, the commands from argparse
and the stages' docstrings, the files from `maxk.artifacts`, the Python API by mkdocstrings. Formulas become MathML,
which browsers show without a script and without the network.
"""

from __future__ import annotations

import inspect
import os
import re
from html import unescape
from importlib import import_module
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from maxk import cli
from maxk.artifacts import records
from maxk.artifacts.paths import Layout
from maxk.config.reference import reference

PUBLIC = {
    "Estimators and statistics": ["maxk.estimators", "maxk.statistics"],
    "Objectives": [f"maxk.objectives{part}" for part in ("", ".objective", ".group", ".on_policy", ".off_policy")],
    "The grader": [
        "maxk.grading.Grader",
        "maxk.grading.Limits",
        "maxk.grading.Submission",
        "maxk.grading.CheckerProgram",
        "maxk.grading.Verdict",
        "maxk.grading.Stats",
        "maxk.grading.VerdictCache",
        "maxk.grading.Extraction",
        "maxk.grading.extract_program",
        "maxk.grading.outputs_match",
        "maxk.grading.SandboxUnavailable",
    ],
    "Rewards and scores": ["maxk.evaluation.scoring"],
    "Configuration": ["maxk.config.load", "maxk.config.parse", "maxk.config.overlay"],
    "Files": ["maxk.artifacts.files"],
    "Datasets": ["maxk.data", "maxk.data.sections", "maxk.data.candidates"],
    "Sampling backends": ["maxk.sampling"],
}

# Links of the pages, which lead to the source of a generated page in the repository, and to that page in the site.
GENERATED = {
    "../config/README.md": "reference/configuration.md",
    "../src/maxk/cli.py": "reference/commands.md",
    "../src/maxk/artifacts/paths.py": "reference/files.md",
    "../src/maxk/artifacts/records.py": "reference/files.md#columns",
    "../src/maxk/__init__.py": "reference/python.md",
}


# ---- events
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages."""
    pages = {"configuration": reference, "commands": commands, "files": paths, "python": python}
    for name, page in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=page()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leads links to the generated pages."""
    for source, page in GENERATED.items():
        markdown = markdown.replace(f"]({source})", f"]({page})")
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Puts MathML in the place of every formula that arithmatex found."""
    return re.sub(r'<(span|div) class="arithmatex">(.*?)</\1>', _mathml, html, flags=re.DOTALL)


def _mathml(found: re.Match[str]) -> str:
    tex = unescape(found[2]).strip()[2:-2]  # \( … \) or \[ … \]
    # A group, since latex2mathml puts an exponent after a binomial on its closing parenthesis alone.
    tex = re.sub(r"\\binom\s*(\w|\{[^{}]*\})\s*(\w|\{[^{}]*\})", r"{\\binom{\1}{\2}}", tex)
    mathml = convert(tex, display="block" if found[1] == "div" else "inline")
    mathml = mathml.replace("<mi>log</mi>", '<mi>log</mi><mspace width="0.17em" />')  # as TeX spaces an operator
    return mathml.replace("&#x029F5;", "&#x02216;")  # ∖: few fonts have the other set minus


# ---- generated pages
def commands() -> str:
    """Every subcommand: what its module says, and its arguments as `--help` prints them."""
    os.environ["COLUMNS"] = "100"  # argparse breaks its lines there
    page = ["# Command line", "", "Every stage of the pipeline is one subcommand, and one rule of the Snakefile.", ""]
    for name in cli.STAGES:
        parser = cli.parser(name)
        parser.description = None  # the module's docstring, which is above it here
        page += [f"## maxk {name}", "", _docstring(import_module(f"maxk.stages.{name}")), ""]
        page += ["```text", parser.format_help().rstrip(), "```", ""]
    return "\n".join(page)


def paths() -> str:
    """Every file under `results/`, and the columns of the tables among them."""
    pattern = Layout("results")
    page = ["# Files under `results/`", "", _docstring(import_module("maxk.artifacts.paths")), ""]
    page += ["An experiment whose `name` is not `default` writes to `results/{name}/` instead.", ""]
    page += ["| file | what it holds |", "|---|---|"]
    for name, member in vars(Layout).items():
        if isinstance(member, property):
            page.append(f"| `{getattr(pattern, name)}` | {_docstring(member.fget)} |")
        elif inspect.isfunction(member) and not name.startswith("_"):
            page.append(f"| `{_example(pattern, name)}` | {_docstring(member)} |")
    page += ["", "## Columns", "", _docstring(records), ""]
    schemas = {
        "problem": records.PROBLEM,
        "sample": records.SAMPLE,
        "prompt": records.PROMPT,
        "verdict": records.VERDICT_AND_OUTPUTS,
        "score": records.SCORE,
    }
    for title, schema in schemas.items():
        page += [f"### {title.capitalize()}s", "", "| column | type | meaning |", "|---|---|---|"]
        for field in schema:
            type_ = str(field.type).replace(" not null", "") + (" or null" if field.nullable else "")
            page.append(f"| `{field.name}` | `{type_}` | {records.COLUMNS[field.name]} |")
        page.append("")
    return "\n".join(page)


def python() -> str:
    """The public modules, for mkdocstrings."""
    page = ["# Python", ""]
    for title, objects in PUBLIC.items():
        page += [f"## {title}", "", *(f"::: {name}\n" for name in objects)]
    return "\n".join(page)


def _example(layout: Layout, name: str) -> str:
    """A path with its parameters as wildcards: results/data/{dataset}/problems.parquet."""
    parameters = list(inspect.signature(getattr(layout, name)).parameters)
    return str(getattr(layout, name)(*(f"{{{parameter}}}" for parameter in parameters)))


def _docstring(documented: Any) -> str:
    return inspect.cleandoc(documented.__doc__ or "")
