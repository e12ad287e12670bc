"""Pocket tasks: the grammar means what it says, families are repeatable, and train never meets test."""

from __future__ import annotations

import functools
import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from maxk import config as configuration
from maxk.artifacts.records import Problem
from maxk.data import drawing
from maxk.data.pocket import Corpus, grammar, tasks
from maxk.data.pocket.grammar import REDUCERS, TRANSFORMS, Step
from maxk.data.pocket.tasks import PocketDataset
from maxk.errors import UserError
from maxk.grading import Grader

ROOT = Path(__file__).parents[2]
OPERATIONS = TRANSFORMS | REDUCERS


def family(**changes: object) -> PocketDataset:
    parameters = {
        "source": "pocket",
        "transforms": [2],
        "open_operations": [1, 2],
        "rare": 0.1,
        "readings": [0.55, 0.27, 0.18],
        "train": 60,
        "test": 12,
    }
    return PocketDataset.model_validate(parameters | changes)


def shipped() -> dict[str, PocketDataset]:
    """The families of the default configuration."""
    datasets = configuration.experiment(None).datasets
    return {name: dataset for name, dataset in datasets.items() if isinstance(dataset, PocketDataset)}


@functools.cache
def made(name: str) -> tuple[list[Problem], dict[str, int]]:
    """The problems of a shipped family, and its funnel."""
    return shipped()[name].generate(name)


def pairs(problems: list[Problem], split: str) -> list[tuple[str, str]]:
    """(statement, hidden reading); the reference program spells the reading out."""
    return [(p.statement, str(p.reference)) for p in problems if p.split == split]


def run_python(program: str, stdin: str) -> str:
    command = [sys.executable, "-I", "-c", program]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True, timeout=600).stdout


# --------------------------------------------------------------------------------------------------- grammar
def test_grammar_has_13_transforms_and_8_reducers_with_distinct_words() -> None:
    assert (len(TRANSFORMS), len(REDUCERS)) == (13, 8)
    words = [word for operation in OPERATIONS.values() for word in (operation.phrase, operation.rare_phrase)]
    assert len(set(words)) == len(words)
    for operation in OPERATIONS.values():
        assert len({reading.qualifier for reading in operation.readings}) == 3
        assert len({reading.code for reading in operation.readings} | set(operation.bugs)) == 5


