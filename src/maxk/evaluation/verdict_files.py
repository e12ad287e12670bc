"""Verdict files: one JSON line per sample, in the order of the samples.

| key | meaning |
|---|---|
| `sample` | position of the sample in its file, from 0 |
| `problem_id` | its problem |
| `key` | digest of everything that determines the verdict: sample, problem, limits, mode, sandbox, grader |
| `task` | digest of the problem's tests, checker and limits; files compared must agree in it; older ones lack it |
| `judged` | `outputs` or `asserts`, see `problem_files` |
| `program` | digest of the complete solution; null if there is none |
| `reward` | fraction of tests passed; null if the sample could not be graded |
| `statuses`, `cpu_s` | one value per test |
| `outputs` | per test the digest of the program's output; "" if the program did not end well |

A stopped run continues where it ended. Verdicts of other samples, problems or settings are refused, and so is a file
into which another process is grading: each would add its verdicts of all samples.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any

from maxk.artifacts.digests import digest_of, digest_of_text
from maxk.artifacts.json_rows import Row, rows
from maxk.artifacts.locking import flock
from maxk.errors import UserError, counted, described
from maxk.evaluation.problem_files import ASSERTS, OUTPUTS, Problems, Task
from maxk.evaluation.result_files import Graded
from maxk.evaluation.sample_files import Sample, SampleFile
from maxk.grading import GRADER_VERSION, STATUSES, Grader, Verdict
from maxk.progress import Progress

_BEGINNING = b'{"sample": '
_KNOWN = frozenset(STATUSES)
_KEYS = {"sample", "problem_id", "key", "judged", "reward", "statuses"}
_ALLOWED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "sample": (lambda value: type(value) is int and value >= 0, "a whole number from 0"),
    "problem_id": (lambda value: type(value) is str, "text"),
    "judged": (lambda value: value in (OUTPUTS, ASSERTS), f"{OUTPUTS} or {ASSERTS}"),
    "task": (lambda value: value is None or type(value) is str, "text"),
    "program": (lambda value: value is None or type(value) is str, "text or null"),
}


class Tally:
    """Counts verdicts as they arrive, per problem and reward; memory does not grow with the number of samples.

    sizes: samples per problem, 0 for problems without any. tests: tests per problem. tasks: their digests, if known.
    """

    def __init__(self, path: Path, problem_ids: Iterable[str] = ()) -> None:
        self.path = path
        self.sizes: Counter[str] = Counter(dict.fromkeys(problem_ids, 0))
        self.rewards: dict[str, Counter[float]] = {}
        self.tests: dict[str, int] = {}
        self.tasks: dict[str, str] = {}
        self.statuses: Counter[str] = Counter()
        self.judged: Counter[str] = Counter()
        self._ungraded: Mapping[str, Any] | None = None

    def add(self, verdict: Mapping[str, Any]) -> None:
        name, reward, statuses = verdict["problem_id"], verdict["reward"], verdict["statuses"]
        if reward is None:
            self._ungraded = self._ungraded or verdict
        elif name in self.rewards:
            self.rewards[name][reward] += 1
        else:
            self.rewards[name], self.tests[name] = Counter({reward: 1}), len(statuses)
        if task := verdict.get("task"):
            self.tasks[name] = task
        for status in statuses:  # for a few tests, faster than Counter.update
            self.statuses[status] += 1
        self.judged[verdict["judged"]] += 1

    def require_graded(self) -> None:
        """Raises UserError if a sample could not be graded."""
        if self._ungraded:
            raise UserError(
                f"{self.path}: sample {self._ungraded['sample']} of problem {self._ungraded['problem_id']!r}, perhaps "
                "others, could not be graded (harness_error); move the file away and grade the samples again"
            )


# ------------------------------------------------------------------------------------------------------ reading
def is_verdict(row: Row) -> bool:
    return row.value.keys() >= _KEYS


def verdicts(path: Path) -> Iterator[dict[str, Any]]:
    """The verdicts of a file, none if it does not exist. Raises UserError as `sound_rows` does."""
    return (row.value for row in (sound_rows(path) if path.exists() else ()))


def sound_rows(path: Path) -> Iterator[Row]:
    """The verdicts of a file. Raises UserError for a row that grading cannot write, or whose sample appears twice.

    Rows may be in any order.
    """
    sizes: dict[str, int] = {}  # tests of each problem
    tasks: dict[str, str] = {}
    following, others = 0, set[int]()  # numbers read: those below `following`, and others if rows are not in order
    for row in rows(path):
        _require_sound(row)
        name, sample, tests = row.value["problem_id"], row.value["sample"], len(row.value["statuses"])
        if sample < following or sample in others:
            raise UserError(f"{row.where}: sample {sample} appears twice")
        if tests != (expected := sizes.setdefault(name, tests)):
            raise UserError(f"{row.where}: problem {name!r} has {counted(tests, 'test')} here and {expected} before")
        if (task := row.value.get("task")) and task != tasks.setdefault(name, task):
            raise UserError(f"{row.where}: problem {name!r} has other tests, checker or limits here than before")
        others.add(sample)
        while following in others:
            others.remove(following)
            following += 1
        yield row


def _require_sound(row: Row) -> None:
    """Raises UserError unless a row has values that grading can write."""
    if lacking := _KEYS - row.value.keys():
        raise UserError(f"{row.where}: not a verdict; missing: {', '.join(sorted(lacking))}")
    for key, (allowed, expected) in _ALLOWED.items():
        if not allowed(value := row.value.get(key)):
            raise UserError(f"{row.where}: not a verdict; {key} must be {expected}, got {described(value)}")
    statuses, reward = row.value["statuses"], row.value["reward"]
    outputs = row.value.get("outputs", statuses)
    if type(statuses) is not list or not statuses or not _KNOWN.issuperset(map(str, statuses)):
        raise UserError(f"{row.where}: statuses must be a list of {', '.join(STATUSES)}, got {described(statuses)}")
    if type(outputs) is not list or len(outputs) != len(statuses) or not all(type(one) is str for one in outputs):
        raise UserError(f"{row.where}: outputs must be a list of one text per test, got {described(outputs)}")
    right = _reward(Verdict(tuple(statuses)))
    if type(reward) is not type(right) or reward != right:
        raise UserError(f"{row.where}: reward must be {json.dumps(right)} by the statuses, got {described(reward)}")


def tally(path: Path) -> Tally:
    """Counts all verdicts of a file. Raises UserError for an invalid row, and if a sample could not be graded."""
    found = Tally(path)
    for row in sound_rows(path):
        found.sizes[row.value["problem_id"]] += 1
        found.add(row.value)
    found.require_graded()
    return found


def graded_rows(output: Path, samples: SampleFile, problems: Problems) -> Iterator[tuple[Row, list[Graded]]]:
    """The rows of a sample file, each with its graded samples."""
    found = verdicts(output)
    for row, ones in samples.rows():
        yield (
            row,
            [
                Graded(sample, problems.task(sample.where, sample.problem_id), verdict["statuses"])
                for sample, verdict in zip(ones, islice(found, len(ones)), strict=True)
            ],
        )


# ------------------------------------------------------------------------------------------------------ grading
class Grading:
    """The verdicts of a sample file, finished and missing.

    Reads all samples once to count them and to check the existing verdicts; `finish` grades the rest.
    """

    def __init__(self, output: Path, samples: SampleFile, problems: Problems, grader: Grader) -> None:
        """Raises UserError if `output` holds verdicts of other samples, problems or settings, or anything else."""
        self._output, self._samples, self._problems, self._grader = output, samples, problems, grader
        self._keys = _Keys(problems, grader)
        self.tally = Tally(output, problems.tasks)
        self.done, self._size = _finished(output)
        known = self._known()
        for index, (sample, task) in enumerate(self._pairs()):
            self.tally.sizes[task.problem_id] += 1
            if (verdict := next(known, None)) is not None:
                self._require_current(index, verdict, sample, task)
                self.tally.add(verdict)
        if self.total == 0:
            raise UserError(f"{samples.path}: contains no samples")
        if self.done > self.total:
            done, total = counted(self.done, "verdict"), counted(self.total, "sample")
            raise UserError(f"{output} has {done} but {samples.path} only {total}; name another --output")

    @property
    def total(self) -> int:
        return self.tally.sizes.total()

    def finish(self) -> Tally:
        """Grades the remaining samples, appends their verdicts to the file, and returns the tally of all."""
        if self.done < self.total:
            self._grader.canary()
            with Progress(self.total - self.done, "grade") as bar, _appending(self._output, self._size) as file:
                for verdict in self._in_order(islice(self._pairs(), self.done, None)):
                    self.tally.add(verdict)
                    file.write(json.dumps(verdict) + "\n")
                    file.flush()
                    bar.advance(status=self._grader.stats.summary())
            self.done = self.total
        return self.tally

    def _known(self) -> Iterator[dict[str, Any]]:
        try:
            yield from verdicts(self._output)
        except UserError as error:
            raise UserError(f"{error}; move it away or name another --output") from None

    def _pairs(self) -> Iterator[tuple[Sample, Task]]:
        for sample in self._samples.samples():
            yield sample, self._problems.task(sample.where, sample.problem_id)

    def _require_current(self, index: int, verdict: Mapping[str, Any], sample: Sample, task: Task) -> None:
        if verdict["sample"] != index or verdict["key"] != self._keys.of(sample, task):
            why = _difference(index, verdict, sample, task, self._keys.tasks[task.problem_id])
            raise UserError(f"{self._output}:{index + 1}: {why}; move it away or name another --output")

    def _in_order(self, pairs: Iterable[tuple[Sample, Task]]) -> Iterator[dict[str, Any]]:
        """Verdicts in the samples' order; a verdict that arrives early waits for those before it."""
        waiting: dict[int, dict[str, Any]] = {}

        def submissions() -> Iterator[Any]:
            for index, (sample, task) in enumerate(pairs):
                solution = sample.solution(task)
                waiting[index] = {
                    "sample": self.done + index,
                    "problem_id": task.problem_id,
                    "key": self._keys.of(sample, task),
                    "task": self._keys.tasks[task.problem_id],
                    "judged": task.judged,
                    "program": _program_digest(solution),
                }
                yield task.submission(solution)

        early: dict[int, Any] = {}
        following = 0
        for index, verdict in self._grader.grade_iter(submissions()):
            early[index] = verdict
            while following in early:
                yield waiting.pop(following) | _graded(early.pop(following))
                following += 1


