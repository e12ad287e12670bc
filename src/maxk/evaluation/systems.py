"""Reads the results of systems to compare: rewards by problem and by seed.

A result file is one of
- verdicts that `maxk grade` wrote,
- scores of the pipeline (a parquet file, which holds all rewards),
- a CSV file from any tool, with the columns problem, n, c (samples, and how many are correct) and optionally seed.

    files_of("grpo=run0.verdicts.jsonl,run1.verdicts.jsonl")        two seeds of one system
    paired([first, second])                                         the same problems, in one order
"""

from __future__ import annotations

import csv
import filecmp
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from maxk import estimators
from maxk.errors import UserError, counted, described, no_such_file
from maxk.estimators import Floats
from maxk.evaluation.verdict_shards import is_parquet

REWARDS, COUNTS = "rewards", "counts"
MOST_SAMPLES = 10**6  # of a problem in a CSV file: every k takes time and memory in proportion


@dataclass(frozen=True)
class Problem:
    """Counts of each reward among the samples of a problem; `tests` is the number of tests, None if unknown.

    task: digest of its tests, checker and limits, if the file has it.
    """

    rewards: Counter[float]
    tests: int | None = None
    task: str | None = field(default=None, compare=False)

    @property
    def n(self) -> int:
        return sum(self.rewards.values())

    @property
    def c(self) -> int:
        """Samples that pass all tests."""
        return self.rewards[1.0]

    def samples(self) -> list[float]:
        """The reward of every sample, in no order."""
        return list(self.rewards.elements())


@dataclass(frozen=True)
class Seed:
    """One set of samples: problems by id. `kind` is COUNTS if only right and wrong are known."""

    source: str
    problems: Mapping[str, Problem]
    kind: str = REWARDS
    dataset: str | None = None  # digest of the problems, if the file has it


@dataclass(frozen=True)
class System:
    """A named system with one set of samples per seed."""

    name: str
    seeds: Sequence[Seed]

    @property
    def problem_ids(self) -> list[str]:
        """Ids of the problems that all seeds have."""
        return [name for name in self.seeds[0].problems if all(name in seed.problems for seed in self.seeds)]

    @property
    def n(self) -> int:
        """Fewest samples of a problem."""
        return min(problem.n for seed in self.seeds for problem in seed.problems.values())

    def estimates(self, metric: str, ks: Sequence[int]) -> Floats:
        """max@k ("max") or pass@k ("pass") of every problem: [seeds, problems, ks]."""
        return np.stack([_estimates(list(seed.problems.values()), metric, ks) for seed in self.seeds])

    @property
    def sizes(self) -> dict[str, list[int]]:
        """Samples of each problem by seed, in ascending order."""
        return {name: sorted(seed.problems[name].n for seed in self.seeds) for name in self.problem_ids}

    def solved(self) -> set[str]:
        """Problems that some sample of any seed solves; systems with equal `sizes` are alike in this."""
        return {name for seed in self.seeds for name, problem in seed.problems.items() if problem.c}


def _estimates(problems: Sequence[Problem], metric: str, ks: Sequence[int]) -> Floats:
    """[problems, ks]; problems with equally many samples share the estimator's weights."""
    found = np.empty((len(problems), len(ks)))
    sizes = np.array([problem.n for problem in problems])
    for n in np.unique(sizes):
        at = np.flatnonzero(sizes == n)
        if metric == "pass":
            found[at] = estimators.pass_at_k(n, [problems[i].c for i in at], list(ks))
        else:
            found[at] = estimators.max_at_k([problems[i].samples() for i in at], list(ks))
    return found


# ------------------------------------------------------------------------------------------------------ pairing
@dataclass(frozen=True)
class Paired:
    """Systems restricted to the problems that all of them have; `notes` say what was left out."""

    systems: Sequence[System]
    problem_ids: Sequence[str]
    notes: Sequence[str] = field(default=())

    @property
    def n(self) -> int:
        """Fewest samples that a system has of a problem."""
        return min(system.n for system in self.systems)

    @property
    def metrics(self) -> tuple[str, ...]:
        """max@k only if all systems have rewards: from counts it would equal pass@k."""
        counts = any(seed.kind == COUNTS for system in self.systems for seed in system.seeds)
        return ("pass",) if counts else ("max", "pass")


def paired(systems: Sequence[System]) -> Paired:
    """Pairs systems. Raises UserError if they share no problem, or if a problem's tests differ between two of them."""
    require_different_names([system.name for system in systems])
    _require_same_problems([seed for system in systems for seed in system.seeds])
    others = [set(one.problem_ids) for one in systems[1:]]
    ids = [name for name in systems[0].problem_ids if all(name in other for other in others)]
    if not ids:
        some = ", ".join(f"{one.name}: {', '.join(map(repr, one.problem_ids[:3])) or 'none'}" for one in systems)
        raise UserError(f"the systems have no problem in common; problems of {some}")
    kept = [System(one.name, [_restricted(seed, ids) for seed in one.seeds]) for one in systems]
    return Paired(kept, ids, list(_notes(systems, kept, ids)))


