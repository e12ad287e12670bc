"""`maxk grade PROBLEMS SAMPLES`: grades finished samples, in maxk's own form or another tool's.

Both files are JSON lines or a JSON array, plain or gzipped. Their forms are detected from their keys.

Problems: {"problem_id", "tests": [{"stdin", "expected"}, …]}, optionally "time_limit_s", "memory_limit_mb",
"comparison" (numbers, tokens or lines) and "checker" (source of a checker program); or the rows of HumanEval, MBPP,
LiveCodeBench and APPS.
Samples: {"problem_id", "completion"} or {"problem_id", "program"}; or those of EvalPlus, HumanEval, LiveCodeBench,
lm-eval and APPS.

    maxk grade problems.jsonl samples.jsonl --k 1,8
    maxk grade HumanEval.jsonl.gz samples.jsonl --to evalplus
    maxk grade samples_humaneval_2026.jsonl samples_humaneval_2026.jsonl     lm-eval's samples hold their problems

Verdicts go to `--output`, one line per sample in order. `judged` is "outputs" where outputs were compared outside the
sandbox, and "asserts" where the benchmark's own test code ran inside it, beside the program. A run that was stopped
continues where it ended; verdicts of other samples, problems, limits or another sandbox are an error. The summary is
printed as JSON: max@k and pass@k, means over problems, which all need the same number of graded samples.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from maxk.artifacts.digests import digest_of
from maxk.errors import UserError

_DEFAULT_KS = "1,8,32,128"
_SAMPLE_FORMS = ("maxk", "evalplus", "livecodebench", "lm-eval", "apps")
_PROBLEM_FORMS = ("maxk", "humaneval", "mbpp", "livecodebench", "apps")
_RESULT_FORMS = ("humaneval", "evalplus", "livecodebench", "lm-eval")
_BEGINNING = b'{"sample": '
_LINE = {"sample", "problem_id", "key", "judged", "reward", "statuses"}


def register_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "grade", help="grade samples against problems, in maxk's own form or another tool's", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("problems", type=Path)
    parser.add_argument("samples", type=Path)
    parser.add_argument("--format", choices=_SAMPLE_FORMS, help="form of the samples (default: detected)")
    parser.add_argument("--problem-format", choices=_PROBLEM_FORMS, help="form of the problems (default: detected)")
    parser.add_argument("--to", choices=_RESULT_FORMS, help="also write results in this form, beside the samples")
    parser.add_argument("--output", type=Path, help="verdicts (default: SAMPLES with .verdicts.jsonl)")
    parser.add_argument("--k", type=_ks, help=f"comma-separated (default: those of {_DEFAULT_KS} up to n)")
    parser.add_argument(
        "--cpu-s", type=_up_to(3600, float), default=2.0, help="CPU seconds per test, where the problem has no limit"
    )
    parser.add_argument("--memory-mb", type=_up_to(1 << 20, int), default=512, help="likewise, MiB")
    parser.add_argument("--workers", type=_up_to(4096, int), help="default: one per core")
    parser.add_argument("--sandbox", default="auto", help="auto, bubblewrap, landlock, seccomp or off")
    parser.add_argument("--mode", default="auto", choices=("auto", "fork"))
    parser.add_argument("--cache", type=Path, help="verdict cache, shared by runs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from maxk.evaluation.problem_files import read_problems
    from maxk.evaluation.result_files import beside, path_of, write_results
    from maxk.grading import Limits

    problems = read_problems(args.problems, Limits(cpu_s=args.cpu_s, memory_mb=args.memory_mb), args.problem_format)
    _report_left_out(problems)
    output = args.output or beside(args.samples, ".verdicts.jsonl")
    sizes = _sizes(args, problems)
    if args.k and max(args.k) > (fewest := min(sizes.values())):
        few = min(sizes, key=sizes.__getitem__)
        raise UserError(f"--k: {max(args.k)} is more than the {fewest} samples of problem {few!r}")
    tally = _Tally(sizes)
    _grade(args, problems, output, tally)
    summary = tally.summary(output, args.k)
    if args.to:
        path = path_of(args.samples, args.to)
        write_results(path, args.to, _graded_rows(args, problems, output))
        print(f"results: {path}", file=sys.stderr)
    print(json.dumps(summary, indent=2))
    return 0


def _report_left_out(problems: Any) -> None:
    if problems.left_out:
        problem_id, reason = next(iter(problems.left_out.items()))
        print(f"left out {len(problems.left_out)} problems, first {problem_id!r}: {reason}", file=sys.stderr)


def _sizes(args: argparse.Namespace, problems: Any) -> Counter[str]:
    """The number of samples of every problem; those without any too, so that a lost file of samples is seen."""
    from maxk.evaluation.sample_files import read_samples

    sizes = Counter(dict.fromkeys(problems.tasks, 0))
    for sample in read_samples(args.samples, args.format):
        sizes[problems.task(sample.where, sample.problem_id).problem_id] += 1
    return sizes


# ------------------------------------------------------------------------------------------------------ grading
def _grade(args: argparse.Namespace, problems: Any, output: Path, tally: _Tally) -> None:
    """Adds the verdicts that `output` lacks, and counts all."""
    from maxk.grading import Grader, VerdictCache
    from maxk.progress import Progress

    done, total = _finished(output), tally.sizes.total()
    if done > total:
        raise UserError(f"{output} has {done} verdicts but {args.samples} only {total} samples; name another --output")
    cache = VerdictCache(args.cache) if args.cache else None
    with (
        Grader(None, args.workers, args.sandbox, args.mode, cache) as grader,
        Progress(total - done, "grade") as bar,
        _appending(output) as file,
    ):
        print(f"sandbox: {grader.tier}", file=sys.stderr)
        grader.canary()
        keys = _Keys(problems, grader)
        samples = _samples(args, problems)
        for line in _still_valid(output, samples, keys):  # takes the samples that have verdicts
            tally.add(line)
        for line in _in_order(grader, samples, done, keys):
            tally.add(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
            bar.advance(status=grader.stats.summary())
        for complaint in grader.stats.complaints():
            print(complaint, file=sys.stderr)


def _samples(args: argparse.Namespace, problems: Any) -> Iterator[tuple[Any, Any]]:
    """Samples with their tasks."""
    from maxk.evaluation.sample_files import read_samples

    for sample in read_samples(args.samples, args.format):
        yield sample, problems.task(sample.where, sample.problem_id)


class _Keys:
    """What a verdict depends on, as a digest: the sample, its problem, limits, mode, tier and grader."""

    def __init__(self, problems: Any, grader: Any) -> None:
        from maxk.grading import GRADER_VERSION

        settings = [grader.mode, grader.tier, GRADER_VERSION]
        self._tasks = {name: digest_of([task.digest(), settings]) for name, task in problems.tasks.items()}

    def of(self, sample: Any, task: Any) -> str:
        text = b"none" if sample.text is None else b"text" + sample.text.encode(errors="surrogatepass")
        return hashlib.sha256(f"{self._tasks[task.problem_id]} {sample.kind} ".encode() + text).hexdigest()[:16]


def _still_valid(output: Path, samples: Iterator[tuple[Any, Any]], keys: _Keys) -> Iterator[dict[str, Any]]:
    """Verdicts already there. Raises UserError unless they are those of these samples, problems and settings."""
    for verdict, (sample, task) in zip(_verdicts(output), samples, strict=False):
        if verdict["key"] != keys.of(sample, task):
            raise UserError(
                f"{output}:{verdict['sample'] + 1}: made from another sample, problem, limit or sandbox than now; "
                "delete it or name another --output"
            )
        yield verdict


def _in_order(grader: Any, samples: Iterable[tuple[Any, Any]], done: int, keys: _Keys) -> Iterator[dict[str, Any]]:
    """Verdict lines in the samples' order; verdicts that overtook an earlier one are held back."""
    waiting: dict[int, dict[str, Any]] = {}

    def submissions() -> Iterator[Any]:
        for index, (sample, task) in enumerate(samples):
            line = {"sample": done + index, "problem_id": task.problem_id, "key": keys.of(sample, task)}
            waiting[index] = line | {"judged": task.judged}
            yield task.submission(sample.solution(task))

    early: dict[int, Any] = {}
    following = 0
    for index, verdict in grader.grade_iter(submissions()):
        early[index] = verdict
        while following in early:
            ready = early.pop(following)
            reward = None if math.isnan(ready.reward) else ready.reward
            line = waiting.pop(following) | {"reward": reward, "statuses": ready.statuses}
            yield line | {"cpu_s": [round(seconds, 4) for seconds in ready.cpu_s]}
            following += 1


