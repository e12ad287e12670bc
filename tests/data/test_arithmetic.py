"""Arithmetic problems: the verifier accepts the right number only; closeness is the fraction of tolerances."""

from __future__ import annotations

import functools
import itertools
import math
from pathlib import Path

import pytest

from maxk import config as configuration
from maxk.artifacts.records import Problem
from maxk.data import arithmetic, drawing
from maxk.data.arithmetic import OPERATIONS, ArithmeticCorpus, ArithmeticDataset, Calculation
from maxk.errors import UserError
from maxk.grading import CheckerProgram, Grader, Submission

# What x = 40 becomes with the number 10, by hand.
RIGHT = {
    "plus": 50.0,
    "minus": 30.0,
    "times": 400.0,
    "share": 4.0,
    "distance to": 30.0,
    "mean with": 25.0,
    "percent of": 4.0,
    "raise by percent": 44.0,
    "lower by percent": 36.0,
    "undo a rise of percent": 36.3636363636,
    "raise twice by percent": 48.4,
    "mean speed with": 16.0,
    "geometric mean with": 20.0,
}


def dataset(**changes: object) -> ArithmeticDataset:
    return ArithmeticDataset.model_validate({"source": "arithmetic", "train": 40, "test": 12} | changes)


@functools.cache
def made(*tolerances: float) -> list[Problem]:
    return dataset(tolerances=tolerances).generate("d")[0]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.phrase)
def test_an_operation_does_what_its_words_say(operation: arithmetic.Operation) -> None:
    assert arithmetic.calculate([operation.right], [40, 10]) == pytest.approx(RIGHT[operation.phrase])
    for mistake in operation.mistakes:
        assert arithmetic.calculate([mistake], [41, 10]) != pytest.approx(
            arithmetic.calculate([operation.right], [41, 10])
        )


def test_what_is_no_real_number_has_no_answer() -> None:
    assert math.isnan(arithmetic.calculate(["x - {n}", "(x * {n}) ** 0.5"], [2, 9, 3]))
    assert math.isnan(arithmetic.calculate(["x - {n}", "{n} / x"], [2, 2, 3]))


def test_answers_that_a_mistake_gives_too_are_left_out() -> None:
    plus, minus, times = OPERATIONS[:3]
    assert Calculation((plus, minus), (40, 3, 5)).telling
    assert not Calculation((plus, times), (2, 2, 5)).telling  # 2 + 2 = 2 · 2
    assert not Calculation((minus, plus), (2, 9, 3)).telling  # negative


def graded(programs: list[tuple[str, Problem]]) -> list[float | None]:
    """No sandbox: these are the module's own programs."""
    submissions = [
        Submission(text, p.tests, checker=None if p.checker is None else CheckerProgram(p.checker))
        for text, p in programs
    ]
    with Grader(workers=1, sandbox="off") as grader:
        return [verdict.reward for verdict in grader.grade(submissions)]


def test_the_verifier_accepts_the_reference_and_no_mistake() -> None:
    drawn = itertools.islice(arithmetic.draw_calculations(0), 200)
    calculations = {(one.statement, one.stdin): one for one in drawn}
    problems = made()[:20]
    wrong = [
        (arithmetic.program(values), p)
        for p in problems
        for values in calculations[p.statement, p.tests[0].stdin].with_a_mistake()
    ]
    assert len(wrong) == 20 * 3 * 2
    rewards = graded([*((str(p.reference), p) for p in problems), *wrong])
    assert rewards[:20] == [1.0] * 20
    assert set(rewards[20:]) == {0.0}