# What each reading does to 4 -1 3 4 2 0 (k = 2), worked out by hand and not with the grammar.
MEANINGS = {
    "sort": ("-1 0 2 3 4 4", "4 4 3 2 0 -1", "0 -1 2 3 4 4"),
    "reverse": ("0 2 4 3 -1 4", "-4 1 -3 -4 -2 0", "-1 3 4 2 0 4"),
    "unique": ("4 -1 3 2 0", "-1 3 2 0", "4 4"),
    "double": ("8 -2 6 8 4 0", "4 -1 3 4 2 0 4 -1 3 4 2 0", "16 1 9 16 4 0"),
    "halve": ("2 -1 1 2 1 0", "4 -1 3", "4 3 2"),
    "large": ("", "4 3 4", "4 3 4 2"),
    "even": ("4 4 2 0", "-1 4 0", "4 3 2"),
    "diff": ("-5 4 1 -2 -2", "5 4 1 2 2", "5 -4 -1 2 2"),
    "running": ("4 3 6 10 12 12", "4 4 4 4 4 4", "4 -1 -1 -1 -1 -1"),
    "shift": ("6 1 5 6 4 2", "3 4 2 0 4 -1", "2 0 4 -1 3 4"),
    "drop": ("3 4 2 0", "4 -1 3 4", "4 -1 3 4 0"),
    "limit": ("2 -1 2 2 2 0", "-1 2 0", "4 -1"),
    "mod": ("0 1 1 0 0 0", "4 4 2 0", "4 3 2"),
    "total": ("12", "14", "8"),
    "largest": ("4", "4", "0"),
    "smallest": ("-1", "0", "1"),
    "count": ("6", "5", "4"),
    "spread": ("5", "-4", "13"),
    "middle": ("3", "4", "2"),
    "show": ("4 -1 3 4 2 0", "4 -1 3", "-1 0 2 3 4 4"),
    "ends": ("4 0", "-1 4", "4"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_reading_does_what_its_qualifier_says(name: str) -> None:
    show = Step(OPERATIONS["show"], k=2, reading=0, open=True)
    for reading, expected in enumerate(MEANINGS[name]):
        step = Step(OPERATIONS[name], k=2, reading=reading, open=False)
        steps = [step, show] if name in TRANSFORMS else [step]
        assert grammar.output(steps, "4 -1 3 4 2 0\n") == expected + "\n"


def test_statement_names_the_reading_unless_it_is_open() -> None:
    step = Step(OPERATIONS["shift"], k=3, reading=1, open=False)
    assert step.phrase() == "shift 3 left"
    assert step.phrase(rare=True) == "move 3 left"
    assert Step(OPERATIONS["shift"], k=3, reading=1, open=True).phrase() == "shift 3"
    assert step.code == "a = a[3:] + a[:3]"


def test_output_is_what_python_prints_and_none_where_it_raises() -> None:
    """The in-process evaluation of our own lines agrees with a fresh interpreter."""
    rng = random.Random(0)
    for _ in range(12):
        operations = grammar.draw_operations(rng, rng.choice((1, 2, 3)))
        steps = [grammar.draw_step(rng, operation, True, (1, 1, 1)) for operation in operations]
        stdin = tasks.draw_input(rng)
        expected = grammar.output(steps, stdin)
        if expected is not None:
            assert run_python(grammar.program(steps), stdin) == expected
    largest = [Step(OPERATIONS["large"], 2, 0, True), Step(OPERATIONS["largest"], 2, 0, True)]
    assert grammar.output(largest, "1 2 3\n") is None


# --------------------------------------------------------------------------------------------------- families
def test_family_is_the_same_in_every_process() -> None:
    """Neither hash randomisation nor the dataset's name decides what is drawn."""
    here = family(train=5, test=3).generate("one")[0]
    script = (
        "from maxk.data.pocket import PocketDataset;"
        f"config = PocketDataset.model_validate({family(train=5, test=3).model_dump()!r});"
        "print([(p.statement, p.tests, p.reference) for p in config.generate('two')[0]])"
    )
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", script]
        there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert there.strip() == str([(p.statement, p.tests, p.reference) for p in here])


def test_seed_decides_the_tasks_and_sizes_do_not() -> None:
    test = pairs(family().generate("a")[0], "test")
    assert pairs(family(train=20).generate("a")[0], "test") == test
    assert pairs(family(test=5).generate("a")[0], "test") == test[:5]
    assert pairs(family(seed=1).generate("a")[0], "test") != test


def test_problems_carry_ids_splits_and_references() -> None:
    problems, _ = family().generate("pocket-x")
    assert [p.problem_id for p in problems[:2]] == ["pocket-x/train/0000", "pocket-x/train/0001"]
    assert problems[-1].problem_id == "pocket-x/test/0011"
    assert Counter(p.split for p in problems) == {"train": 60, "test": 12}
    assert all(len(p.tests) == 8 and p.dataset == "pocket-x" and p.reference for p in problems)


def test_no_pair_of_a_test_problem_is_trained_on_in_any_shipped_family() -> None:
    """By construction: a pair is on the same side in every family, so it cannot be in both splits."""
    problems = [p for name in shipped() for p in made(name)[0]]
    train, test = pairs(problems, "train"), pairs(problems, "test")
    assert len(train) == 960
    assert len(test) == 120
    assert not set(train) & set(test)
    assert len(set(train)) == len(train)


def test_small_family_stays_disjoint_until_it_is_exhausted() -> None:
    """With one transform and nothing open the same pairs are drawn again and again, on both sides."""
    config = family(transforms=[1], open_operations=[1], rare=0, train=300, test=60)
    problems, funnel = config.generate("small")
    assert funnel["not_duplicate"] < funnel["split_not_full"]
    assert not set(pairs(problems, "train")) & set(pairs(problems, "test"))
    assert len(set(pairs(problems, "train"))) == 300


def test_asking_for_more_than_there_is_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "PATIENCE", 500)
    with pytest.raises(UserError, match=r"datasets\.tiny: train=0 and test=100000 requested, but only 0 and \d+ found"):
        family(transforms=[1], open_operations=[0], rare=0, train=0, test=100_000).generate("tiny")
    with pytest.raises(UserError, match="transforms=14, but the grammar has 13"):
        family(transforms=[14]).generate("tiny")


@pytest.mark.parametrize("name", shipped())
def test_funnel_falls_from_filter_to_filter_to_what_is_kept(name: str) -> None:
    config, (problems, funnel) = shipped()[name], made(name)
    counts = list(funnel.values())
    filters, (train, test) = counts[:-2], counts[-2:]
    assert next(iter(funnel)) == "drawn"
    assert filters == sorted(filters, reverse=True)
    assert filters[-1] == train + test == len(problems)
    assert (train, test) == (config.train, config.test)


def drawn(count: int, **changes: object) -> list[tuple[tasks.Task, list[tasks.Test]]]:
    """Tasks before the filters that look at tests, with their tests."""
    config = family(**changes)
    stream = itertools.islice(tasks.draw_tasks(config), count)
    return [(task, tasks.draw_tests(task, config.tests, config.seed)) for task in stream]


def test_hidden_tests_decide_every_open_operation() -> None:
    """Of a kept task, each other reading of each open operation fails at least one test."""
    kept = [(task, tests) for task, tests in drawn(80) if tests and not tasks.ambiguous(task, tests)]
    assert kept
    for task, tests in kept:
        n_open = sum(step.open for step in task.steps)
        alternatives = list(task.alternatives())
        assert len(alternatives) == 2 * n_open
        for steps in alternatives:
            assert grammar.program(steps) != task.reference
            assert any(grammar.output(steps, test.stdin) != test.expected for test in tests)


def test_grader_passes_references_and_fails_alternatives() -> None:
    """The product's grader agrees with the generator. No sandbox: these are the grammar's own programs."""
    problems = [p for name in shipped() for p in made(name)[0] if p.split == "test"]
    kept = [(task, tests) for task, tests in drawn(60) if len(tests) == 8 and not tasks.ambiguous(task, tests)]
    others = [(grammar.program(steps), tests) for task, tests in kept for steps in task.alternatives()]
    with Grader(workers=1, sandbox="off") as grader:
        verdicts = grader.grade([(str(p.reference), p.tests) for p in problems] + others)
    rewards = [verdict.reward for verdict in verdicts]
    assert rewards[: len(problems)] == [1.0] * 120
    assert max(rewards[len(problems) :]) < 1


def test_ambiguous_and_guessable_tasks_exist_and_are_recognised() -> None:
    show, total = OPERATIONS["show"], OPERATIONS["total"]
    plain = tasks.Task("total", "", (Step(total, 2, 0, open=True),))
    positive = [tasks.Test("1 2 3\n", "6\n")]  # sum of values = of absolute values = of distinct values
    assert tasks.ambiguous(plain, positive)
    assert not tasks.ambiguous(plain, [*positive, tasks.Test("-1 2 2\n", "3\n")])
    settled = tasks.Task("total plain, show", "", (Step(total, 2, 0, open=False), Step(show, 2, 0, open=False)))
    assert not tasks.ambiguous(settled, positive)
    outputs = [tasks.Test(str(i), expected) for i, expected in enumerate("00001234")]
    assert not tasks.guessable(outputs)  # 5 of 8 differ
    assert tasks.guessable([*outputs[:7], outputs[0]])  # 4 of 8


def test_open_readings_follow_the_popularity() -> None:
    counts = Counter(step.reading for task, _ in drawn(1500, tests=1) for step in task.steps if step.open)
    fractions = [counts[reading] / counts.total() for reading in range(3)]
    assert fractions == pytest.approx([0.55, 0.27, 0.18], abs=0.04)


# --------------------------------------------------------------------------------------------------- corpus
def test_corpus_is_repeatable_and_seeded() -> None:
    config = Corpus(size=50)
    assert config.pairs(0) == config.pairs(0)
    assert config.pairs(0) != config.pairs(1)
    assert len(config.pairs(0)) == 50


def test_corpus_without_slips_holds_only_lines_of_readings() -> None:
    """With no bugs and no misreadings, and one reading of open operations, programs are references."""
    clean = Corpus(size=300, readings=(1, 0, 0), bug=0, input_bug=0, misread=0)
    known = {reading.code.format(k=k) for o in OPERATIONS.values() for reading in o.readings for k in (2, 3, 4)}
    for statement, program in clean.pairs(0):
        read, *lines = program.split("\n")
        assert read in grammar.READ_INPUT
        assert len(lines) == len(statement.split(", "))
        assert set(lines) <= known


def test_corpus_slips_as_often_as_it_is_told_to() -> None:
    bugs = {bug.format(k=k) for o in OPERATIONS.values() for bug in o.bugs for k in (2, 3, 4)}
    for _, program in Corpus(size=100, bug=1).pairs(0):
        assert set(program.split("\n")[1:]) <= bugs
    first_lines = [program.split("\n")[0] for _, program in Corpus(size=4000).pairs(0)]
    fraction = sum(line in grammar.READ_INPUT_BUGS for line in first_lines) / 4000
    assert fraction == pytest.approx(0.08, abs=0.015)
