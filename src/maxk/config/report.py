"""`report` and `tracking`: tables, figures, statistics, MLflow."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from maxk.schema import Count, Section, Seed


class Report(Section):
    """Tables, figures and statistics."""

    ks: tuple[Count, ...] = Field(
        (1, 2, 4, 8, 16, 32, 64, 128, 256), description="Values of k for which max@k and pass@k are scored and drawn."
    )
    headline_k: Count = Field(128, description="k of tables 1, 2 and 4 (paper: 128).")
    confidence: float = Field(0.95, gt=0, lt=1, description="Level of intervals.")
    resamples: Count = Field(
        10_000, description="Number of random sign flips in the test that compares policies with one seed."
    )
    seed: Seed = 0

    @model_validator(mode="after")
    def _ks_ascend(self) -> Report:
        if list(self.ks) != sorted(set(self.ks)):
            raise ValueError(f"ks={list(self.ks)} must ascend without repeats")
        missing = [k for k in (1, self.headline_k) if k not in self.ks]
        if missing:
            raise ValueError(f"ks={list(self.ks)} lacks {missing}: tables 2 and 3 show max@headline_k and max@1")
        return self


class Tracking(Section):
    """MLflow, on the server named by MLFLOW_TRACKING_URI, else in a SQLite file under `results/`; other trackers."""

    enabled: bool = Field(True, description="`false` disables MLflow.")
    report_to: tuple[Literal["trackio", "wandb"], ...] = Field(
        (),
        description="Other trackers that training reports to, through TRL: `trackio`, `wandb` (docs/tracking.md).",
    )
