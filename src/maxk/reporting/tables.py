"""Every table of an experiment, declared once: its name, title, caption and what fills it.

Tables are numbered as in the paper: four over all datasets, then pass@k and max@k of each dataset, by its role `paper`.
`statistics`, `paired_tests`, `comparison` and `diversity` hold the numbers behind them, one observation per row.

    maxk table table2 statistics --config results/config.json      # results/table2.{csv,md,tex}, results/statistics.csv

To add a table, add it here. The Snakefile reads this module, so functions import what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maxk.artifacts.paths import BASE
from maxk.config import Config
from maxk.errors import lookup
from maxk.reporting import MEAN

if TYPE_CHECKING:
    import pandas as pd

    from maxk.reporting.load import Scores

MARKS = (
    "Bold: best of a column; underlined: second; *: off-policy BoN is significantly better than the paper's best "
    "baseline (Wilcoxon, as in the paper). A note gives the tests behind stars."
)


PAPER_DATASETS = ("codecontests", "livecodebench", "livebench", "codeforces", "mbpp")  # in the order of tables 5 to 14


# ---------------------------------------------------------------------------------------------------- kinds of tables
@dataclass(frozen=True)
class Table:
    """A table: files with `suffixes`; the report shows it with the caption."""

    name: str
    title: str
    caption: str

    @property
    def suffixes(self) -> tuple[str, ...]:
        return ("csv",)

    def paths(self, config: Config) -> list[str]:
        return [config.layout.table(self.name, suffix) for suffix in self.suffixes]

    def write(self, scores: Scores, config: Config) -> list[str]:
        """Writes the files; returns their paths."""
        from maxk.artifacts import files
        from maxk.reporting import written

        for path, text in zip(self.paths(config), self.render(scores, config), strict=True):
            files.write_text(path, text)
        written.record(config.layout, self.paths(config), scores.digest)
        return self.paths(config)

    def render(self, scores: Scores, config: Config) -> list[str]:
        """The text of every file, in the order of `suffixes`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Column:
    """Where a column's numbers come from: a dataset (or `mean`) and a quantity such as "max@128"."""

    dataset: str
    quantity: str
    header: str


@dataclass(frozen=True)
class PaperTable(Table):
    """Policies × columns. `rows` None: every policy of the main tables; named rows may belong to experiments."""

    columns: tuple[Column, ...]
    rows: tuple[str, ...] | None = None
    shaded: bool = False  # in LaTeX, darker where a column's values are higher

    @property
    def suffixes(self) -> tuple[str, ...]:
        return ("csv", "md", "tex")

    def render(self, scores: Scores, config: Config) -> list[str]:
        from maxk.reporting import rendering

        return rendering.render(self, scores, config)

    def made_by_experiments(self, config: Config) -> list[str]:
        """Rows that only an experiment trains, if all of their scores exist."""
        rows = [row for row in self.rows or () if config.owner(row) is not None]
        return [row for row in rows if all(Path(path).exists() for path in config.scores(config.seeded(row)))]


@dataclass(frozen=True)
class DataTable(Table):
    """One observation per row. `markdown` renders the rows for readers."""

    frame: Callable[[Scores, Config], pd.DataFrame]
    markdown: Callable[[pd.DataFrame], str] | None = None

    @property
    def suffixes(self) -> tuple[str, ...]:
        return ("csv", "md") if self.markdown else ("csv",)

    def render(self, scores: Scores, config: Config) -> list[str]:
        from maxk.reporting.rendering import to_csv

        frame = self.frame(scores, config)
        return [to_csv(frame), *([self.markdown(frame)] if self.markdown else [])]


# ------------------------------------------------------------------------------------------------------- declarations
def tables(config: Config) -> dict[str, Table]:
    """All tables of an experiment by name, in order."""
    listed = [*paper_tables(config), STATISTICS, PAIRED_TESTS, COMPARISON, DIVERSITY]
    return {table.name: table for table in listed}


def paper_tables(config: Config) -> list[PaperTable]:
    """The numbered tables; tables 1 and 4 compare trained policies and need some."""
    trained = {"table1", "table4"}
    return [one for one in _numbered(config) if config.objectives or one.name not in trained]


