"""Trackers beside MLflow (`tracking.report_to`): a training job reports to them itself, through TRL's callbacks."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from maxk.config import Config
from maxk.errors import UserError


def require_installed(config: Config) -> None:
    """Raises UserError for a tracker whose package is missing; TRL would raise only after loading the model."""
    if missing := [name for name in config.tracking.report_to if find_spec(name) is None]:
        raise UserError(
            f"tracking.report_to={list(config.tracking.report_to)}: {', '.join(missing)} is not installed; "
            "pip install 'maxk[track]', or leave it out"
        )


def arguments(config: Config, policy: str) -> dict[str, Any]:
    """TRL's arguments: one run per policy, in the project `maxk-NAME`. W&B reads its project from the environment."""
    project = f"maxk-{config.name}"
    os.environ.setdefault("WANDB_PROJECT", project)
    return {"report_to": list(config.tracking.report_to), "project": project, "run_name": policy}