def require_different_names(names: Sequence[str]) -> None:
    """Raises UserError if two systems have one name."""
    if len(counts := Counter(names)) < len(names):
        twice = counts.most_common(1)[0][0]
        raise UserError(f"two systems are called {twice!r}; name them (first=FILE second=FILE)")


def _restricted(seed: Seed, ids: Sequence[str]) -> Seed:
    return Seed(seed.source, {name: seed.problems[name] for name in ids}, seed.kind, seed.dataset)


def _require_same_problems(seeds: Sequence[Seed]) -> None:
    """Every seed must agree with the first one that knows the dataset, or a problem's number of tests, or its task."""
    dataset: tuple[str, str] | None = None
    known: dict[str, tuple[int, str]] = {}
    for seed in seeds:
        if seed.dataset:
            dataset = dataset or (seed.dataset, seed.source)
            if dataset[0] != seed.dataset:
                raise UserError(
                    f"{dataset[1]} and {seed.source} were made from different problems; compare like with like"
                )
        for name, problem in seed.problems.items():
            if problem.tests:
                tests, source = known.setdefault(name, (problem.tests, seed.source))
                if tests != problem.tests:
                    here = counted(tests, "test")
                    raise UserError(f"problem {name!r} has {here} in {source} and {problem.tests} in {seed.source}")
    require_same_tasks(
        (seed.source, {name: problem.task for name, problem in seed.problems.items() if problem.task}) for seed in seeds
    )


def require_same_tasks(found: Iterable[tuple[str, Mapping[str, str]]]) -> None:
    """Raises UserError if a problem has two tasks. found: pairs of a file and its tasks by problem, where known."""
    known: dict[str, tuple[str, str]] = {}
    for path, tasks in found:
        for name, task in tasks.items():
            first, other = known.setdefault(name, (task, path))
            if first != task:
                raise UserError(
                    f"problem {name!r} has other tests, checker or limits in {path} than in {other}; grade both with "
                    "the same problems and options"
                )


def _notes(systems: Sequence[System], kept: Sequence[System], ids: Sequence[str]) -> Iterator[str]:
    """What is compared, and what is left out."""
    everything = {name for one in systems for seed in one.seeds for name in seed.problems}
    if len(everything) > len(ids):
        has = ", ".join(f"{one.name} {len(one.problem_ids)}" for one in systems)
        yield f"Only problems that all have are compared: {len(ids)} of {len(everything)} (with results: {has})."
    sizes = {one.name: [p.n for seed in one.seeds for p in seed.problems.values()] for one in kept}
    smallest = min(min(each) for each in sizes.values())
    if any(max(each) > smallest for each in sizes.values()):
        said = ", ".join(f"{name} {_range(each)}" for name, each in sizes.items())
        yield f"Samples per problem differ ({said}): no k above {smallest}; estimates use all samples."
    for one in systems:
        for first, second in _equal_seeds(one.seeds):
            yield (
                f"Seeds {first.source} and {second.source} of {one.name} have equal counts; if one is a copy, the "
                "spread between seeds is understated."
            )


def _equal_seeds(seeds: Sequence[Seed]) -> Iterator[tuple[Seed, Seed]]:
    """Each seed with as many samples of every reward as an earlier one, and that one.

    Not those of a model that always fails, or never: they are rightly equal.
    """
    for i, seed in enumerate(seeds):
        first = next((one for one in seeds[:i] if one.problems == seed.problems), None)
        if first and len({reward for problem in seed.problems.values() for reward in +problem.rewards}) > 1:
            yield first, seed


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


# ------------------------------------------------------------------------------------------------------ reading
Reader = Callable[[Path], Sequence[Seed]]
"""Reads the seeds in a file; may grade a file of samples."""


def read_system(name: str, paths: Sequence[str], read: Reader) -> System:
    """A system from its files, which may hold several seeds each. Raises UserError if one cannot be read."""
    return System(name, [seed for path in paths for seed in read(Path(path))])


def files_of(given: str) -> tuple[str, list[str]]:
    """The name and the files of a system, from `[NAME=]FILE[,FILE…]`, one file per seed.

    Raises UserError if a file is not there, or is given twice, also as a copy: two equal seeds would show no spread
    between seeds. CSV files may be equal, since few samples often give the same counts.
    """
    name, _, rest = given.partition("=")
    if not rest or "/" in name or Path(given).exists():
        name, rest = "", given
    paths = [rest] if Path(rest).exists() else rest.split(",")
    if repeated := [path for path in paths if sum(Path(path).resolve() == Path(one).resolve() for one in paths) > 1]:
        raise UserError(f"{repeated[0]}: given twice; give each seed of a system its own file")
    for path in map(Path, paths):
        if not path.is_file():
            what = "is a folder; give the scores of a policy" if path.is_dir() else no_such_file(path)
            raise UserError(f"{path}: {what}")
    for first, second in combinations([path for path in paths if not _is_csv(Path(path))], 2):
        if _same_content(first, second):
            raise UserError(
                f"{second}: the same file content as {first}; give the results of another seed, or leave one out"
            )
    return name or _short(paths[0]), paths


