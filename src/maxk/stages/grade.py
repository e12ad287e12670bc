"""`maxk grade problems.jsonl samples.jsonl`: grades plain JSON lines, for those who only want to evaluate.

Problems: {"problem_id", "tests": [{"stdin", "expected"}, …]}, optionally "time_limit_s", "memory_limit_mb",
"strict_lines" and "checker" (source of a checker program).
Samples: {"problem_id", "completion"} or {"problem_id", "program"}.
Verdicts go to `--output`, one line a sample in order, with `sample` the line number in the samples file; a run that was
stopped goes on where it ended, unless samples, problems, limits or sandbox are no longer those of the verdicts already
there: that is an error. The summary is printed as JSON: max@k and pass@k, means over problems, which all need the same
number of graded samples.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from maxk.artifacts import files
from maxk.errors import UserError

_DEFAULT_KS = "1,8,32,128"


def register_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "grade", help="grade samples against problems, both plain JSON lines", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("problems", type=Path)
    parser.add_argument("samples", type=Path)
    parser.add_argument("--output", type=Path, help="verdicts (default: SAMPLES with .verdicts.jsonl)")
    parser.add_argument("--k", help=f"comma-separated (default: those of {_DEFAULT_KS} that the samples suffice for)")
    parser.add_argument("--cpu-s", type=float, default=2.0, help="CPU seconds a test, where the problem has no limit")
    parser.add_argument("--memory-mb", type=int, default=512)
    parser.add_argument("--workers", type=int, help="default: one a core")
    parser.add_argument("--sandbox", default="auto", help="auto, bubblewrap, landlock, seccomp or off")
    parser.add_argument("--mode", default="auto", choices=("auto", "fork"))
    parser.add_argument("--cache", type=Path, help="verdict cache, shared by runs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from maxk.grading import Grader, Limits, VerdictCache
    from maxk.tracking.progress import Progress

    ks = _numbers(args.k) if args.k else None
    limits = Limits(cpu_s=args.cpu_s, memory_mb=args.memory_mb)
    problems = _problems(args.problems, limits)
    output = args.output or args.samples.with_suffix(".verdicts.jsonl")
    done = _whole_lines(output)
    sizes = _sizes(args.samples, problems)
    if ks is not None and max(ks) > (fewest := min(sizes.values())):
        raise UserError(
            f"--k: {max(ks)} is more than the {fewest} samples of problem {min(sizes, key=sizes.__getitem__)!r}"
        )
    total = sizes.total()
    if done > total:
        raise UserError(f"{output} has {done} verdicts but {args.samples} only {total} samples; name another --output")
    cache = VerdictCache(args.cache) if args.cache else None
    with (
        Grader(limits, args.workers, args.sandbox, args.mode, cache) as grader,
        Progress(total - done, "grade") as bar,
        output.open("a", encoding="utf-8") as file,
    ):
        print(f"sandbox: {grader.tier}", file=sys.stderr)
        grader.canary()
        keys = _Keys(problems, grader, args)
        _refuse_others(output, args.samples, keys)
        for line in _in_order(grader, args.samples, problems, done, keys):
            file.write(json.dumps(line) + "\n")
            file.flush()
            bar.advance(status=grader.stats.summary())
        for complaint in grader.stats.complaints():
            print(complaint, file=sys.stderr)
    print(json.dumps(_summary(output, sizes, ks), indent=2))
    return 0


class _Keys:
    """What a sample's verdict depends on, as a digest: the sample, its problem, limits, mode, tier and grader."""

    def __init__(self, problems: dict[str, Any], grader: Any, args: argparse.Namespace) -> None:
        from maxk.grading import GRADER_VERSION

        settings = [args.cpu_s, args.memory_mb, grader.mode, grader.tier, GRADER_VERSION]
        self._problems = {name: files.digest_of([repr(problem), settings]) for name, problem in problems.items()}

    def of(self, sample: dict[str, Any]) -> str:
        return files.digest_of([sample, self._problems.get(str(sample.get("problem_id")))])


def _refuse_others(output: Path, samples: Path, keys: _Keys) -> None:
    """Verdicts already there must be those of these samples, problems and settings."""
    for number, (verdict, sample) in enumerate(zip(_lines(output), _lines(samples), strict=False)):
        if verdict.get("key") != keys.of(sample):
            raise UserError(
                f"{output}:{number + 1}: made from another sample, problem, limit or sandbox than now; delete it or "
                "name another --output"
            )


def _in_order(grader: Any, samples: Path, problems: dict[str, Any], done: int, keys: _Keys) -> Iterator[dict[str, Any]]:
    """Verdict lines in the samples' order, holding back those that overtook an earlier one."""
    ids: dict[int, tuple[str, str]] = {}
    early: dict[int, Any] = {}
    following = 0
    for index, verdict in grader.grade_iter(_submissions(samples, problems, done, ids, keys)):
        early[index] = verdict
        while following in early:
            ready = early.pop(following)
            reward = None if math.isnan(ready.reward) else ready.reward
            problem_id, key = ids.pop(following)
            line = {"sample": done + following, "problem_id": problem_id, "key": key, "reward": reward}
            yield line | {"statuses": ready.statuses, "cpu_s": [round(seconds, 4) for seconds in ready.cpu_s]}
            following += 1


