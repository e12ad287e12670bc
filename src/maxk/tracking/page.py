"""The experiment's page in MLflow: its link and its views.

MLflow stores named views (filter, order, columns, charts) as tags of the experiment, in the page's own format; a link
can name one. There are two: *Scores*, max@k against k of every policy, and *Training*, its curves. The format is
internal to the pinned version of MLflow; another version ignores what it cannot read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxk.config import Config

NOTE_TAG = "mlflow.note.content"
CURVES = ("reward", "kl", "entropy", "frac_reward_zero_std", "completions/mean_length", "grad_norm")
FINALS = ("reward", "kl", "entropy")  # final/… values of the train stage


def tags(config: Config) -> dict[str, str]:
    """Tags of the experiment: its kind and its views."""
    now = int(time.time() * 1000)
    views = {
        "maxk-scores": ("Scores: max@k of every policy", _scores(config)),
        "maxk-training": ("Training: curves of every policy", _training()),
    }
    return {
        # The page opens on runs and charts, not on traces of conversations.
        "mlflow.experimentKind": "custom_model_development",
        **{
            f"mlflow.sharedViewState.{key}": json.dumps({"name": name, "createdAt": now, "state": json.dumps(state)})
            for key, (name, state) in views.items()
        },
    }


def link(base: str, experiment_id: str) -> str:
    """The page of an experiment on the server at `base`, with the scores and their charts."""
    options = "viewStateShareKey=maxk-scores&workflowType=machine_learning&compareRunsMode=CHART"
    return f"{base.rstrip('/')}/#/experiments/{experiment_id}/runs?{options}"


def _scores(config: Config) -> dict[str, Any]:
    headline = f"max_at_{config.report.headline_k}"
    curves = [f"{place}/max_at_k" for place in ("mean", *config.evaluated)]
    columns = ["tags.`maxk.objective`", "tags.`maxk.seed`", "metrics.`max_at_1`", f"metrics.`{headline}`"]
    return {
        "searchFilter": "tags.`maxk.stage` = 'score'",
        "orderByKey": f"metrics.`{headline}`",
        "orderByAsc": False,
        "selectedColumns": [*columns, "tags.`maxk.sandbox`"],
        **_charts("max@k against k", curves, log=True),
    }


def _training() -> dict[str, Any]:
    columns = ["tags.`maxk.objective`", "tags.`maxk.seed`", *(f"metrics.`final/{key}`" for key in FINALS)]
    return {
        "searchFilter": "tags.`maxk.stage` = 'train'",
        "orderByKey": "tags.`maxk.objective`",
        "orderByAsc": True,
        "selectedColumns": columns,
        **_charts("Training", CURVES, log=False),
    }


def _charts(title: str, metrics: Sequence[str], log: bool) -> dict[str, Any]:
    """One section of line charts, one per metric, against the step."""
    section = f"maxk {title}"
    cards: list[dict[str, Any]] = [
        {
            "uuid": f"{section} {metric}",
            "type": "LINE",
            "runsCountToCompare": 20,
            "metricSectionId": section,
            "deleted": False,
            "isGenerated": True,
            "displayName": metric.removesuffix("/max_at_k"),
            "metricKey": metric,
            "selectedMetricKeys": [metric],
            "xAxisKey": "step",
            "xAxisScaleType": "log" if log else "linear",
            "scaleType": "linear",
            "lineSmoothness": 0,
            "useGlobalXaxisKey": False,
            "useGlobalLineSmoothing": True,
            "displayPoints": log,
            "range": {},
        }
        for metric in metrics
    ]
    return {
        "compareRunCharts": cards,
        "compareRunSections": [{"uuid": section, "name": title, "display": True, "isReordered": True}],
        "isAccordionReordered": True,  # otherwise MLflow puts its own sections first
        "runsHiddenMode": "FIRST_20_RUNS",
    }
