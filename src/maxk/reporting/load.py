"""All scores of an experiment as one structure, or a refusal to mix scores that do not belong together.

A row is an objective (or the base model) with all its training seeds; a cell is a row on a dataset. Scores may share a
table only if they agree on experiment, settings, sandbox tier, backend, base policy and each dataset's problems, and if
every policy was trained with the present configuration. Otherwise a `UserError` names both files and the differing key.
Missing scores are a blank cell with a note, never a zero.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from maxk.artifacts import files, records
from maxk.artifacts.paths import BASE, command, policy_name
from maxk.artifacts.provenance import require_equal
from maxk.artifacts.records import Provenance
from maxk.config import Config
from maxk.errors import UserError, counted
from maxk.reporting import MEAN, markdown, written
from maxk.statistics import Floats

EVERY = "every dataset"  # for notes that concern no single dataset
_REMEDY = "make both with one configuration (`maxk sample`, `maxk verify`, `maxk score`)"


@dataclass(frozen=True)
class Cell:
    """Scores of a row on a dataset: estimates [seeds, problems, ks]; statistics of samples are pooled over seeds."""

    seeds: tuple[int, ...]  # training seeds; empty for the base model, which has one set of scores
    rewards: Floats  # [seeds, problems, n], ascending
    estimates: Mapping[str, Floats]  # by metric: "max", "pass"; maj@k (`votes`) [seeds, problems], for one k
    entropies: Floats | None  # of all completions; None if the backend gave none
    mean_tokens: float
    truncated: float
    stopped: float


@dataclass(frozen=True)
class Absence:
    """A row lacks scores on a dataset (or on `EVERY`); `lacking` says which."""

    row: str
    dataset: str
    lacking: str


@dataclass(frozen=True, eq=False)
class Scores:
    """Everything that reports are made from. `labels` holds the rows in the order of the tables.

    `configured` are the training seeds of the configuration: a run that is not finished has scores of fewer.
    Compared by identity, so that results computed from it can be cached.
    """

    experiment: str
    ks: tuple[int, ...]
    n: int
    sandbox: str | None
    configured: tuple[int, ...]
    datasets: tuple[str, ...]
    labels: Mapping[str, str]
    cells: Mapping[tuple[str, str], Cell]
    absences: tuple[Absence, ...]
    digest: str  # of the score files (`written.digest_of_scores`)

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(self.labels)

    @property
    def seed_range(self) -> tuple[int, int]:
        """The fewest and the most training seeds behind scores of a trained row on a dataset; 0, 0 without any."""
        counts = [len(cell.seeds) for (row, _), cell in self.cells.items() if row != BASE]
        return (min(counts), max(counts)) if counts else (0, 0)

    def seeds_text(self, *remarks: str) -> str:
        """`training seeds: 0, 1`: those with scores, and in brackets how far rows lack them, and further remarks."""
        scored = [seed for seed in self.configured if any(seed in cell.seeds for cell in self.cells.values())]
        low, high = self.seed_range
        lacks = [f"of {len(self.configured)} configured"] if len(scored) < len(self.configured) else []
        if low < len(scored):
            lacks.append(f"{low if low == high else f'{low} to {high}'} per policy")
        said = "; ".join((*lacks, *remarks))
        named = f"training seed{'' if len(scored) == 1 else 's'}: {', '.join(map(str, scored)) or 'none'}"
        return named + (f" ({said})" if said else "")

    def notes(self) -> list[str]:
        """What scores are absent: one sentence for all rows that lack the same."""
        labels: dict[tuple[str, str], list[str]] = {}
        for one in self.absences:
            labels.setdefault((one.dataset, one.lacking), []).append(self.labels[one.row])
        return [f"{'; '.join(named)} on {dataset}: {lacking}." for (dataset, lacking), named in labels.items()]

    def only(self, rows: Collection[str], datasets: Collection[str]) -> Scores:
        """Scores of some rows on some datasets, and their absences, for notes on what is shown."""
        return replace(
            self,
            cells={(row, one): cell for (row, one), cell in self.cells.items() if row in rows and one in datasets},
            absences=tuple(one for one in self.absences if one.row in rows and one.dataset in (*datasets, EVERY)),
        )

    def problems(self, dataset: str) -> int:
        """Number of problems of a dataset; 0 if nothing is scored on it."""
        cells = (self.cells.get((row, dataset)) for row in self.rows)
        return next((cell.estimates["max"].shape[1] for cell in cells if cell), 0)

    def values(self, row: str, dataset: str, quantity: str) -> Floats | None:
        """Estimates [seeds, problems] of a quantity such as "max@128"; None without scores."""
        found = self.cells[row, dataset].estimates if (row, dataset) in self.cells else {}
        metric, k = quantity.split("@")
        return found[metric][:, :, self.ks.index(int(k))] if metric in found else found.get(quantity)

    def per_problem(self, row: str, dataset: str, quantity: str) -> Floats | None:
        """Mean over seeds, [problems]; None without scores."""
        values = self.values(row, dataset, quantity)
        return None if values is None else values.mean(axis=0)

    def entropies(self, row: str) -> Floats | None:
        """Entropies of all completions, datasets pooled; None unless all scores of the row have them."""
        found = [self.cells[row, d].entropies for d in self.datasets if (row, d) in self.cells]
        present = [one for one in found if one is not None]
        return np.concatenate(present) if found and len(present) == len(found) else None

    def means_note(self, confidence: float, reference: str) -> str:
        """One line for readers: what the means and intervals of a table are over, and its reference."""
        problems = counted(sum(map(self.problems, self.datasets)), "problem")
        return (
            f"Means over {counted(len(self.datasets), 'dataset')} ({problems}, {counted(self.n, 'sample')} each; "
            f"{self.seeds_text()}) with {markdown.percent(confidence)} intervals over "
            f"{markdown.interval_over(*self.seed_range)}. Reference: {reference}; differences are paired. Sandbox: "
            f"{self.sandbox}."
        )

    def half(self, which: int) -> Scores:
        """Scores of every second problem of each dataset, starting with the first (0) or the second (1).

        Rewards and estimates are halved; entropies and lengths remain those of all problems.
        """
        halves = {
            place: replace(
                cell,
                rewards=cell.rewards[:, which::2],
                estimates={m: e[:, which::2] for m, e in cell.estimates.items()},
            )
            for place, cell in self.cells.items()
        }
        return replace(self, cells=halves)

    def mean(self, row: str, dataset: str, quantity: str) -> float | None:
        """Mean over seeds and problems; for `MEAN` the mean over all datasets, None if one is missing."""
        if dataset == MEAN:
            means = [self.mean(row, one, quantity) for one in self.datasets]
            present = [value for value in means if value is not None]
            return float(np.mean(present)) if len(present) == len(means) else None
        values = self.values(row, dataset, quantity)
        return None if values is None else float(values.mean())


def load(config: Config) -> Scores:
    """Reads all scores that exist. Raises UserError if they are a mixture, and if there are none."""
    labels = {row: config.label(row) for row in (BASE, *config.objectives)}
    digest = written.digest_of_scores(config)  # before they are read: what is made from a mixture matches nothing
    consistent = _Consistency(config)
    cells: dict[tuple[str, str], Cell] = {}
    absences: list[Absence] = []
    for row in labels:
        seeds = () if row == BASE else config.seeds
        parts = {dataset: _partition(config, row, dataset, seeds) for dataset in config.evaluated}
        absences += _absences(row, {dataset: absent for dataset, (_, absent) in parts.items()}, len(seeds))
        for dataset, (found, _) in parts.items():
            if found:
                policies = [row if seed is None else policy_name(row, seed) for seed in found]
                tables = [consistent.read(policy, dataset) for policy in policies]
                cells[row, dataset] = _cell(tuple(s for s in found if s is not None), tables)
    if not cells:
        raise UserError(
            f"{config.layout.root}/scores: no scores yet; make them: "
            f"`{command(config.layout, config.layout.table('table2'))}`"
        )
    return Scores(
        experiment=config.name,
        ks=tuple(config.report.ks),
        n=config.sampling.n,
        sandbox=consistent.sandbox,
        configured=tuple(config.seeds) if config.objectives else (),
        datasets=tuple(config.evaluated),
        labels=labels,
        cells=cells,
        absences=tuple(absences),
        digest=digest,
    )


class _Consistency:
    """Reads score files; each must agree with the configuration and with the first file read."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._first: tuple[str, Provenance] | None = None
        self._digests: dict[str, tuple[str, str | None]] = {}  # by input: the first file with it, and its digest

    @property
    def sandbox(self) -> str | None:
        return self._first[1].environment.get("sandbox") if self._first else None

    def read(self, policy: str, dataset: str) -> pa.Table:
        path = self._config.layout.scores(policy, dataset)
        source = files.read_provenance(path)
        self._require_configured(path, policy, source)
        self._first = self._first or (path, source)
        require_equal(self._first[0], _shared(self._first[1]), path, _shared(source), _REMEDY)
        for what, digest in _digests(policy, dataset, source):
            other, known = self._digests.setdefault(what, (path, digest))
            require_equal(other, {what: known}, path, {what: digest}, _REMEDY)
        return files.read_table(path, records.SCORE)

    def _require_configured(self, path: str, policy: str, source: Provenance) -> None:
        settings = self._config.settings("score")
        own = {name: source.settings.get(name) for name in settings}
        require_equal(
            path,
            {"experiment": source.experiment, "settings": own},
            "the configuration",
            {"experiment": self._config.name, "settings": settings},
            "run `maxk score` again, or give each experiment a name of its own",
        )
        objective = policy.split("/")[0]
        trained = self._config.settings("base" if policy == BASE else "train", objective=objective)
        require_equal(
            path,
            {"policy": source.lineage.get("settings")},
            "the configuration",
            {"policy": trained},
            f"make {policy} and its scores again, or restore the configuration",
        )