def test_closeness_is_the_fraction_of_tolerances_that_the_number_is_within() -> None:
    problem = made(0.3, 0.1, 0.03)[0]
    answer = float(problem.tests[0].expected.split()[0])
    assert [float(test.expected.split()[1]) for test in problem.tests] == [0.3, 0.1, 0.03, arithmetic.EXACT]
    printed = [answer * factor for factor in (1 + 1e-9, 0.98, 1.08, 0.75, 1.4, -1)]
    rewards = graded([(f"print({number!r})", problem) for number in printed])
    assert rewards == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    others = ["print('nan')", "print('one')", "pass", f"print({answer!r}, {answer!r})", f"print({answer!r} * 1j)"]
    assert graded([(text, problem) for text in others]) == [0.0] * 5


def test_tolerances_change_the_tests_and_no_problem() -> None:
    assert [(p.problem_id, p.statement, p.reference) for p in made()] == [
        (p.problem_id, p.statement, p.reference) for p in made(0.1)
    ]


def test_no_statement_of_a_test_problem_is_trained_on() -> None:
    problems, funnel = configuration.experiment("config/arithmetic.yaml").datasets["arithmetic"].generate("arithmetic")
    train, test = ({p.statement for p in problems if p.split == split} for split in ("train", "test"))
    assert (len(train), len(test)) == (960, 60)
    assert not train & test
    counts = list(funnel.values())
    assert counts[:-2] == sorted(counts[:-2], reverse=True)
    assert counts[-3] == sum(counts[-2:]) == len(problems)


def test_the_page_shows_the_first_problem(root: Path) -> None:
    first, *_ = configuration.experiment("config/arithmetic.yaml").datasets["arithmetic"].generate("arithmetic")[0]
    shown = [first.statement, first.tests[0].stdin.strip(), str(first.reference), first.tests[0].expected.strip()]
    assert "\n\n".join(shown) in (root / "docs" / "results-arithmetic.md").read_text(encoding="utf-8")


def test_asking_for_more_than_there_is_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "PATIENCE", 500)
    with pytest.raises(UserError, match=r"datasets\.tiny: train=0 and test=2000 requested, but only 0 and \d+ found"):
        dataset(train=0, test=2000).generate("tiny")


def test_the_corpus_makes_mistakes_as_often_as_its_operations_say() -> None:
    corpus = ArithmeticCorpus(family="arithmetic", size=6000, steps=(1,), slip=0)
    assert corpus.pairs(0) == corpus.pairs(0) != corpus.pairs(1)
    right = {one.phrase: arithmetic.program([one.right]) for one in OPERATIONS}
    mistaken = {one.phrase: one.mistaken for one in OPERATIONS}
    for phrase in right:
        programs = [text for words, text in corpus.pairs(0) if words == phrase]
        assert sum(text != right[phrase] for text in programs) / len(programs) == pytest.approx(
            mistaken[phrase], abs=0.1
        )


def test_a_model_of_another_corpus_is_refused(defaults: dict) -> None:
    datasets = {**defaults["datasets"], "sums": {"source": "arithmetic", "test": 3}}
    with pytest.raises(UserError, match=r"base\.corpus: a model of the pocket corpus cannot read these datasets: sums"):
        configuration.parse(configuration.overlay(defaults, {"datasets": datasets}))
    base = {**defaults["base"], "corpus": {"family": "arithmetic", "misread": 1}}
    with pytest.raises(UserError, match=r"base\.corpus\.misread: unknown key"):
        configuration.parse(configuration.overlay(defaults, {"base": base}))


@pytest.mark.parametrize("named", ["arithmetics", "pocket", None, ["arithmetic"]])
def test_an_unknown_family_is_named_with_those_that_there_are(defaults: dict, named: object) -> None:
    base = {**defaults["base"], "corpus": {"family": named}}
    with pytest.raises(UserError) as error:
        configuration.parse(configuration.overlay(defaults, {"base": base}))
    assert str(error.value).startswith(f"config: base.corpus: family={named!r} is unknown")
    assert str(error.value).endswith("; known: arithmetic; leave it out for the pocket tasks")
    assert ("did you mean 'arithmetic'?" in str(error.value)) == (named not in ("pocket", None))
