"""Converts what callers pass to `Grader.grade` to `Submission`; errors name the position and what was found there.

A submission is a `Submission` or a pair (program, tests). A test is a pair (stdin, expected) or a mapping with exactly
these two keys, as in the JSON lines that `maxk grade` reads. Any other shape raises TypeError or ValueError: a misread
test would grade a right program as `wrong_answer`, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from maxk.errors import described
from maxk.grading.comparison import RULES
from maxk.grading.verdicts import CheckerProgram, Limits, Submission, Test

_REMEMBERED = 256  # lists of tests


class Inputs:
    """Reads submissions one by one. Equal tests of many submissions become one list, which is hashed once."""

    def __init__(self) -> None:
        self._known: dict[int, list[Test]] = {}

    def submission(self, given: Any, index: int) -> Submission:
        """`given`, the submission at `index`, with its tests as a list of pairs that the caller cannot change."""
        where = f"submission {index}"
        if not isinstance(given, Submission):
            if not isinstance(given, tuple | list) or len(given) != 2:
                raise TypeError(f"{where}: expected a Submission or a pair (program, tests), got {described(given)}")
            given = Submission(*given)
        if not isinstance(given.program, str | None):
            raise TypeError(f"{where}: program must be text or None, got {described(given.program)}")
        _check_options(given, where)
        tests = self._shared(id(given.tests), read_tests(given.tests, where))
        return Submission(given.program, tests, given.limits, given.checker, given.comparison)

    def _shared(self, identity: int, tests: list[Test]) -> list[Test]:
        known = self._known.get(identity)
        if known is not None and known == tests:  # the caller may have changed the list since
            return known
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[identity] = tests
        return tests


def read_tests(given: Any, where: str) -> list[Test]:
    """Tests as pairs of text; errors begin with `where`. Raises ValueError if there are none."""
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise TypeError(f"{where}: tests must be a list of (stdin, expected), got {described(given)}")
    if not given:
        raise ValueError(f"{where}: no tests; an empty list of tests must not count as passed")
    return [_test(test, number, where) for number, test in enumerate(given)]


def _test(given: Any, number: int, where: str) -> Test:
    if type(given) is tuple and len(given) == 2 and type(given[0]) is str and type(given[1]) is str:
        return given
    where = f"{where}, test {number}"
    if isinstance(given, Mapping):
        if set(given) != {"stdin", "expected"}:
            raise ValueError(
                f"{where}: expected the keys stdin and expected, got {', '.join(map(str, given)) or 'none'}"
            )
        pair = (given["stdin"], given["expected"])
    elif isinstance(given, tuple | list) and len(given) == 2:
        pair = (given[0], given[1])
    else:
        raise TypeError(f"{where}: expected (stdin, expected) or a mapping with these keys, got {described(given)}")
    for name, text in zip(("stdin", "expected"), pair, strict=True):
        if not isinstance(text, str):
            raise TypeError(f"{where}: {name} must be text, got {described(text)}")
    return pair[0], pair[1]


def _check_options(given: Submission, where: str) -> None:
    if not isinstance(given.limits, Limits | None):
        raise TypeError(f"{where}: limits must be Limits or None, got {described(given.limits)}")
    checker = given.checker
    if not (checker is None or isinstance(checker, CheckerProgram) or callable(checker)):
        raise TypeError(f"{where}: checker must be a CheckerProgram, a function or None, got {described(checker)}")
    if given.comparison not in RULES:
        raise ValueError(f"{where}: comparison must be one of {', '.join(RULES)}, got {described(given.comparison)}")