def _submissions(
    samples: Path, problems: dict[str, Any], done: int, ids: dict[int, tuple[str, str]], keys: _Keys
) -> Iterator[Any]:
    from maxk.grading import extract_program

    for number, sample in enumerate(_lines(samples)):
        if number < done:
            continue
        problem_id = str(sample["problem_id"])
        program = sample["program"] if "program" in sample else extract_program(sample["completion"]).program
        ids[number - done] = problem_id, keys.of(sample)
        yield problems[problem_id]._replace(program=program)


def _problems(path: Path, limits: Any) -> dict[str, Any]:
    from maxk.grading import CheckerProgram, Submission

    problems: dict[str, Any] = {}
    for number, row in enumerate(_lines(path)):
        try:
            tests = [(test["stdin"], test["expected"]) for test in row["tests"]]
            problem_id = str(row["problem_id"])
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{path}:{number + 1}: a problem needs problem_id and tests with stdin and expected ({error!r} is "
                "missing); the order is `maxk grade PROBLEMS SAMPLES`"
            ) from None
        if not tests:
            raise UserError(f"{path}:{number + 1}: problem {problem_id!r} has no tests; drop the line")
        if problem_id in problems:
            raise UserError(f"{path}:{number + 1}: problem {problem_id!r} stands twice; drop one line")
        own = replace(
            limits,
            cpu_s=float(row.get("time_limit_s") or limits.cpu_s),
            memory_mb=int(row.get("memory_limit_mb") or limits.memory_mb),
        )
        checker = CheckerProgram(row["checker"]) if row.get("checker") else None
        problems[problem_id] = Submission(None, tests, own, checker, bool(row.get("strict_lines")))
    if not problems:
        raise UserError(f"{path}: holds no problem")
    return problems


def _sizes(path: Path, problems: dict[str, Any]) -> Counter[str]:
    """How many samples every problem has; those without count, too, or a lost file of samples would go unseen."""
    sizes = Counter(dict.fromkeys(problems, 0))
    for number, sample in enumerate(_lines(path)):
        problem_id = str(sample.get("problem_id"))
        if problem_id not in problems:
            raise UserError(f"{path}:{number + 1}: no problem {problem_id!r}; add it to the problems or drop the line")
        if "program" not in sample and "completion" not in sample:
            raise UserError(f"{path}:{number + 1}: neither completion nor program; a sample needs one of them")
        sizes[problem_id] += 1
    return sizes


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Its rows; UserError where the file cannot be read or a line is no object."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _row(line, f"{path}:{number}")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; give an existing file of JSON lines") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not JSON lines in UTF-8 ({error}); unpack or convert it") from None


def _row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: not JSON ({error}); mend or delete this line") from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: not a JSON object; a line is one object")
    return row


def _whole_lines(path: Path) -> int:
    """Number of verdicts already there; a last line cut short by a kill is removed."""
    if not path.exists():
        return 0
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        path.write_bytes(whole)
    return whole.count(b"\n")


def _summary(verdicts: Path, sizes: Counter[str], ks: list[int] | None) -> dict[str, Any]:
    """Counts, and max@k and pass@k as means over problems; these only where all have as many samples, all graded.

    `ks` None: those of the default that the samples suffice for.
    """
    from maxk import estimators

    rewards: dict[str, list[float]] = defaultdict(list)
    statuses: dict[str, int] = defaultdict(int)
    for row in _lines(verdicts):
        if row["reward"] is None:
            raise UserError(
                f"{verdicts}: sample {row['sample']} of problem {row['problem_id']!r}, perhaps others, could not be "
                "graded (harness_error); delete the file and run again"
            )
        rewards[row["problem_id"]].append(row["reward"])
        for status in row["statuses"]:
            statuses[status] += 1
    summary: dict[str, Any] = {"problems": len(sizes), "statuses": dict(statuses)}
    ranked = sizes.most_common()
    (many, n), (few, fewest) = ranked[0], ranked[-1]
    if not 0 < fewest == n:
        return summary | {"note": f"no max@k: problem {few!r} has {fewest} samples, {many!r} {n}"}
    kept = [k for k in ks or _numbers(_DEFAULT_KS) if k <= n]
    best = estimators.max_at_k(list(rewards.values()), kept).mean(axis=0)
    passed = [[sum(reward == 1.0 for reward in one)] for one in rewards.values()]
    return summary | {
        "samples_a_problem": n,
        "max@k": dict(zip(kept, best.tolist(), strict=True)),
        "pass@k": dict(zip(kept, estimators.pass_at_k(n, passed, kept).mean(axis=0).tolist(), strict=True)),
    }


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        raise UserError(f"--k: {text!r} is not a comma-separated list of numbers") from None
    if any(number < 1 for number in numbers):
        raise UserError(f"--k: {text!r} must be positive")
    return numbers
