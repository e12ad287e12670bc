"""What was written: the digest of every table and figure, and of the scores that it was made from.

Summary, figures and report read such files. They refuse one that was cut short, edited, or made from other scores.

    written.record(config.layout, paths, scores)       # after writing
    written.require(config.layout, paths, scores)      # before reading
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from maxk.artifacts import files
from maxk.artifacts.paths import Layout
from maxk.errors import UserError
from maxk.reporting.load import Scores

_LISTED = 3  # tables or figures; of more, the command makes all


def record(layout: Layout, paths: Sequence[str], scores: Scores | None) -> None:
    """Notes the files at `paths` as they are now; those of an experiment without their scores, which are its own."""
    made_from = scores.digest if scores else ""
    made = {os.path.relpath(path, layout.root): [files.digest(path), made_from] for path in paths}
    with files.lock(Path(layout.written).parent):
        files.write_json(layout.written, {**_known(layout), **made})


def require(layout: Layout, paths: Sequence[str], scores: Scores | None) -> None:
    """Raises UserError that names all files that are missing, changed or not made from these scores.

    It also names the commands that make them from the scores that there are: Snakemake would first finish a run that is
    not. Without `scores` any are right.
    """
    known = _known(layout)
    faults: dict[str, list[str]] = {}
    for path in paths:
        digest, of = known.get(os.path.relpath(path, layout.root), ("", ""))
        if not Path(path).exists():
            faults.setdefault("missing", []).append(path)
        elif files.digest(path) != digest:
            faults.setdefault("not as written (cut short, edited, or by another version)", []).append(path)
        elif scores is not None and of != scores.digest:
            faults.setdefault("made from other scores", []).append(path)
    if faults:
        said = "; ".join(f"{fault} {', '.join(Path(path).name for path in found)}" for fault, found in faults.items())
        made = " && ".join(_commands(layout, [path for found in faults.values() for path in found]))
        raise UserError(f"{layout.root}: {said}; make them: `{made}`")


def _known(layout: Layout) -> dict[str, tuple[str, str]]:
    return files.read_json(layout.written) if Path(layout.written).exists() else {}


def _commands(layout: Layout, paths: Sequence[str]) -> Iterator[str]:
    """What makes the files again, tables first: figures are drawn from them."""
    names: dict[str, dict[str, None]] = {"table": {}, "figure": {}, "experiment": {}}
    for path in map(Path, paths):
        in_experiment = path.parent != Path(layout.root)
        kind = "experiment" if in_experiment else "figure" if path.suffix == ".png" else "table"
        names[kind][path.stem] = None
    for kind, found in names.items():
        for some in found if kind == "experiment" else [" ".join(found) if len(found) <= _LISTED else "all"]:
            if some:
                yield f"maxk {kind} {some} --config {layout.config}"
