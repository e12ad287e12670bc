"""From candidates to problems: the filters that all benchmarks share, and the draw of the splits.

`complete` drops candidates that cannot be graded or would leak from train to test, counts what every filter leaves in
the funnel, and draws the splits. The draw sorts by the hash of (seed, problem id), so it does not depend on the order
of the rows, and dropping one problem does not move the others.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from maxk.artifacts import models
from maxk.artifacts.records import Problem
from maxk.data.candidates import Candidate, Funnel
from maxk.data.sections import Benchmark, TokenLimit
from maxk.errors import UserError, counted

MAX_TEST_BYTES = 64 * 2**20  # characters of a test's input and output together; a larger test is a damaged row
Validate = Callable[[Sequence[tuple[str, Problem]]], Sequence[Sequence[str]]]
"""Runs programs on the tests of their problems; returns the statuses of every program's tests, in order."""


def complete(
    config: Benchmark, candidates: Iterable[Candidate], funnel: Funnel, validate: Validate | None = None
) -> list[Problem]:
    """The problems of a benchmark, train first, in the order of the source.

    Without `validate`, checkers are not tried; `check_solutions` needs it.
    """
    name = funnel.dataset

    def keep(step: str, rows: Iterable[Candidate], accepts: Callable[[Candidate], bool]) -> list[Candidate]:
        return list(funnel.keep(step, rows, accepts, _id_of))

    rows: Iterable[Candidate] = (_capped(candidate, config.max_tests) for candidate in _started(candidates))
    rows = funnel.keep("with_statement", rows, lambda c: bool(c.problem.statement.strip()), _id_of)
    rows = funnel.keep("with_tests", rows, lambda c: bool(c.problem.tests), _id_of)
    rows = keep("tests_within_size", rows, lambda c: largest_test(c.problem) <= MAX_TEST_BYTES)
    if config.length is not None:
        fits = token_filter(name, config.length)
        rows = keep("within_tokens", rows, lambda c: fits(c.problem.statement))
    if config.distinct_outputs > 1:
        rows = keep("enough_distinct_outputs", rows, lambda c: _distinct_outputs(c.problem) >= config.distinct_outputs)
    first = _first_of_each_text(list(rows))
    rows = keep("not_duplicate", rows, lambda c: c is first[c.key])
    if validate is not None and any(candidate.problem.checker for candidate in rows):
        broken = _with_broken_checkers(rows, validate)
        rows = keep("sound_checker", rows, lambda c: _id_of(c) not in broken)
    if solutions := getattr(config, "check_solutions", 0):
        if validate is None:
            raise ValueError(f"datasets.{name}.check_solutions needs `validate`")
        rows = _checked(rows, solutions, validate, funnel)
    return draw(config, list(rows), funnel)


def _started(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """The same candidates, after the first one was made: then the source's steps are in the funnel before ours."""
    iterator = iter(candidates)
    return itertools.chain(list(itertools.islice(iterator, 1)), iterator)


def _id_of(candidate: Candidate) -> str:
    return candidate.problem.problem_id


def _distinct_outputs(problem: Problem) -> int:
    return len({" ".join(test.expected.split()) for test in problem.tests})


def _capped(candidate: Candidate, max_tests: int | None) -> Candidate:
    tests = candidate.problem.tests
    if max_tests is None or len(tests) <= max_tests:
        return candidate
    official = min(len(tests) - candidate.generated, max_tests)
    problem = dataclasses.replace(candidate.problem, tests=tests[:max_tests])
    return dataclasses.replace(candidate, problem=problem, generated=max_tests - official)


def largest_test(problem: Problem) -> int:
    """Characters of the problem's largest test."""
    return max(len(test.stdin) + len(test.expected) for test in problem.tests)


def token_filter(name: str, limit: TokenLimit) -> Callable[[str], bool]:
    """Whether a statement is within the limit. Loads the tokenizer; raises UserError if that fails."""
    try:
        tokenizer = models.tokenizer(limit.tokenizer, limit.revision)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"datasets.{name}.length.tokenizer: {limit.tokenizer} cannot be loaded ({reason}); name a local folder"
        ) from error
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"]) <= limit.tokens


def _first_of_each_text(candidates: Sequence[Candidate]) -> dict[str, Candidate]:
    """By text, the candidate to keep: the first of the test split, else the first."""
    first: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda c: c.problem.split != "test"):
        first.setdefault(candidate.key, candidate)
    return first