def _shared(source: Provenance) -> dict[str, Any]:
    return {"settings": source.settings, "environment": source.environment}


def _digests(policy: str, dataset: str, source: Provenance) -> Iterator[tuple[str, str | None]]:
    """Inputs that several score files share: the base policy, and the problems trained and tested on."""
    yield "base policy", source.inputs.get("policy") if policy == BASE else source.lineage.get("base")
    yield f"problems of {dataset}", source.inputs.get("problems")
    for name, digest in source.lineage.get("data", {}).items():
        yield f"problems of {name}", digest


def _partition(
    config: Config, row: str, dataset: str, seeds: Sequence[int]
) -> tuple[dict[int | None, str], list[int | None]]:
    """Score files of a row on a dataset by training seed (None for the base model), and the seeds without."""
    policies: dict[int | None, str] = {seed: policy_name(row, seed) for seed in seeds} or {None: row}
    paths = {seed: config.layout.scores(policy, dataset) for seed, policy in policies.items()}
    found = {seed: path for seed, path in paths.items() if Path(path).exists()}
    return found, [seed for seed in paths if seed not in found]


def _absences(row: str, absent: Mapping[str, Sequence[int | None]], seeds: int) -> Iterator[Absence]:
    """One per dataset that lacks seeds, or a single one if all datasets lack the same."""
    if len(absent) > 1 and len(set(map(tuple, absent.values()))) == 1:
        absent = {EVERY: next(iter(absent.values()))}
    for dataset, missing in absent.items():
        partly = f" for seed {', '.join(map(str, missing))}" if len(missing) < max(1, seeds) else ""
        if missing:
            yield Absence(row, dataset, f"no scores{partly}")


def _cell(seeds: tuple[int, ...], tables: Sequence[pa.Table]) -> Cell:
    entropies = [_flat(table["entropies"]) for table in tables]
    return Cell(
        seeds=seeds,
        rewards=np.stack([_matrix(table["rewards"]) for table in tables]),
        estimates={m: np.stack([_matrix(table[f"{m}_at_k"]) for table in tables]) for m in ("max", "pass")},
        entropies=np.concatenate(entropies) if all(len(one) for one in entropies) else None,
        mean_tokens=float(np.mean([table["mean_tokens"].to_numpy() for table in tables])),
        truncated=float(np.mean([table["truncated"].to_numpy() for table in tables])),
        stopped=float(np.mean([table["stopped"].to_numpy() for table in tables])),
    )


def _flat(column: pa.ChunkedArray) -> Floats:
    return np.asarray(pc.list_flatten(column).to_numpy(), dtype=np.float64)


def _matrix(column: pa.ChunkedArray) -> Floats:
    return _flat(column).reshape(len(column), -1)
