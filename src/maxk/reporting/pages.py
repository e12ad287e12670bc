"""Pages of the report: Markdown converted to self-contained HTML that also fits a phone."""

from __future__ import annotations

import html
import re

from markdown_it import MarkdownIt

from maxk.artifacts import files
from maxk.config import Config

_STYLE = """
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; color: #1f2933;
       margin: 0 auto; padding: 1rem; max-width: 72rem; }
h1 { font-size: 1.25rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { display: block; width: fit-content; max-width: 100%; overflow-x: auto; border-collapse: collapse;
        font-size: .9em; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #e4e7eb; vertical-align: bottom; white-space: nowrap; }
thead th { border-bottom: 2px solid #9aa5b1; text-align: left; white-space: normal; }
th:first-child, td:first-child { position: sticky; left: 0; background: #fff; }
p { max-width: 48rem; overflow-wrap: anywhere; } table + p, table ~ p { color: #52606d; font-size: .9em; }
pre { background: #f5f7fa; padding: .8rem; overflow-x: auto; font-size: .85em; }
"""


def write(config: Config, name: str, markdown: str) -> str:
    """Writes a page from Markdown and returns its path. A first line in bold becomes the heading."""
    path = config.layout.page(name)
    files.write_text(path, to_html(name, markdown))
    return path


def to_html(name: str, markdown: str) -> str:
    heading = re.match(r"\*\*(.+)\*\*\n", markdown)
    if heading:
        markdown = f"# {heading[1]}\n{markdown[heading.end() :]}"
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{html.escape(name)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
