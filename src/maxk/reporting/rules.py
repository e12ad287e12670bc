"""Rules: decisions that an experiment's config fixed before the run, and the answers that the numbers give.

A rule names two policies and a k; the difference of their max@k is tested (`maxk.statistics.difference`), p-values are
Holm-corrected over the rules of the experiment, and the answer is one of the two texts that the rule holds. Nobody
chooses it after seeing the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maxk import statistics
from maxk.config import Experiment, Report, Rule
from maxk.reporting import markdown

# (policy, reference, "max@128") → a row with `difference`, `low`, `high` and `p_mean`; empty without scores.
Compare = Callable[[str, str, str], Mapping[str, Any]]


@dataclass(frozen=True)
class Decision:
    """A rule with its difference. `found` is empty, and nothing is decided, where scores are missing."""

    rule: Rule
    reference: str
    quantity: str
    found: Mapping[str, Any]
    p_holm: float
    level: float

    @property
    def shown(self) -> bool:
        """Whether the difference has the sign asked for and is significant."""
        if not self.found or not self.p_holm < 1 - self.level:
            return False
        sign = "above" if self.found["difference"] > 0 else "below"
        return self.rule.shown in (sign, "different")

    @property
    def answer(self) -> str:
        if not self.found:
            return "Not decided: scores are missing"
        return self.rule.then if self.shown else self.rule.otherwise


def decide(experiment: Experiment, report: Report, compare: Compare) -> list[Decision]:
    """Every rule with its decision, in the order of the config.

    A rule without scores counts in the correction, with p = 1, so its own p-value cannot raise those of others later.
    """
    asked = [(r, r.reference or experiment.reference, quantity(r, experiment, report)) for r in experiment.rules]
    found = [compare(rule.policy, reference, decider) for rule, reference, decider in asked]
    corrected = statistics.holm([one.get("p_mean", 1.0) for one in found]) if found else ()
    return [
        Decision(rule, reference, decider, one, float(p), report.confidence)
        for (rule, reference, decider), one, p in zip(asked, found, corrected, strict=True)
    ]


def quantity(rule: Rule, experiment: Experiment, report: Report) -> str:
    """What decides a rule, such as "max@128"."""
    return f"maj@{experiment.vote}" if rule.vote else f"max@{rule.k or report.headline_k}"


def to_markdown(decisions: Sequence[Decision], labels: Mapping[str, str], where: str = "") -> list[str]:
    """One list item per rule, the answer first; `where` says at what point policies are compared."""
    return [line for one in decisions for line in _item(one, labels, where)] + ([""] if decisions else [])


def _item(one: Decision, labels: Mapping[str, str], where: str) -> Iterable[str]:
    rule, pair = one.rule, f"{labels[one.rule.policy]} − {labels[one.reference]}"
    number = "no scores"
    if one.found:
        found, low, high = (one.found[key] for key in ("difference", "low", "high"))
        difference = markdown.with_ends(found, low, high, "+.3f")
        number = f"{difference}, p = {markdown.p_value(one.p_holm)}"
    yield f"- **{markdown.escape(one.answer)}.** {markdown.escape(f'{pair} at {one.quantity}{where}: {number}.')}"
    asked = "different from" if rule.shown == "different" else rule.shown
    yield f"  {markdown.escape(f'Rule: shown {asked} zero: “{rule.then}”; otherwise: “{rule.otherwise}”.')}"
