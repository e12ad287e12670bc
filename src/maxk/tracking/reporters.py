"""Trackers beside MLflow (`tracking.report_to`): a training job reports to them itself, through TRL's callbacks."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from maxk.config import Config
from maxk.errors import UserError, install


def prepare(config: Config) -> None:
    """Names W&B's project and folder, unless the environment does. Raises UserError for a tracker that cannot start.

    To be called first: W&B reads its environment once, and TRL would raise only after loading the model.
    """
    os.environ.setdefault("WANDB_PROJECT", _project(config))
    os.environ.setdefault("WANDB_DIR", config.layout.root)
    for name in config.tracking.report_to:
        if found := fault(name):
            raise UserError(f"tracking.report_to: {found[0]}; {found[1]}, or leave {name} out")


def fault(name: str) -> tuple[str, str] | None:
    """Why training cannot report to a tracker, and the fix; None if it can. Asks no server."""
    if find_spec(name) is None:
        return f"{name} is not installed", install("track")
    if name == "wandb" and not _wandb_can_log():
        return "wandb has no credentials", "set WANDB_API_KEY, run `wandb login`, or set WANDB_MODE=offline"
    if name == "trackio" and not _trackio_can_log():
        return (
            "trackio has no token for TRACKIO_SPACE_ID",
            "set HF_TOKEN, run `hf auth login`, or unset TRACKIO_SPACE_ID",
        )
    return None


def _wandb_can_log() -> bool:
    import wandb

    return wandb.setup().settings.mode not in ("online", "run", "shared") or wandb.login(prompt=False, verify=False)


def _trackio_can_log() -> bool:
    from huggingface_hub import get_token

    return not os.environ.get("TRACKIO_SPACE_ID") or get_token() is not None


def arguments(config: Config, policy: str) -> dict[str, Any]:
    """TRL's arguments: one run per policy, in the project `maxk-NAME`."""
    return {"report_to": list(config.tracking.report_to), "project": _project(config), "run_name": policy}


def _project(config: Config) -> str:
    return f"maxk-{config.name}"
