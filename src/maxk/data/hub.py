"""The files that hold a benchmark's raw rows: from the hub, a mirror, or a local file or folder.

Files of the pinned revision are downloaded into the Hugging Face cache; loading scripts of a repository are never run.
With HF_HUB_OFFLINE=1 the cache must hold the files. A branch or tag is resolved to its commit first, with a warning
(`commit_of`). A local folder has the layout of the hub's repository; a single file needs no layout.
"""

from __future__ import annotations

import fnmatch
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from maxk.errors import UserError

DATA_SUFFIXES = (".parquet", ".arrow", ".json", ".jsonl", ".json.gz", ".jsonl.gz")
_ANSWER_S, _TIMEOUT_S = 3.0, 10.0
Layouts = Sequence[Sequence[str]]
"""Alternatives: each is a list of file patterns that all must match."""


class Place(Protocol):
    """A section of the configuration that says where rows are."""

    @property
    def location(self) -> str: ...

    @property
    def revision(self) -> str | None: ...


def files(name: str, place: Place, layouts: Layouts) -> list[Path]:
    """Local paths of the files that hold the rows, downloaded if they are on the hub. Raises UserError."""
    local = Path(place.location).expanduser()
    if local.is_file():
        return [local]
    folder = local if local.is_dir() else _download(name, place, layouts)
    present = data_files(folder)
    names = {path: str(path.relative_to(folder)).lower() for path in present}
    for patterns in layouts:
        found = [[path for path in present if fnmatch.fnmatch(names[path], one.lower())] for one in patterns]
        if all(found):
            paths = list(dict.fromkeys(path for matched in found for path in matched))
            _require_all_parts(name, paths)
            return paths
    wanted = " or ".join(" and ".join(patterns) for patterns in layouts)
    there = ", ".join(str(path.relative_to(folder)) for path in present[:5]) or "none"
    raise UserError(f"datasets.{name}: {place.location} has no data files {wanted}; it has {there}")


def fault(where: str, revision: str | None, kind: str, holds: str | None, online: bool) -> str | None:
    """Why a model or dataset cannot be read here, with the fix; None if it is local, in the cache, or on the hub.

    holds: a pattern of files without which a folder is of no use; None for data files. Asks the hub if `online`;
    downloads nothing.
    """
    local = Path(where).expanduser()
    folder = local if local.exists() else _cached(where, revision, kind)
    if folder is not None and (folder.is_file() or any(folder.rglob(holds) if holds else data_files(folder))):
        return None
    if local.exists():
        return f"the folder has no {holds or 'data files (' + ', '.join(DATA_SUFFIXES) + ')'}"
    if is_path(where):
        return "no such file or folder"
    if kind == "dataset" and revision is None:
        return "no such file or folder, and no `revision` pins a commit of the hub"
    lacking = "neither a local path nor in the Hugging Face cache"
    if not online:
        return f"{lacking}, and the hub does not respond; go online once (unset HF_HUB_OFFLINE), or give local paths"
    refusal = _refusal(where, revision, kind)
    return refusal and f"{lacking}, and the hub refuses it ({refusal}); correct its name or revision, or log in"


def responds() -> bool:
    """Whether the Hugging Face hub, or the mirror named by HF_ENDPOINT, responds."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=_ANSWER_S)
    except Exception:  # of whichever library the hub's client uses, or because HF_HUB_OFFLINE is set
        return False
    return True


def is_path(where: str) -> bool:
    """Whether a location cannot be a hub id."""
    return where.startswith((".", "/", "~")) or where.lower().endswith(DATA_SUFFIXES)


def _cached(where: str, revision: str | None, kind: str) -> Path | None:
    """The snapshot in the local cache, which may lack files."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(where, repo_type=kind, revision=revision, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError):
        return None


def _refusal(where: str, revision: str | None, kind: str) -> str | None:
    """Why the hub does not serve a repository; None if it does."""
    from huggingface_hub import HfApi

    try:
        HfApi().repo_info(where, repo_type=kind, revision=revision, timeout=_TIMEOUT_S)
    except Exception as error:  # of the hub, or of whichever library its client uses
        return first_line(error)
    return None


def data_files(location: str | Path) -> list[Path]:
    """The data files at a local location: the file itself, or all in a folder; none if neither exists."""
    path = Path(location).expanduser()
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and file.name.lower().endswith(DATA_SUFFIXES))


def _require_all_parts(name: str, paths: Sequence[Path]) -> None:
    """Raises UserError if a file is named `…-of-00039` and some of these parts are missing."""
    parts: dict[str, set[int]] = {}
    for path in paths:
        if match := re.fullmatch(r"(.*-)(\d+)(-of-\d+)[^/]*", str(path)):
            parts.setdefault(match[1] + match[3], set()).add(int(match[2]))
    for series, numbers in parts.items():
        count = int(series.rsplit("-", 1)[1])
        if absent := sorted(set(range(count)) - numbers):
            raise UserError(
                f"datasets.{name}: part {absent[0]} of {count} is missing beside {paths[0]}; fetch the data again"
            )


def _download(name: str, place: Place, layouts: Layouts) -> Path:
    """The snapshot of the hub repository in the local cache, downloaded if it is not there yet."""
    where = place.location
    if is_path(where):
        raise UserError(f"datasets.{name}.location: no file or folder {where}")
    if place.revision is None:
        raise UserError(
            f"datasets.{name}.revision: missing; pin a commit of {where}, or set location to a local file or folder"
        )
    patterns = [pattern for layout in layouts for pattern in layout]
    return _snapshot(f"datasets.{name}", where, place.revision, "dataset", patterns)


def _snapshot(key: str, where: str, revision: str, kind: str, patterns: Sequence[str]) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        # Offline, some versions of the library ask the hub for the file list of a commit even if the cache holds it.
        only_cache = constants.HF_HUB_OFFLINE
        folder = snapshot_download(
            where, repo_type=kind, revision=revision, allow_patterns=list(patterns), local_files_only=only_cache
        )
    except HFValidationError:
        raise UserError(f"{key}.location: {where!r} is neither a file, a folder nor a hub id") from None
    except RevisionNotFoundError:
        raise UserError(
            f"{key}.revision: {where} has no revision {revision}; pin another commit, or set location to a mirror or "
            "a local copy"
        ) from None
    except RepositoryNotFoundError:
        raise UserError(f"{key}.location: the hub has no public {kind} {where}; log in or name a mirror") from None
    except Exception as error:
        raise UserError(
            f"{key}: {where} at {revision} cannot be fetched ({first_line(error)}) and is not in the local cache; "
            "go online (unset HF_HUB_OFFLINE), or set location to a mirror or a local copy"
        ) from error
    return Path(folder)


def commit_of(key: str, where: str, revision: str | None, kind: str = "dataset") -> str | None:
    """The commit that a revision of a hub repository resolves to now; None if there is nothing to resolve.

    Warns of a branch or tag: it can move, and then the same configuration gives other data.
    """
    if revision is None or Path(where).expanduser().exists():
        return None
    if re.fullmatch(r"[0-9a-f]{40}", revision):
        return revision
    commit = _snapshot(key, where, revision, kind, []).name
    warn_of_movable(key, where, revision, commit)
    return commit


def warn_of_movable(key: str, where: str, revision: str, commit: str) -> None:
    """Warns that a revision is a branch or tag."""
    print(
        f"warning: {key}.revision: {revision!r} of {where} is no commit and can change; it is {commit} now: pin that "
        "to repeat this run",
        file=sys.stderr,
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
