"""Tables, statistics and figures from scores; `publish` is what the stages that make them do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from maxk import tracking
from maxk.config import Config

if TYPE_CHECKING:
    from maxk.reporting.load import Scores


def publish(config: Config, write: Callable[[Scores, Config], list[str]]) -> None:
    """Reads all scores, has `write` make files from them and stores these with the experiment's run."""
    from maxk.reporting.load import load

    tracking.report(config, write(load(config), config))
