"""The experiment's page in MLflow: its link and its views.

MLflow stores named views (filter, order, columns, charts) as tags of the experiment, in the page's own format; a link
can name one. There are two: *Scores* ranks the policies by max@headline_k and shows what that costs at max@1;
*Training* shows the curves against the epoch, since policies take different numbers of steps on the same data. Curves
are smoothed, and what was measured is faint behind them. The format is internal to the pinned version of MLflow;
another version ignores what it cannot read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxk.config import Config

NOTE_TAG = "mlflow.note.content"
CURVES = ("kl", "kl_old", "entropy", "frac_reward_zero_std", "completions/mean_length", "grad_norm")
FINALS = ("reward", "kl", "kl_old", "entropy")  # final/… values of the train stage
VIEWS = ("scores", "training")
_SMOOTH = 70  # of 100: the reward of one batch says little
_CARD = {"deleted": False, "isGenerated": True, "runsCountToCompare": 20}


def tags(config: Config) -> dict[str, str]:
    """Tags of the experiment: its kind and its views."""
    now = int(time.time() * 1000)
    views = {
        "scores": ("Scores: max@k of every policy", _scores(config)),
        "training": ("Training: curves of every policy", _training(config)),
    }
    return {
        # The page opens on runs and charts, not on traces of conversations.
        "mlflow.experimentKind": "custom_model_development",
        **{
            f"mlflow.sharedViewState.maxk-{view}": json.dumps(
                {"name": name, "createdAt": now, "state": json.dumps(state)}
            )
            for view, (name, state) in views.items()
        },
    }


def link(base: str, experiment_id: str, view: str) -> str:
    """The page of an experiment on the server at `base`, with the charts of one of `VIEWS`."""
    options = f"viewStateShareKey=maxk-{view}&workflowType=machine_learning&compareRunsMode=CHART"
    return f"{base.rstrip('/')}/#/experiments/{experiment_id}/runs?{options}"


def _scores(config: Config) -> dict[str, Any]:
    k = config.report.headline_k
    headline = f"max_at_{k}"
    columns = ["tags.`maxk.objective`", "tags.`maxk.seed`", "metrics.`max_at_1`", f"metrics.`{headline}`"]
    sections = {
        f"Best at max@{k}; cost at max@1": [  # MLflow cuts longer titles
            _bars(headline),
            _bars("max_at_1"),
            _scatter("max_at_1", headline),
            _lines("mean/max_at_k"),
        ],
        "max@k against k, by dataset": [_lines(f"{name}/max_at_k") for name in config.evaluated],
    }
    return {
        "searchFilter": "tags.`maxk.stage` = 'score'",
        "orderByKey": f"metrics.`{headline}`",
        "orderByAsc": False,
        "selectedColumns": [*columns, "tags.`maxk.sandbox`"],
        **_charts(sections),
    }


def _training(config: Config) -> dict[str, Any]:
    to_old = any(config.training_of(name).kl_reference == "old" for name in config.every_objective)
    finals, curves = ([key for key in keys if key != "kl_old" or to_old] for keys in (FINALS, CURVES))
    groups = sorted({config.training_of(name).num_generations for name in config.every_objective})
    curves = ["reward", *(f"train_max_at_{n}" for n in groups), *curves]
    columns = ["tags.`maxk.objective`", "tags.`maxk.seed`", *(f"metrics.`final/{key}`" for key in finals)]
    return {
        "searchFilter": "tags.`maxk.stage` = 'train'",
        "orderByKey": "tags.`maxk.objective`",
        "orderByAsc": True,
        "selectedColumns": columns,
        **_charts({"Training": [_lines(key, against="epoch", smooth=_SMOOTH) for key in curves]}),
    }


def _charts(sections: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Sections of charts, two to a row, so that their titles fit."""
    cards = [
        {**card, "uuid": f"maxk {title} {number}", "metricSectionId": f"maxk {title}", **_CARD}
        for title, section in sections.items()
        for number, card in enumerate(section)
    ]
    layout = {"display": True, "isReordered": True, "columns": 2, "cardHeight": 320}
    return {
        "compareRunCharts": cards,
        "compareRunSections": [{"uuid": f"maxk {title}", "name": title, **layout} for title in sections],
        "isAccordionReordered": True,  # otherwise MLflow puts its own sections first
        "runsHiddenMode": "FIRST_20_RUNS",
    }


def _bars(metric: str) -> dict[str, Any]:
    """One bar per run."""
    return {"type": "BAR", "metricKey": metric, "selectedMetricKeys": [metric]}


def _scatter(x: str, y: str) -> dict[str, Any]:
    """One dot per run."""
    return {"type": "SCATTER", **{axis: {"key": key, "type": "METRIC"} for axis, key in (("xaxis", x), ("yaxis", y))}}


def _lines(metric: str, against: str = "", smooth: int = 0) -> dict[str, Any]:
    """One line per run: against another metric, or against the step, here k, on a logarithmic axis and with its points.

    smooth: 0 to 100.
    """
    return {
        "type": "LINE",
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "xAxisKey": "metric" if against else "step",
        "selectedXAxisMetricKey": against,
        "xAxisScaleType": "linear" if against else "log",
        "scaleType": "linear",
        "lineSmoothness": smooth,
        "useGlobalXaxisKey": False,
        "useGlobalLineSmoothing": False,
        "displayPoints": not against,
        "range": {},
    }
