"""The identity of a submission: equal keys mean equal verdicts."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from maxk.grading.verdicts import CheckerProgram, Limits, Submission, Test

_REMEMBERED_TESTS = 256


@cache
def grader_version() -> str:
    """Fingerprint of what decides a verdict besides its inputs: this package's source and the Python version."""
    digest = hashlib.sha256(sys.version.encode())
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), *here.glob("*/*.py")]):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


@cache
def _numpy_version() -> str:
    """Part of every key, because programs may import numpy."""
    try:
        return metadata.version("numpy")
    except metadata.PackageNotFoundError:
        return "none"


def key_of_validation(source: str, test: Test) -> bytes:
    """The key of a validation: whether a checker accepts a test's expected output."""
    return _digest_of((source, *test))


class Keys:
    """Computes keys; hashes a test list once for consecutive submissions that share it."""

    def __init__(self, version: str, tier: str, mode: str, limits: Limits) -> None:
        self._prefix = f"{version} {tier} {mode} {_numpy_version()}"
        self._functions: dict[int, object] = {}  # kept alive, or another function could get the same id
        self._limits = limits
        self._tests: dict[int, tuple[Sequence[Test], bytes]] = {}

    def of(self, submission: Submission) -> bytes:
        checker = submission.checker
        if checker is not None and not isinstance(checker, CheckerProgram):
            self._functions[id(checker)] = checker
        # A function has no content to hash: its id identifies equal submissions within one call and is never stored.
        identity = checker.source if isinstance(checker, CheckerProgram) else id(checker) if checker else ""
        rest = (self._prefix, submission.limits or self._limits, submission.comparison, identity)
        digest = hashlib.sha256(repr(rest).encode(errors="surrogatepass"))
        digest.update(self.of_tests(submission.tests))
        program = submission.program
        digest.update(b"none" if program is None else b"text" + program.encode(errors="surrogatepass"))
        return digest.digest()

    def of_tests(self, tests: Sequence[Test]) -> bytes:
        known = self._tests.get(id(tests))
        if known is not None and known[0] is tests:
            return known[1]
        digest = _digest_of(text for test in tests for text in test)
        if len(self._tests) >= _REMEMBERED_TESTS:
            self._tests.clear()
        self._tests[id(tests)] = tests, digest
        return digest


def _digest_of(texts: Iterable[str]) -> bytes:
    """Texts are length-prefixed, so that ('ab', 'c') and ('a', 'bc') differ."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()
