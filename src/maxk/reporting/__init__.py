"""Tables, statistics and figures from scores; `publish` is what every stage that makes them does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from maxk import tracking
from maxk.config import Config

if TYPE_CHECKING:
    from maxk.reporting.load import Scores


def publish(config: Config, write: Callable[[Scores, Config], list[str]]) -> None:
    """Reads all scores, has `write` make files from them and stores these with the experiment's run.

    Table 2, the headline, is also what the run's page shows first.
    """
    from maxk.reporting.load import load

    paths = write(load(config), config)
    headline = config.layout.table("table2", "md")
    tracking.report(config, paths, note=Path(headline).read_text(encoding="utf-8") if headline in paths else "")
