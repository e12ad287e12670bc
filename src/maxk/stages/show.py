"""`maxk show [NAME]`, such as `maxk show table2`: prints a table; without a name, lists the tables there are."""

from __future__ import annotations

import argparse
from pathlib import Path

from maxk import config as configuration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="table1, …, comparison or diversity; without it, a list"
    )


def run(args: argparse.Namespace) -> None:
    from maxk.reporting import terminal

    layout = configuration.load(args.config).layout
    if args.name is not None:
        terminal.show(layout.table(args.name, "md"))
        return
    for path in sorted(Path(layout.root).glob("*.md"), key=lambda path: (len(path.stem), path.stem)):
        title = path.read_text(encoding="utf-8").partition("\n")[0].strip("*")
        print(f"{path.stem:12} {title}")