def _difference(index: int, verdict: Mapping[str, Any], sample: Sample, task: Task, digest: str) -> str:
    """Why a verdict is not that of a sample: what its row shows, else what may have changed, likely causes first."""
    if verdict["sample"] != index:
        return f"the verdict of sample {verdict['sample']}, where that of sample {index} belongs"
    if verdict["problem_id"] != task.problem_id:
        return f"a verdict of problem {verdict['problem_id']!r}, but {sample.where} is of {task.problem_id!r}"
    program = _program_digest(sample.solution(task))
    if verdict.get("program", program) != program:  # verdicts of version 0.1 have none
        return f"the verdict of another program than {sample.where} has now"
    tests = f"other tests, checker or limits (--cpu-s, --memory-mb) of problem {task.problem_id!r}"
    if verdict.get("task", digest) != digest:
        return f"made with {tests}"
    others = "another --mode or sandbox, another text around the program, or another version of maxk"
    return f"made with {others}" if "task" in verdict else f"made with {tests}, {others}"


def _program_digest(solution: str | None) -> str | None:
    return None if solution is None else digest_of_text(solution)


def _reward(verdict: Verdict) -> float | None:
    """The reward as JSON has it, which lacks NaN."""
    return None if math.isnan(verdict.reward) else verdict.reward