def _numbered(config: Config) -> list[PaperTable]:
    headline = f"max@{config.report.headline_k}"
    both = (1, config.report.headline_k)
    return [
        PaperTable(
            "table1",
            "Binary against continuous reward: pass@k of the base model and of GRPO",
            "The paper's Table 1: pass@k where GRPO is trained on the fraction of tests passed, and on all or nothing. "
            + MARKS,
            _per_dataset(config, [f"pass@{k}" for k in both]),
            (BASE, "grpo", "grpo_binary"),
        ),
        PaperTable(
            "table2",
            f"{headline} of all policies",
            "The paper's Table 2, the headline: the expected best reward among many samples, for every policy and "
            "dataset. " + MARKS,
            _per_dataset(config, [headline]),
        ),
        PaperTable(
            "table3",
            "max@1 of all policies",
            "The paper's Table 3: the expected reward of a single sample, which GRPO is trained for. Compare with "
            "Table 2: a gain here can be a loss there. " + MARKS,
            _per_dataset(config, ["max@1"]),
        ),
        PaperTable(
            "table4",
            f"max@1 and {headline} of GRPO, by epochs and PPO iterations",
            "The paper's Table 4: GRPO trained for more epochs, and with more PPO iterations per batch. Policies that "
            "only an experiment trains have a row once it has been run; a note says how. " + MARKS,
            _per_dataset(config, [f"max@{k}" for k in both]),
            (BASE, *_longer_training(config)),
        ),
        *_by_dataset(config),
    ]


def _by_dataset(config: Config) -> Iterator[PaperTable]:
    """pass@k and max@k of each dataset, with the numbers that its counterpart has in the paper."""
    for dataset, first in _numbers(config).items():
        for number, metric in enumerate(("pass", "max"), first):
            yield PaperTable(
                f"table{number}",
                f"{metric}@k on {dataset} for different values of k",
                f"One of the paper's Tables 5 to 14: {metric}@k on one dataset for every k reported. In LaTeX a "
                "cell is the darker the higher its value is within the column. " + MARKS,
                tuple(Column(dataset, q, q) for q in (f"{metric}@{k}" for k in config.report.ks)),
                shaded=True,
            )


def _numbers(config: Config) -> dict[str, int]:
    """By dataset, the number of the first of its two tables: those of the paper's dataset, else from 15 on."""
    taken = {role: 5 + 2 * place for place, role in enumerate(PAPER_DATASETS)}
    of_roles = {name: taken.pop(role) for name in config.evaluated if (role := config.datasets[name].paper) in taken}
    others = (name for name in config.evaluated if name not in of_roles)
    numbers = of_roles | {name: 15 + 2 * place for place, name in enumerate(others)}
    return dict(sorted(numbers.items(), key=lambda item: item[1]))


def _per_dataset(config: Config, quantities: Sequence[str]) -> tuple[Column, ...]:
    places = (*config.evaluated, MEAN)
    if len(quantities) == 1:
        return tuple(Column(place, quantities[0], place) for place in places)
    return tuple(Column(place, q, f"{place} {q}") for place in places for q in quantities)


def _longer_training(config: Config) -> Iterator[str]:
    """GRPO as in the main tables, and trained for more epochs or PPO iterations, at whatever learning rate."""
    varied = {"epochs", "iterations", "learning_rate"}
    for name, objective in config.every_objective.items():
        if objective.spec == {"type": "grpo"} and objective.training.keys() <= varied:
            yield name


def _of(module: str, function: str) -> Callable[..., Any]:
    """A function of a module of this package, which is imported when it is called."""
    return lambda *arguments: getattr(import_module(f"maxk.reporting.{module}"), function)(*arguments)


STATISTICS = DataTable(
    "statistics",
    "Every mean with its interval",
    "Every number of the tables and every point of the curves with its interval over problems, and over training seeds "
    "if there are several: one row per policy, dataset and quantity.",
    _of("estimates", "means"),
)


PAIRED_TESTS = DataTable(
    "paired_tests",
    "Differences between policies with intervals and tests",
    "Differences between policies on the same problems: best against second, off-policy BoN against the paper's best "
    "baseline, and every policy against the base model and against GRPO. Each has an interval and a test of the "
    "difference shown (p_mean; Holm-corrected over the policies compared with the same reference). With several "
    "training seeds it is about methods, with one about these trained policies. Wilcoxon's signed-rank test on means "
    "over seeds is the paper's (Holm-corrected over datasets). Further: on how many problems either is better, and the "
    "rank-biserial correlation.",
    _of("estimates", "differences"),
)


COMPARISON = DataTable(
    "comparison",
    "Our numbers beside the paper's",
    "Our numbers beside the published ones, wherever policy and dataset have a counterpart in the paper. Values are "
    "compared only where tasks and base model are the paper's; elsewhere only directions are: does a policy differ "
    "from the base model, or from GRPO, with the sign that it has in the paper?",
    _of("comparison", "compare"),
    _of("comparison", "to_markdown"),
)


DIVERSITY = DataTable(
    "diversity",
    "What training did to the spread of answers",
    "Problems solved by any sample, and those lost and gained by training; max@k by how often the base model solves a "
    "problem; distinct programs and distinct outputs among k samples; from which k a policy is above GRPO, with its "
    "interval; and the reward when one test chooses.",
    _of("diversity", "table"),
    _of("diversity", "to_markdown"),
)


def table(config: Config, name: str) -> Table:
    """A table by its name. Raises UserError if the experiment has no such table."""
    return lookup(tables(config), name, "table")
