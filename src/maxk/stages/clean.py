"""`maxk clean [KIND …]`: shows what an experiment's folder holds, by kind and size; with `--yes` it removes the kinds
that are named.

    maxk clean                                   # all kinds, nothing is removed
    maxk clean caches checkpoints                # what these would free
    maxk clean caches checkpoints --yes          # frees it
    maxk clean experiment --config config/mini.yaml --yes

Only what stands in the experiment's own folder goes: other experiments stay, links are removed but never followed, and
what a running job holds is refused. (`make clean` removes the environments, no results.)
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from maxk import config as configuration
from maxk.config import RESERVED
from maxk.errors import UserError

# What is lost with a kind: nothing but time.
KINDS = {
    "caches": "the verdict cache; grading runs programs again",
    "checkpoints": "of training that was stopped; it starts from the beginning",
    "shards": "samples and verdicts; scores and tables stay, and the next run of the pipeline makes them again",
    "experiment": "all of it: policies, scores, tables and tracking, too",
}


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("clean", help="show what an experiment's folder holds, and remove kinds of it")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)}; without one all are shown")
    parser.add_argument("--config", help="the experiment's config file; by default the default experiment")
    parser.add_argument("--yes", action="store_true", help="remove the kinds that are named")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    if unknown := [kind for kind in args.kinds if kind not in KINDS]:
        raise UserError(f"no kind {unknown[0]!r}; known: {', '.join(KINDS)}")
    if args.yes and not args.kinds:
        raise UserError(f"--yes needs the kinds to remove: {', '.join(KINDS)}")
    root = Path(configuration.experiment(args.config).layout.root)
    _refuse_links(root)
    for kind in args.kinds or KINDS:
        places = list(_places(root, kind))
        held = sum(map(size, places))
        print(f"{kind:12} {_human(held):>9}  {KINDS[kind]}")
        for path in places:
            print(f"{'':12} {_human(size(path)):>9}    {path}")
    if not args.kinds:
        print(f"nothing was removed; name kinds, and --yes to remove them from {root}/")
    elif not args.yes:
        print("nothing was removed; --yes removes it")
    else:
        _refuse_if_at_work(root)
        for kind in args.kinds:
            for path in list(_places(root, kind)):
                remove(path)
        with contextlib.suppress(OSError):  # it is not empty
            root.rmdir()


def _refuse_links(root: Path) -> None:
    """What stands behind a link is somebody else's to clean."""
    for part in (root, *root.parents):
        if part.is_symlink():
            raise UserError(f"{part} is a link to {part.readlink()}; remove what is there by hand")


def _refuse_if_at_work(root: Path) -> None:
    """Raises UserError where a job holds a lock in the folder (`files.exclusive`)."""
    for path in (root / ".lock", *root.glob("policies/*/*/.lock")):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{path.parent}: a job is at work here; nothing was removed") from None


def _places(root: Path, kind: str) -> Iterator[Path]:
    """Files and folders of a kind; of links, the link."""
    patterns = {
        "caches": ["cache"],
        "checkpoints": ["policies/*/*/checkpoints", "policies/*/*/model.partial"],
        "shards": ["samples", "verdicts"],
        "experiment": ["*"],
    }
    for pattern in patterns[kind]:
        for path in sorted(root.glob(pattern)):
            behind_link = any(parent.is_symlink() for parent in path.parents)
            if not behind_link and (kind != "experiment" or _own(path, root)):
                yield path


def _own(path: Path, root: Path) -> bool:
    """Whether something in the folder belongs to its experiment: in `results/`, other experiments have theirs."""
    if len(root.parts) == 1 and path.is_dir() and not path.is_symlink():
        return path.name in RESERVED
    return path.name != ".gitkeep"


def size(path: Path) -> int:
    """Bytes on disk of a file or of all in a folder; a link counts by itself."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(size(Path(entry.path)) for entry in os.scandir(path))


def remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    else:
        shutil.rmtree(path)  # does not follow links, nor a folder that becomes one meanwhile


def _human(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
