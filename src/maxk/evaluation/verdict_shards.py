"""The pipeline's verdicts without their configuration: one shard, or the folder of all shards of a policy on a dataset.

    for path, table in verdict_shards.tables(Path("results/verdicts/base/mbpp"), records.VERDICT): ...

A folder may still hold shards of an earlier run: made with other settings, or left from a larger `sampling.shards`, in
which case their samples are in the new shards too. Or a run is not finished: shards are missing, or have the samples of
a smaller n. Such a folder is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from maxk.artifacts.provenance import require_equal
from maxk.errors import UserError

REMEDY = "give a file that this version of maxk wrote"
_ONE = "give the shards of one evaluation"
_UNFINISHED = "run the pipeline again, which continues"


def is_parquet(path: Path) -> bool:
    """Whether a path is a parquet file, or a folder, which is read as shards."""
    if not path.is_file():
        return path.is_dir()
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def tables(path: Path, schema: Any) -> Iterator[tuple[Path, Any]]:
    """The columns of an Arrow schema, shard by shard: only one shard is in memory.

    Raises UserError unless the shards are all verdicts of one evaluation, and every sample is in them once.
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
    if path.is_dir():
        _require_all(path, [source.environment for source in sources])
    _require_once(path, paths, sources[0].environment.get("n"))
    yield from ((one, files.read_table(one, schema, REMEDY)) for one in paths)


def _shared(source: Any) -> dict[str, Any]:
    """What all shards of an evaluation have in common; each has samples of its own."""
    return {
        "experiment": source.experiment,
        "settings": source.settings,
        "inputs": {name: digest for name, digest in source.inputs.items() if name != "samples"},
        **{name: source.environment.get(name) for name in ("sandbox", "shards", "n")},
    }


def _require_all(folder: Path, environments: Sequence[Mapping[str, Any]]) -> None:
    """Raises UserError if a shard is missing; `verify` records how many there are."""
    wanted = range(environments[0].get("shards", 0))
    if missing := sorted(set(wanted) - {one.get("shard") for one in environments}):
        raise UserError(f"{folder}: shard {missing[0]} of 0 … {len(wanted) - 1} is missing; {_UNFINISHED}")


def _require_once(given: Path, paths: Sequence[Path], n: int | None) -> None:
    """Raises UserError if a sample has several verdicts, or a problem has not `n` samples (None: as all others)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from maxk.artifacts import files, records

    key = pa.schema([records.VERDICT.field(name) for name in ("problem_id", "sample_index")])
    tables = [files.read_table(path, key, REMEDY) for path in paths]
    numbered = [one.append_column("shard", pa.array([i] * len(one), pa.int32())) for i, one in enumerate(tables)]
    groups = pa.concat_tables(numbered).group_by(key.names, use_threads=False)
    counts = groups.aggregate([("shard", how) for how in ("count", "min", "max")])
    for row in counts.filter(pc.greater(counts["shard_count"], 1)).slice(0, 1).to_pylist():
        where = " and ".join(str(paths[i]) for i in sorted({row["shard_min"], row["shard_max"]}))
        raise UserError(
            f"{where}: {row['shard_count']} verdicts of sample {row['sample_index']} of problem {row['problem_id']!r}; "
            f"{_ONE}, without those left from another sampling.shards"
        )
    of_problems = counts.group_by("problem_id", use_threads=False).aggregate([("sample_index", "count")])
    expected = n or pc.max(of_problems["sample_index_count"]).as_py()
    for row in of_problems.filter(pc.not_equal(of_problems["sample_index_count"], expected)).slice(0, 1).to_pylist():
        raise UserError(
            f"{given}: problem {row['problem_id']!r} has {row['sample_index_count']} samples, expected {expected}; "
            f"{_UNFINISHED}"
        )