# ------------------------------------------------------------------------------------------------ checks by grading
def _with_broken_checkers(candidates: Sequence[Candidate], validate: Validate) -> set[str]:
    """Ids of problems whose checker rejects an expected output, so that the grader could grade no program."""
    from maxk.grading.verdicts import HARNESS_ERROR

    tests = [(c.problem, test) for c in candidates if c.problem.checker for test in c.problem.tests]
    programs = [
        (f"import sys\nsys.stdout.write({test.expected!r})", dataclasses.replace(problem, tests=[test]))
        for problem, test in tests
    ]
    paired = zip(tests, validate(programs), strict=True)
    return {problem.problem_id for (problem, _), statuses in paired if HARNESS_ERROR in statuses}


def _checked(candidates: Sequence[Candidate], solutions: int, validate: Validate, funnel: Funnel) -> list[Candidate]:
    """Candidates without the tests that most of their reference solutions fail.

    Only the test is dropped if it is a generated one, whose input may be invalid. The problem is dropped if the test is
    official: the problem has several right answers, or needs more than the limits. Candidates without reference
    solutions are kept unchecked.
    """
    programs = [(program, c.problem) for c in candidates for program in c.solutions[:solutions]]
    statuses = iter(validate(programs))
    kept: list[Candidate | None] = [
        _confirmed(c, [next(statuses) for _ in c.solutions[:solutions]]) for c in candidates
    ]
    if generated := sum(candidate.generated for candidate in candidates):
        funnel["generated_tests"] = generated
        funnel["generated_tests_confirmed"] = sum(candidate.generated for candidate in kept if candidate is not None)
    paired = zip(kept, candidates, strict=True)
    confirmed = funnel.keep("confirmed_by_solutions", paired, lambda pair: pair[0] is not None, lambda p: _id_of(p[1]))
    return [candidate for candidate, _ in confirmed if candidate is not None]


def _confirmed(candidate: Candidate, statuses: Sequence[Sequence[str]]) -> Candidate | None:
    tests = candidate.problem.tests
    official = len(tests) - candidate.generated
    good = [_most_pass([one[i] for one in statuses]) for i in range(len(tests))]
    if not all(good[:official]) or not any(good):
        return None
    kept = [test for test, is_good in zip(tests, good, strict=True) if is_good]
    problem = dataclasses.replace(candidate.problem, tests=kept)
    return dataclasses.replace(candidate, problem=problem, generated=len(kept) - official)


def _most_pass(statuses: Sequence[str]) -> bool:
    """Whether at least half of the programs pass a test, not counting those that could not be graded."""
    from maxk.grading.verdicts import HARNESS_ERROR, PASSED

    graded = [status for status in statuses if status != HARNESS_ERROR]
    return 2 * graded.count(PASSED) >= len(graded)


# -------------------------------------------------------------------------------------------------------------- split
def draw(config: Benchmark, candidates: Sequence[Candidate], funnel: Funnel) -> list[Problem]:
    """The problems of both splits. Raises UserError if fewer are left than the configuration asks for."""
    order = sorted(candidates, key=lambda c: _rank(config.seed, _id_of(c)))
    taken: dict[str, str] = {}
    for split in ("test", "train"):
        wanted = getattr(config, split)
        pool = [_id_of(c) for c in order if c.problem.split in ("", split) and _id_of(c) not in taken]
        if wanted > len(pool) if wanted != "all" else not pool:
            raise UserError(_too_few(funnel, split, wanted, len(pool), len(order)))
        taken |= dict.fromkeys(pool if wanted == "all" else pool[:wanted], split)
    drawn = [dataclasses.replace(c.problem, split=taken[_id_of(c)]) for c in candidates if _id_of(c) in taken]
    funnel |= {split: sum(problem.split == split for problem in drawn) for split in ("train", "test")}
    return sorted(drawn, key=lambda problem: problem.split != "train")


def _too_few(funnel: Funnel, split: str, wanted: int | str, left: int, candidates: int) -> str:
    """The error for a split that cannot be filled, with the reason."""
    advice = "ask for fewer or set `all`"
    if not any(funnel.values()):
        advice = "the files hold no rows"
    elif not candidates:
        advice = "no row passes all filters"
    elif not left:
        advice = f"no row is left for {split}; give the other split a smaller number"
    counts = " → ".join(f"{step} {count}" for step, count in funnel.items())
    asked = wanted if wanted == "all" else counted(int(wanted), "problem")
    return f"datasets.{funnel.dataset}.{split}: asked for {asked}, found {left} ({counts}); {advice}"


def _rank(seed: int, problem_id: str) -> bytes:
    return hashlib.sha256(f"{seed}\x1f{problem_id}".encode()).digest()
