"""What was written: the digest of every file made from scores, and of these scores.

Summary, figures and report refuse tables and figures that were cut short, edited, or made from other scores. Such an
experiment is left out of the report, and such a summary is not what a run ends with.

    written.record(config.layout, paths, scores.digest)       # after writing
    written.require(config.layout, paths, scores.digest)      # before reading
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from maxk.artifacts import files
from maxk.artifacts.digests import digest_of
from maxk.artifacts.paths import Layout
from maxk.config import Config
from maxk.errors import UserError

_LISTED = 3  # tables or figures; of more, the command makes all


def digest_of_scores(config: Config) -> str:
    """The digest of the score files that there are of the configuration's policies."""
    return digest_of({path: files.digest(path) for path in config.scores(config.policies) if Path(path).exists()})


def record(layout: Layout, paths: Sequence[str], made_from: str) -> None:
    """Notes the files at `paths` as they are now, made from scores with this digest.

    Each has a record of its own, so that several processes may write.
    """
    for path in paths:
        files.write_text(layout.written(path), f"{files.digest(path)} {made_from}\n")


def faults(layout: Layout, paths: Sequence[str], made_from: str) -> dict[str, list[str]]:
    """The files that are missing, changed or not made from scores with this digest, by what is wrong with them."""
    found: dict[str, list[str]] = {}
    for path in paths:
        if fault := _fault(path, layout.written(path), made_from):
            found.setdefault(fault, []).append(path)
    return found


def _fault(path: str, known: str, made_from: str) -> str:
    if not Path(path).exists():
        return "missing"
    noted = Path(known).read_text(encoding="utf-8", errors="replace") if Path(known).exists() else ""
    digest, _, of = noted.strip().partition(" ")
    if files.digest(path) != digest:
        return "not as written (cut short, edited, or by another version)"
    return "" if of == made_from else "made from other scores"


def require(layout: Layout, paths: Sequence[str], made_from: str) -> None:
    """Raises UserError that names all faulty tables and figures.

    It also names the commands that make them from the scores that there are: Snakemake would first finish a run that is
    not.
    """
    if found := faults(layout, paths, made_from):
        said = "; ".join(f"{fault} {', '.join(Path(path).name for path in some)}" for fault, some in found.items())
        made = " && ".join(_commands(layout, [path for some in found.values() for path in some]))
        raise UserError(f"{layout.root}: {said}; make them: `{made}`")


def _commands(layout: Layout, paths: Sequence[str]) -> Iterator[str]:
    """What makes the files again, tables first: figures are drawn from them."""
    for kind in ("table", "figure"):
        names = dict.fromkeys(Path(path).stem for path in paths if path.endswith(".png") == (kind == "figure"))
        if names:
            yield f"maxk {kind} {' '.join(names) if len(names) <= _LISTED else 'all'} --config {layout.config}"
