"""From candidates to problems: the filters that all benchmarks share, each counted, and the split.

A source yields `Candidate`s; `complete` drops what cannot be used or would leak, and draws the splits. The funnel holds
the number of rows left after every filter, in order, and remembers what each one dropped. The draw follows the hash of
(seed, problem id): whether a problem is drawn does not depend on the order of rows, and a filter that drops one leaves
the order of all others.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from maxk.artifacts import models
from maxk.artifacts.records import Problem
from maxk.data.sections import Benchmark, TokenLimit
from maxk.errors import UserError

MAX_TEST_BYTES = 64 * 2**20  # input and output of one test together; beyond it is a damaged row
PASSED, UNGRADED = "passed", "harness_error"
# Runs programs against their problems' tests: statuses of every test, in order.
Judge = Callable[[Sequence[tuple[str, Problem]]], Sequence[Sequence[str]]]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Candidate:
    """A problem on its way through the filters.

    `split` of the problem is empty where the source has no splits. The last `generated` tests are not the benchmark's
    own, but made from them. `solutions` are programs that the source calls right. `text` is what tells duplicates,
    where it is not the statement.
    """

    problem: Problem
    generated: int = 0
    solutions: Sequence[str] = field(default=(), repr=False)
    text: str | None = None

    @property
    def key(self) -> str:
        """The same for statements that differ in case or white space only."""
        return " ".join((self.text or self.problem.statement).casefold().split())


class Funnel(dict[str, int]):
    """Rows left after every filter, in order; `dropped` names the rows that each one took out."""

    def __init__(self, dataset: str) -> None:
        super().__init__()
        self.dataset = dataset
        self.dropped: dict[str, list[str]] = {}

    def start(self, rows: Iterable[Item]) -> Iterator[Item]:
        """Counts the rows as they come."""
        return self.keep("rows", rows, lambda _: True, lambda _: "")

    def keep(
        self, step: str, rows: Iterable[Item], accepts: Callable[[Item], bool], identify: Callable[[Item], Any]
    ) -> Iterator[Item]:
        """The rows that a filter accepts. The step takes its place in the funnel at once, the count as rows pass."""
        self[step], self.dropped[step] = 0, []
        return self._kept(step, rows, accepts, identify)

    def _kept(
        self, step: str, rows: Iterable[Item], accepts: Callable[[Item], bool], identify: Callable[[Item], Any]
    ) -> Iterator[Item]:
        for row in rows:
            if accepts(row):
                self[step] += 1
                yield row
            else:
                self.dropped[step].append(str(identify(row)))


def complete(
    config: Benchmark, candidates: Iterable[Candidate], funnel: Funnel, judge: Judge | None = None
) -> list[Problem]:
    """The problems of a benchmark, train first, in the order of the source."""
    name = funnel.dataset

    def keep(step: str, rows: Iterable[Candidate], accepts: Callable[[Candidate], bool]) -> list[Candidate]:
        return list(funnel.keep(step, rows, accepts, _id_of))

    rows: Iterable[Candidate] = (_capped(candidate, config.max_tests) for candidate in candidates)
    if config.exclude:
        excluded = {f"{name}/{upstream}" for upstream in config.exclude}
        rows = funnel.keep("not_excluded", rows, lambda c: _id_of(c) not in excluded, _id_of)
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
    _refuse_repeated_ids(rows)
    if judge is not None and any(candidate.problem.checker for candidate in rows):
        broken = _with_broken_checkers(rows, judge)
        rows = keep("sound_checker", rows, lambda c: _id_of(c) not in broken)
    if solutions := getattr(config, "check_solutions", 0):
        if judge is None:
            raise ValueError(f"datasets.{name}.check_solutions needs a judge")
        rows = _checked(rows, solutions, judge, funnel)
    return draw(config, list(rows), funnel)


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
    """Whether a statement stays within the limit; loads the tokenizer. Raises UserError where it cannot be had."""
    try:
        tokenizer = models.tokenizer(limit.tokenizer, limit.revision)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"datasets.{name}.length.tokenizer: {limit.tokenizer} cannot be loaded ({reason}); name a local folder"
        ) from error
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"]) <= limit.tokens


def _first_of_each_text(candidates: Sequence[Candidate]) -> dict[str, Candidate]:
    """By text, the candidate that stays: one of the test split before all others, else the first."""
    first: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda c: c.problem.split != "test"):
        first.setdefault(candidate.key, candidate)
    return first


def _refuse_repeated_ids(candidates: Iterable[Candidate]) -> None:
    seen: set[str] = set()
    for candidate in candidates:
        if (problem_id := _id_of(candidate)) in seen:
            raise UserError(
                f"dataset {candidate.problem.dataset}, problem {problem_id}: the id occurs twice with different "
                "statements; ids must be unique"
            )
        seen.add(problem_id)


# ------------------------------------------------------------------------------------------------ checks by grading
def _with_broken_checkers(candidates: Sequence[Candidate], judge: Judge) -> set[str]:
    """Ids of problems whose checker does not accept an expected output: the grader could grade nothing there."""
    tests = [(c.problem, test) for c in candidates if c.problem.checker for test in c.problem.tests]
    programs = [
        (f"import sys\nsys.stdout.write({test.expected!r})", dataclasses.replace(problem, tests=[test]))
        for problem, test in tests
    ]
    paired = zip(tests, judge(programs), strict=True)
    return {problem.problem_id for (problem, _), statuses in paired if UNGRADED in statuses}


def _checked(candidates: Sequence[Candidate], solutions: int, judge: Judge, funnel: Funnel) -> list[Candidate]:
    """Candidates without the tests that most of their own right programs fail.

    A generated test that fails goes alone: its input may be invalid. Where an official one fails, the problem goes: it
    has several right answers, or asks for more than the limits give. Candidates without programs stay unchecked.
    """
    programs = [(program, c.problem) for c in candidates for program in c.solutions[:solutions]]
    statuses = iter(judge(programs))
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
    """Whether at least half of the programs pass a test; what could not be graded says nothing."""
    graded = [status for status in statuses if status != UNGRADED]
    return 2 * graded.count(PASSED) >= len(graded)


# -------------------------------------------------------------------------------------------------------------- split
def draw(config: Benchmark, candidates: Sequence[Candidate], funnel: Funnel) -> list[Problem]:
    """The problems of both splits. Raises UserError where there are fewer than asked for."""
    order = sorted(candidates, key=lambda c: _rank(config.seed, _id_of(c)))
    taken: dict[str, str] = {}
    for split in ("test", "train"):
        wanted = getattr(config, split)
        pool = [_id_of(c) for c in order if c.problem.split in ("", split) and _id_of(c) not in taken]
        if wanted > len(pool) if wanted != "all" else not pool:
            advice = "no row passes all filters" if wanted == "all" else "ask for fewer or set `all`"
            raise UserError(
                f"datasets.{funnel.dataset}.{split}: asked for {wanted} problems, but {len(pool)} are left "
                f"({' → '.join(f'{step} {count}' for step, count in funnel.items())}); "
                f"{advice if any(funnel.values()) else 'the files hold no rows'}"
            )
        taken |= dict.fromkeys(pool if wanted == "all" else pool[:wanted], split)
    drawn = [dataclasses.replace(c.problem, split=taken[_id_of(c)]) for c in candidates if _id_of(c) in taken]
    funnel |= {split: sum(problem.split == split for problem in drawn) for split in ("train", "test")}
    return sorted(drawn, key=lambda problem: problem.split != "train")


def _rank(seed: int, problem_id: str) -> bytes:
    return hashlib.sha256(f"{seed}\x1f{problem_id}".encode()).digest()