def _same_content(first: str, second: str) -> bool:
    try:
        return filecmp.cmp(first, second, shallow=False)
    except OSError:  # what reads the file says why
        return False


def _is_csv(path: Path) -> bool:
    return path.suffix.lower() == ".csv"


def _short(path: str) -> str:
    """A file name without its endings."""
    return re.sub(r"(\.verdicts)?(\.(jsonl?|parquet|csv))?(\.gz)?$", "", Path(path).name, flags=re.IGNORECASE)


def read_results(path: Path) -> Sequence[Seed] | None:
    """The seeds in a file of verdicts, scores or counts; None if it holds something else."""
    if is_parquet(path):
        return [_scores(path)]
    if _is_csv(path):
        return _counts(path)
    return _verdicts(path)


def _verdicts(path: Path) -> Sequence[Seed] | None:
    from maxk.artifacts.json_rows import first_row
    from maxk.evaluation import verdict_files

    return [of_tally(verdict_files.tally(path))] if verdict_files.is_verdict(first_row(path)) else None


def of_tally(tally: Any) -> Seed:
    """Counted verdicts (`verdict_files.Tally`) as a set of samples."""
    problems = {
        name: Problem(rewards, tally.tests[name], tally.tasks.get(name)) for name, rewards in tally.rewards.items()
    }
    return Seed(str(tally.path), problems)


# ---- CSV
_COLUMNS = ("problem", "n", "c")


def _counts(path: Path) -> list[Seed]:
    """Seeds of a CSV file, in the order of their first rows."""
    seeds: dict[str, dict[str, Problem]] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            _require_columns(path, reader.fieldnames or [])
            for row in reader:
                where = f"{path}:{reader.line_num}"
                problems = seeds.setdefault((row.get("seed") or "").strip(), {})
                name, n, c = row["problem"], _whole(where, "n", row["n"]), _whole(where, "c", row["c"])
                if None in row or None in row.values():
                    raise UserError(f"{where}: expected {len(reader.fieldnames or [])} columns, as in the first line")
                if not name or name in problems:
                    raise UserError(f"{where}: problem {name!r} {'appears twice' if name else 'has no name'}")
                if not 0 <= c <= n or n < 1:
                    raise UserError(f"{where}: expected 1 ≤ n and 0 ≤ c ≤ n, got n = {n}, c = {c}")
                if n > MOST_SAMPLES:
                    raise UserError(f"{where}: at most {MOST_SAMPLES} samples of a problem are allowed, got n = {n}")
                problems[name] = Problem(Counter({1.0: c, 0.0: n - c}))
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise UserError(f"{path}: not a CSV file ({error})") from None
    if not seeds:
        raise UserError(f"{path}: contains no problem")
    names = {seed: f"{path} (seed {seed})" if seed else str(path) for seed in seeds}
    return [Seed(names[seed], problems, COUNTS) for seed, problems in seeds.items()]


def _require_columns(path: Path, found: Sequence[str]) -> None:
    if not set(_COLUMNS) <= set(found) <= {*_COLUMNS, "seed"} or len(set(found)) < len(found):
        expected = f"{', '.join(_COLUMNS)} and perhaps seed"
        raise UserError(f"{path}:1: expected the columns {expected}, got {', '.join(found) or 'none'}")


def _whole(where: str, column: str, text: str | None) -> int:
    if text is None or not text.strip().isascii() or not text.strip().isdigit() or len(text) > 12:
        raise UserError(f"{where}: {column} must be a whole number of at most 12 digits, got {described(text)}")
    return int(text)


# ---- scores of the pipeline
def _scores(path: Path) -> Seed:
    import pyarrow as pa

    from maxk.artifacts import files, records
    from maxk.evaluation.verdict_shards import REMEDY

    source = files.read_provenance(path, REMEDY)
    if source.stage != "score":
        raise UserError(f"{path}: written by the stage {source.stage}; expected scores")
    schema = pa.schema([records.SCORE.field(name) for name in ("problem_id", "rewards")])
    table = files.read_table(path, schema, REMEDY)
    rows = zip(table["problem_id"].to_pylist(), table["rewards"].to_pylist(), strict=True)
    kept = {name: Problem(Counter(rewards)) for name, rewards in rows}
    return Seed(str(path), kept, dataset=source.inputs.get("problems"))
