"""What the policies of an experiment came to: scores, training logs, and a choice made on problems of its own.

An experiment (`experiments` in the config) names policies and trains further ones; its reports are made from the same
scores, with the same bootstrap, as the main tables.

With `choose: learning_rate`, policies that differ in nothing else are candidates. The rule was written before any
result was seen: the candidate with the highest max@headline_k on the first, third, … problem of every dataset (mean
over datasets and seeds) is chosen, and all numbers reported are those of the second, fourth, … problems.

Matched KL keeps "trained less" from being taken for "more diverse": policies are compared where each first reaches the
KL that all of them reach, by max@k of their training groups. These are scored before they are learned from, and in the
first epoch every problem is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxk.config import Config, Experiment
from maxk.reporting import estimates, training_log
from maxk.reporting.estimates import Replicates
from maxk.reporting.load import Scores, load
from maxk.reporting.specs import MEAN
from maxk.statistics import Floats

# Means over the last tenth of training, then means over all of it.
AT_THE_END = ("reward", "kl", "entropy")
THROUGHOUT = ("frac_reward_zero_std", "clip_fraction", "ess_fraction", "first_order_error")


@dataclass(frozen=True)
class Outcome:
    """What one policy came to. `log` holds its training metrics [seeds, generation batches] by key."""

    policy: str
    label: str
    series: str
    parameters: Mapping[str, Any]
    development: float | None  # max@headline_k on the half that the choice is made on
    chosen: bool | None
    log: Mapping[str, Floats]


@dataclass(frozen=True)
class Findings:
    """Everything that an experiment's files are made from."""

    config: Config  # restricted to the experiment's policies
    name: str
    experiment: Experiment
    scores: Scores
    replicates: Replicates
    outcomes: tuple[Outcome, ...]
    palette: tuple[str, ...]  # the policies of the main figures, whose colours are kept

    @property
    def headline(self) -> str:
        return f"max@{self.config.report.headline_k}"

    def difference(self, policy: str, quantity: str) -> tuple[float, Floats] | tuple[None, None]:
        """Mean over datasets of policy − reference, and its paired bootstrap replicates; None without scores."""
        pair = (policy, self.experiment.reference)
        means = [self.scores.mean(row, MEAN, quantity) for row in pair]
        if means[0] is None or means[1] is None or policy == self.experiment.reference:
            return None, None
        drawn = [self.replicates.of(row, MEAN, quantity) for row in pair]
        return means[0] - means[1], drawn[0] - drawn[1]


def collect(name: str, config: Config) -> Findings:
    """Reads scores and training logs of the experiment's policies, and makes the choice where it asks for one."""
    view, experiment = config.restricted_to(name), config.experiments[name]
    scores = load(view)
    development = scores.half(0) if experiment.choose else None
    scores = scores.half(1) if experiment.choose else scores
    headline = f"max@{config.report.headline_k}"
    before = {row: development.mean(row, MEAN, headline) if development else None for row in scores.rows}
    chosen = _chosen(before, _grouped(view, without=(experiment.choose,))) if experiment.choose else None
    series = _grouped(view, without=(experiment.choose, experiment.against))
    outcomes = tuple(
        Outcome(
            policy=row,
            label=scores.labels[row],
            series=series[row],
            parameters=_parameters(view, row),
            development=before[row],
            chosen=None if chosen is None else row in chosen,
            log=training_log.read(view, row, (*AT_THE_END, *THROUGHOUT, *_train_maxima(view, row))),
        )
        for row in view.objectives
    )
    replicates = estimates.resample(scores, view.report)
    return Findings(view, name, experiment, scores, replicates, outcomes, tuple(config.objectives))


def _parameters(config: Config, row: str) -> dict[str, Any]:
    """What experiments vary. GRPO's k is 1: it trains for the mean reward, which is max@1."""
    objective, training = config.objectives[row], config.training_of(row)
    k = 1 if objective.type.startswith("grpo") else training.num_generations
    return {
        "type": objective.type,
        "k": str(objective.objective.keys.get("k", k)),
        "iterations": training.iterations,
        "learning_rate": training.learning_rate,
        "temperature": training.temperature,
    }


def _grouped(config: Config, without: Sequence[str | None]) -> dict[str, str]:
    """By policy, a name shared by all policies that differ in the keys of `without` alone.

    It is the type's label with whatever else tells apart the policies of this type.
    """
    settings = {row: _settings(config, row, without) for row in config.objectives}
    names = {}
    for row, own in settings.items():
        label = config.objectives[row].kind.label
        alike = [settings[other] for other in settings if config.objectives[other].kind.label == label]
        telling = {key: value for key, value in own.items() if any(one.get(key) != value for one in alike)}
        names[row] = ", ".join([label, *(f"{key} {value}" for key, value in telling.items())])
    return names


def _settings(config: Config, row: str, without: Sequence[str | None]) -> dict[str, Any]:
    objective = config.objectives[row]
    own = {**objective.objective.keys, **objective.training}
    every = {**own, **_parameters(config, row)}
    return {key: value for key, value in every.items() if key not in without}


def _chosen(before: Mapping[str, float | None], candidates: Mapping[str, str]) -> set[str]:
    """The best of each group of candidates; a group with a candidate that has no scores chooses nothing."""
    groups: dict[str, list[str]] = {}
    for row, group in candidates.items():
        groups.setdefault(group, []).append(row)
    complete = [members for members in groups.values() if all(before[row] is not None for row in members)]
    return {max(members, key=lambda row: before[row] or 0.0) for members in complete}


def _train_maxima(config: Config, row: str) -> tuple[str, str]:
    return "train_max@1", f"train_max@{config.training_of(row).num_generations}"


# ------------------------------------------------------------------------------------------------- matched KL
def matched_kl(findings: Findings) -> float | None:
    """The largest KL that every policy with a training log reaches (of those chosen, where there is a choice)."""
    reached = [
        trajectory(outcome.log)[0][-1] for outcome in findings.outcomes if outcome.log and outcome.chosen is not False
    ]
    return float(min(reached)) if reached else None


def trajectory(log: Mapping[str, Floats]) -> tuple[Floats, dict[str, Floats]]:
    """KL over training and max@k of the training groups by key: smoothed means over seeds, [generation batches].

    The KL is made monotonic (its running maximum), so that every level is first reached once. Means are over a quarter
    of the run: groups are few, and best-of-n of a batch is noisy.
    """
    means = {key: training_log.smooth(values.mean(axis=0), share=1 / 4) for key, values in log.items()}
    return np.maximum.accumulate(means["kl"]), {key: means[key] for key in means if key.startswith("train_max@")}


def at_matched_kl(log: Mapping[str, Floats], target: float | None) -> dict[str, float | None]:
    """max@1 and max@n of the training groups where the policy first reaches the KL `target` (linear interpolation)."""
    found: dict[str, float | None] = {"matched_kl": target, "train_max@1_at_kl": None, "train_max@n_at_kl": None}
    if log and target is not None:
        kl, maxima = trajectory(log)
        if kl[-1] >= target:
            first, last = (float(np.interp(target, kl, curve)) for curve in maxima.values())
            found |= {"train_max@1_at_kl": first, "train_max@n_at_kl": last}
    return found
