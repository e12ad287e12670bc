"""`maxk clean [KIND …]`: shows the disk use of an experiment by kind; with `--yes`, removes the named kinds.

    maxk clean                                   # all kinds; removes nothing
    maxk clean caches checkpoints --yes
    maxk clean experiment --config config/mini.yaml --yes

Removes only what is in the experiment's own folder: other experiments stay, and links are removed but not followed.
Refuses while a run is using the folder. (`make clean` removes the environments, no results.)
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rich.filesize import decimal

from maxk import config as configuration
from maxk.artifacts import files
from maxk.config import RESERVED
from maxk.errors import UserError, lookup

# What removing a kind costs, and where it is.
KINDS = {
    "caches": ("verdicts of programs and digests of weights; both are made again", ["cache"]),
    "checkpoints": (
        "of stopped training jobs; they start from the beginning",
        ["policies/*/*/checkpoints", "policies/*/*/model.partial"],
    ),
    "shards": (
        "samples and verdicts; the next run makes them again; scores and tables stay",
        ["samples", "drawn", "verdicts"],
    ),
    "experiment": ("everything, including policies, scores, tables and tracking", ["*"]),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)}; without one, all are shown")
    parser.add_argument("--config", help="config file of the experiment (default: the default experiment)")
    parser.add_argument("--yes", action="store_true", help="remove the named kinds")


def run(args: argparse.Namespace) -> None:
    for kind in args.kinds:
        lookup(KINDS, kind, "kind")
    if args.yes and not args.kinds:
        raise UserError(f"--yes needs the kinds to remove: {', '.join(KINDS)}")
    root = Path(configuration.experiment(args.config).layout.root)
    for kind in args.kinds or KINDS:
        print(f"{kind:12} {decimal(sum(map(size, _places(root, kind)))):>9}  {KINDS[kind][0]}")
    if not args.yes:
        print(f"nothing was removed; `maxk clean KIND --yes` removes a kind from {root}/")
        return
    if root.exists():
        with files.lock(root, wait=False):
            for path in [place for kind in args.kinds for place in _places(root, kind)]:
                remove(path)
        with contextlib.suppress(OSError):  # not empty
            root.rmdir()


def _places(root: Path, kind: str) -> Iterator[Path]:
    """Files and folders of a kind; nothing that is reached through a link."""
    for pattern in KINDS[kind][1]:
        for path in sorted(root.glob(pattern)):
            inside = path.parent.resolve() == root.resolve() / path.parent.relative_to(root)
            if inside and (kind != "experiment" or _own(path, root)):
                yield path


def _own(path: Path, root: Path) -> bool:
    """Whether an entry of the folder belongs to its experiment; `results/` also holds those of other experiments."""
    if len(root.parts) == 1 and path.is_dir() and not path.is_symlink():
        return path.name in RESERVED
    return path.name != ".gitkeep"


def size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; a link counts as itself, not as its target."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(size(Path(entry.path)) for entry in os.scandir(path))


def remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)  # follows no links