# ------------------------------------------------------------------------------------------------------ verdicts
def _appending(path: Path) -> Any:
    try:
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output: {path} cannot be written ({error.strerror})") from None


def _finished(path: Path) -> int:
    """Number of verdicts already there; a last line cut short by a kill is removed."""
    if not path.exists():
        return 0
    if not path.is_file():
        raise UserError(f"--output: {path} is not a file")
    count = whole = 0
    with path.open("r+b") as file:
        if not _BEGINNING.startswith(file.read(len(_BEGINNING))):  # some other file, which must not be cut
            raise UserError(f"--output: {path} is there and holds no verdicts; name another file")
        file.seek(0)
        for line in file:
            if line.endswith(b"\n"):
                count, whole = count + 1, whole + len(line)
        file.truncate(whole)
    return count


def _verdicts(path: Path) -> Iterator[dict[str, Any]]:
    from maxk.evaluation.json_rows import rows

    for row in rows(path) if path.exists() else ():
        if not row.value.keys() >= _LINE:
            lacking = ", ".join(sorted(_LINE - row.value.keys()))
            raise UserError(f"{row.where}: not a verdict, it lacks {lacking}; name another --output")
        yield row.value


def _graded_rows(args: argparse.Namespace, problems: Any, output: Path) -> Iterator[Any]:
    from maxk.evaluation.result_files import Graded
    from maxk.evaluation.sample_files import read_rows

    verdicts = _verdicts(output)
    for row, samples in read_rows(args.samples, args.format):
        graded = islice(verdicts, len(samples))
        yield (
            row,
            [
                Graded(sample, problems.task(sample.where, sample.problem_id), verdict["statuses"])
                for sample, verdict in zip(samples, graded, strict=True)
            ],
        )


