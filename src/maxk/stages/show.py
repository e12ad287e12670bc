"""`maxk show [NAME]`: prints a table of a run in the terminal; without a name, lists the tables there are.

    maxk show table2
    maxk show table2 --config config/mine.yaml     # of another experiment

Tables are read from the Markdown files of a run.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from maxk import config as configuration
from maxk.artifacts.paths import command
from maxk.config import Config
from maxk.errors import UserError, unknown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="such as table2, summary or diversity")


def run(args: argparse.Namespace) -> None:
    from maxk.reporting import terminal

    config = configuration.load(args.config)
    made = _made(config)
    if not made:
        raise UserError(f"{config.layout.root}/ has no tables yet; make them: `{command(config.layout, 'tables')}`")
    if args.name is None:
        print(*(f"{name:12} {_title(path)}" for name, path in made.items()), sep="\n")
    elif args.name in made:
        terminal.write(made[args.name].read_text(encoding="utf-8"))
    else:
        raise UserError(f"no table {args.name!r} in {config.layout.root}/{unknown(args.name, made)}")


def _made(config: Config) -> dict[str, Path]:
    """The pages of a run by name: numbered tables first, those of experiments last."""
    root = Path(config.layout.root)
    found = [*sorted(root.glob("*.md"), key=_order), *sorted(root.glob("experiments/*.md"))]
    return {path.relative_to(root).with_suffix("").as_posix(): path for path in found}


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].strip("*")


def _order(path: Path) -> tuple[bool, int, str]:
    number = re.sub(r"\D", "", path.stem)
    return not number, int(number or 0), path.stem
