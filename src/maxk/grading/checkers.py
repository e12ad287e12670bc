"""Checker programs: each is validated on a test's expected output before it judges other outputs of that test.

A checker that crashes or hangs is either broken or made to fail by a program's output, and only the latter is the
program's fault. A checker that accepts the expected output is sound; if it fails later, the output is the cause.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable

from maxk.grading import verdicts
from maxk.grading.confined.wire import RAN
from maxk.grading.connection import Run
from maxk.grading.keys import key_of_validation
from maxk.grading.tasks import Check, Task, Validation

ATTEMPTS = 2
_REMEMBERED = 1 << 12  # validations


class Checkers:
    """Queues checks and reports what they decide.

    waiting: the queue of the checker servers. faults: counts why tests could not be graded. decided: called with each
    check and its status.
    """

    def __init__(self, waiting: deque[Task], faults: Counter[str], decided: Callable[[Check, str], None]) -> None:
        self._waiting, self._faults, self._decided = waiting, faults, decided
        self._running: dict[bytes, Validation] = {}
        self._known: OrderedDict[bytes, str] = OrderedDict()  # fault by validation; "" if the checker is sound

    def ask(self, check: Check) -> None:
        """Queues a check, after the validation of its checker; fails it if the checker is known to be broken."""
        test = check.job.submission.tests[check.test]
        key = key_of_validation(check.source, test)
        if key in self._running:
            self._running[key].waiting.append(check)
        elif key not in self._known:
            expected = test[1].encode(errors="surrogatepass")
            validation = Validation(check.job, check.test, expected, verdicts.CHECKER_LIMITS, check.source, key=key)
            validation.waiting.append(check)
            self._running[key] = validation
            self._waiting.appendleft(validation)
        elif self._known[key]:
            self._faults[self._known[key]] += 1
            self._decided(check, verdicts.HARNESS_ERROR)
        else:
            self._waiting.appendleft(check)

    def take(self, check: Check, run: Run) -> None:
        accepted = run.outcome == RAN and _accepts(run.output())
        if run.doubtful or run.outcome not in (RAN, *verdicts.FAILURES):
            check.attempts += 1
            if check.attempts < ATTEMPTS:
                self._waiting.append(check)
            else:
                self.give_up(check)
        elif isinstance(check, Validation):
            self._validated(check, "" if accepted else verdicts.FAILURES.get(run.outcome, "it rejects it"))
        else:
            self._decided(check, verdicts.PASSED if accepted else verdicts.WRONG_ANSWER)

    def give_up(self, check: Check) -> None:
        if isinstance(check, Validation):
            self._validated(check, "it did not finish in two attempts")
        else:
            self._faults["a checker did not finish in two attempts"] += 1
            self._decided(check, verdicts.HARNESS_ERROR)

    def _validated(self, validation: Validation, fault: str) -> None:
        expected = validation.job.submission.tests[validation.test][1]
        message = f"a checker does not accept the expected output {expected[:40]!r}: {fault}"
        self._known[validation.key] = message if fault else ""
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        del self._running[validation.key]
        for check in validation.waiting:
            self.ask(check)


def _accepts(answer: bytes) -> bool:
    """Whether a checker's output means acceptance: its last word is True or a number of at least 1."""
    words = answer.split()
    try:
        return bool(words) and (words[-1] == b"True" or float(words[-1]) >= 1)
    except ValueError:
        return False