# ------------------------------------------------------------------------------------------------------ summary
class _Tally:
    """Verdicts counted as they come: of each problem one count per reward, of which there are as many as tests."""

    def __init__(self, sizes: Counter[str]) -> None:
        self.sizes = sizes
        self._rewards: dict[str, Counter[float]] = {name: Counter() for name in sizes}
        self._statuses: Counter[str] = Counter()
        self._judged: Counter[str] = Counter()
        self._ungraded: dict[str, Any] | None = None

    def add(self, line: dict[str, Any]) -> None:
        if line["reward"] is None:
            self._ungraded = self._ungraded or line
        else:
            self._rewards[line["problem_id"]][line["reward"]] += 1
        self._statuses.update(line["statuses"])
        self._judged[line["judged"]] += 1

    def summary(self, output: Path, ks: list[int] | None) -> dict[str, Any]:
        """Counts, and max@k and pass@k as means over problems, if all have the same number of samples.

        `ks` None: those of the default that the samples suffice for. Raises UserError if a sample was not graded.
        """
        if self._ungraded:
            raise UserError(
                f"{output}: sample {self._ungraded['sample']} of problem {self._ungraded['problem_id']!r}, perhaps "
                "others, could not be graded (harness_error); delete the file and run again"
            )
        ranked = self.sizes.most_common()
        (many, n), (few, fewest) = ranked[0], ranked[-1]
        counts = {"problems": len(ranked), "statuses": dict(self._statuses), "judged": dict(self._judged)}
        if not 0 < fewest == n:
            return counts | {"note": f"no max@k: problem {few!r} has {fewest} samples, {many!r} {n}"}
        return counts | {"samples_a_problem": n} | _estimates(self._rewards.values(), n, ks or _ks(_DEFAULT_KS))


def _estimates(rewards: Iterable[Counter[float]], n: int, ks: list[int]) -> dict[str, Any]:
    import numpy as np

    from maxk import estimators

    kept = [k for k in ks if k <= n]
    each = list(rewards)
    best = np.mean([estimators.max_at_k(list(one.elements()), kept) for one in each], axis=0)
    passed = estimators.pass_at_k(n, [[one[1.0]] for one in each], kept).mean(axis=0)
    return {
        "max@k": dict(zip(kept, best.tolist(), strict=True)),
        "pass@k": dict(zip(kept, passed.tolist(), strict=True)),
    }


# ------------------------------------------------------------------------------------------------------ arguments
def _ks(text: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a comma-separated list of numbers") from None
    if any(number < 1 for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} must be positive")
    return numbers


def _up_to(most: int, kind: type) -> Callable[[str], Any]:
    def number(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not 0 < value <= most:
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what} above 0 and at most {most}")
        return value

    return number