def _graded(verdict: Verdict) -> dict[str, Any]:
    return {
        "reward": _reward(verdict),
        "statuses": verdict.statuses,
        "outputs": verdict.outputs,
        "cpu_s": [round(seconds, 4) for seconds in verdict.cpu_s],
    }


class _Keys:
    """Computes the digest of what a verdict depends on: sample, problem, limits, mode, sandbox and grader."""

    def __init__(self, problems: Problems, grader: Grader) -> None:
        settings = [grader.mode, grader.tier, GRADER_VERSION]
        self.tasks = {name: task.digest() for name, task in problems.tasks.items()}
        self._begun = {name: hashlib.sha256(digest_of([task, settings]).encode()) for name, task in self.tasks.items()}

    def of(self, sample: Sample, task: Task) -> str:
        digest = self._begun[task.problem_id].copy()
        text = "none" if sample.text is None else f"{sample.kind} {sample.text}"
        digest.update(text.encode(errors="surrogatepass"))
        return digest.hexdigest()[:16]


@contextlib.contextmanager
def _appending(path: Path, size: int) -> Iterator[IO[str]]:
    """The file, opened to add verdicts to its `size` bytes; no other process can add any meanwhile."""
    try:
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output: {path} cannot be written ({error.strerror})") from None
    with file:
        _lock(file, path, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_size != size:
            raise UserError(f"{path}: another process has changed it meanwhile; run the same command again")
        yield file


def _lock(file: IO[Any], path: Path, how: int) -> None:
    try:
        flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"{path}: another process is grading into it; wait for it to end, or name another --output"
        ) from None


def _finished(path: Path) -> tuple[int, int]:
    """Number of verdicts already written, and their bytes; removes a last line that a kill cut short."""
    if not path.exists():
        return 0, 0
    if not path.is_file():
        raise UserError(f"--output: {path} is not a file")
    count = whole = 0
    with path.open("r+b") as file:
        _lock(file, path, fcntl.LOCK_SH)
        if not _BEGINNING.startswith(file.read(len(_BEGINNING))):  # some other file, which must not be cut
            raise UserError(f"--output: {path} exists and contains no verdicts; name another file")
        file.seek(0)
        for line in file:
            if line.endswith(b"\n"):
                count, whole = count + 1, whole + len(line)
        file.truncate(whole)
    return count, whole
