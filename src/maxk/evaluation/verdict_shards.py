"""The pipeline's verdicts without their configuration: one shard, or the folder of all shards of a policy on a dataset.

    for path, table in verdict_shards.tables(Path("results/verdicts/base/mbpp"), records.VERDICT): ...

A folder may still hold shards of an earlier run, made with other settings or another number of shards, or lack some of
a run that is not finished. Such a folder is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from maxk.artifacts.provenance import require_equal
from maxk.errors import UserError

REMEDY = "give a file that this version of maxk wrote"
_ONE = "give the shards of one evaluation"


def is_parquet(path: Path) -> bool:
    """Whether a path is a parquet file, or a folder, which is read as shards."""
    if not path.is_file():
        return path.is_dir()
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def tables(path: Path, schema: Any) -> Iterator[tuple[Path, Any]]:
    """The columns of an Arrow schema, shard by shard: only one shard is in memory.

    Raises UserError unless a folder holds every shard of one evaluation, once.
    """
    from maxk.artifacts import files

    paths = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not paths:
        raise UserError(f"{path}: a folder without *.parquet; give a file, or a folder of shards of verdicts")
    sources = [files.read_provenance(one, REMEDY) for one in paths]
    for one, source in zip(paths, sources, strict=True):
        if source.stage != "verify":
            raise UserError(f"{one}: written by the stage {source.stage}; expected verdicts")
        require_equal(str(paths[0]), _shared(sources[0]), str(one), _shared(source), _ONE)
        if path.is_dir() and not {"shard", "shards"} <= source.environment.keys():
            raise UserError(f"{one}: does not say which shard it is; {REMEDY}")
    numbers = sorted(source.environment.get("shard", 0) for source in sources)
    if path.is_dir() and numbers != list(range(wanted := sources[0].environment["shards"])):
        held = ", ".join(map(str, numbers))
        raise UserError(f"{path}: contains the shards {held} of {wanted}; run the pipeline again to continue")
    yield from ((one, files.read_table(one, schema, REMEDY)) for one in paths)


def _shared(source: Any) -> dict[str, Any]:
    """What all shards of an evaluation have in common; each has samples of its own."""
    return {
        "experiment": source.experiment,
        "settings": source.settings,
        "inputs": {name: digest for name, digest in source.inputs.items() if name != "samples"},
        **{name: source.environment.get(name) for name in ("sandbox", "shards", "n")},
    }
