"""Rules: which of their two answers the numbers give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from maxk.config import Experiment, Report, Rule
from maxk.reporting import rules

LABELS = {"a": "A", "b": "B", "c": "C"}


def experiment(*changes: Mapping[str, Any]) -> Experiment:
    each = tuple(Rule.model_validate({"then": "Yes", "otherwise": "No", **one}) for one in changes)
    section = {"question": "?", "policies": ["a", "b", "c"], "reference": "c"}
    return Experiment.model_validate({**section, "rules": each})


def decide(found: Mapping[str, tuple[float, float]], *changes: Mapping[str, Any]) -> list[rules.Decision]:
    """`found`: difference and p-value by policy."""

    def compare(policy: str, reference: str, quantity: str) -> Mapping[str, Any]:
        if policy not in found:
            return {}
        value, p = found[policy]
        return {"difference": value, "low": value - 1, "high": value + 1, "p_mean": p}

    return rules.decide(experiment(*changes), Report(), compare)


@pytest.mark.parametrize(
    ("value", "p", "shown", "answer"),
    [
        (0.1, 0.01, "above", "Yes"),
        (0.1, 0.06, "above", "No"),
        (-0.1, 0.01, "above", "No"),
        (-0.1, 0.01, "below", "Yes"),
        (0.1, 0.01, "below", "No"),
        (-0.1, 0.01, "different", "Yes"),
        (0.1, 0.01, "different", "Yes"),
        (0.1, 0.06, "different", "No"),
    ],
)
def test_sign_and_significance_decide(value: float, p: float, shown: str, answer: str) -> None:
    [one] = decide({"a": (value, p)}, {"policy": "a", "shown": shown})
    assert one.answer == answer


def test_p_values_are_corrected_over_the_rules_of_the_experiment() -> None:
    found = {"a": (0.1, 0.03), "b": (0.1, 0.04)}
    assert [one.answer for one in decide(found, {"policy": "a"})] == ["Yes"]
    both = decide(found, {"policy": "a"}, {"policy": "b"})
    assert [one.p_holm for one in both] == pytest.approx([0.06, 0.06])
    assert [one.answer for one in both] == ["No", "No"]


def test_rules_without_scores_decide_nothing_but_count_in_the_correction() -> None:
    """Else a difference could be shown as long as the other policies are not evaluated."""
    missing, present = decide({"b": (0.1, 0.04)}, {"policy": "a"}, {"policy": "b"})
    assert (missing.shown, missing.answer) == (False, "Not decided: scores are missing")
    assert (present.p_holm, present.answer) == (pytest.approx(0.08), "No")
    assert "at max@128: no scores." in "\n".join(rules.to_markdown([missing], LABELS))


def test_what_is_compared_and_where() -> None:
    one, two = decide({"a": (0.1, 0.01)}, {"policy": "a"}, {"policy": "a", "reference": "b", "k": 1})
    assert (one.reference, one.quantity) == ("c", "max@128")
    assert (two.reference, two.quantity) == ("b", "max@1")
    text = "\n".join(rules.to_markdown([two], LABELS, where=" and equal KL"))
    assert text.startswith("- **Yes.** A − B at max@1 and equal KL: +0.100 \\[−0.900, +1.100], p = 0.02.")
