"""`maxk grade problems.jsonl samples.jsonl`: grades plain JSON lines, for those who only want to evaluate.

Problems: {"problem_id", "tests": [{"stdin", "expected"}, …]}, optionally "time_limit_s", "memory_limit_mb",
"strict_lines" and "checker" (source of a checker program).
Samples: {"problem_id", "completion"} or {"problem_id", "program"}.
Verdicts go to `--output`, one line a sample in order, with `sample` the line number in the samples file; a run that was
stopped goes on where it ended. The summary is printed as JSON: max@k and pass@k, means over problems.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    parser.add_argument("--k", default=_DEFAULT_KS, help=f"comma-separated, those above n are left out ({_DEFAULT_KS})")
    parser.add_argument("--cpu-s", type=float, default=2.0, help="CPU seconds a test, where the problem has no limit")
    parser.add_argument("--memory-mb", type=int, default=512)
    parser.add_argument("--workers", type=int, help="default: one a core")
    parser.add_argument("--sandbox", default="auto", help="auto, bubblewrap, landlock, seccomp or off")
    parser.add_argument("--mode", default="auto", choices=("auto", "fork"))
    parser.add_argument("--cache", type=Path, help="verdict cache, shared by runs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from maxk.progress import Progress
    from maxk.verification import Grader, Limits, VerdictCache

    ks = _numbers(args.k)
    limits = Limits(cpu_s=args.cpu_s, memory_mb=args.memory_mb)
    problems = _problems(args.problems, limits)
    output = args.output or args.samples.with_suffix(".verdicts.jsonl")
    done = _whole_lines(output)
    total = sum(1 for _ in _lines(args.samples))
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
        for line in _in_order(grader, args.samples, problems, done):
            file.write(json.dumps(line) + "\n")
            file.flush()
            bar.advance(status=grader.stats.summary())
    print(json.dumps(_summary(output, ks), indent=2))
    return 0


def _in_order(grader: Any, samples: Path, problems: dict[str, Any], done: int) -> Iterator[dict[str, Any]]:
    """Verdict lines in the samples' order, holding back those that overtook an earlier one."""
    ids: dict[int, str] = {}
    early: dict[int, Any] = {}
    following = 0
    for index, verdict in grader.grade_iter(_submissions(samples, problems, done, ids)):
        early[index] = verdict
        while following in early:
            ready = early.pop(following)
            reward = None if math.isnan(ready.reward) else ready.reward
            line = {"sample": done + following, "problem_id": ids.pop(following), "reward": reward}
            yield line | {"statuses": ready.statuses, "cpu_s": [round(seconds, 4) for seconds in ready.cpu_s]}
            following += 1


def _submissions(samples: Path, problems: dict[str, Any], done: int, ids: dict[int, str]) -> Iterator[Any]:
    from maxk.verification import extract_program

    for number, sample in enumerate(_lines(samples)):
        if number < done:
            continue
        problem_id = str(sample.get("problem_id"))
        if problem_id not in problems:
            raise UserError(f"{samples}:{number + 1}: no problem {problem_id!r}")
        if "program" not in sample and "completion" not in sample:
            raise UserError(f"{samples}:{number + 1}: neither completion nor program")
        program = sample["program"] if "program" in sample else extract_program(sample["completion"]).program
        ids[number - done] = problem_id
        yield problems[problem_id]._replace(program=program)


def _problems(path: Path, limits: Any) -> dict[str, Any]:
    from maxk.verification import CheckerProgram, Submission

    problems: dict[str, Any] = {}
    for number, row in enumerate(_lines(path)):
        try:
            tests = [(test["stdin"], test["expected"]) for test in row["tests"]]
            problem_id = str(row["problem_id"])
        except (KeyError, TypeError) as error:
            raise UserError(f"{path}:{number + 1}: a problem needs problem_id and tests: {error!r}") from None
        if not tests:
            raise UserError(f"{path}:{number + 1}: problem {problem_id!r} has no tests")
        if problem_id in problems:
            raise UserError(f"{path}:{number + 1}: problem {problem_id!r} stands twice")
        own = replace(
            limits,
            cpu_s=float(row.get("time_limit_s") or limits.cpu_s),
            memory_mb=int(row.get("memory_limit_mb") or limits.memory_mb),
        )
        checker = CheckerProgram(row["checker"]) if row.get("checker") else None
        problems[problem_id] = Submission(None, tests, own, checker, bool(row.get("strict_lines")))
    return problems


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise UserError(f"{path}:{number + 1}: not a JSON object")
                    yield row
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON lines in UTF-8: {error}") from None


def _whole_lines(path: Path) -> int:
    """Number of verdicts already there; a last line cut short by a kill is removed."""
    if not path.exists():
        return 0
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        path.write_bytes(whole)
    return whole.count(b"\n")


def _summary(verdicts: Path, ks: list[int]) -> dict[str, Any]:
    from maxk import estimators

    rewards: dict[str, list[float]] = defaultdict(list)
    statuses: dict[str, int] = defaultdict(int)
    ungraded = 0
    for row in _lines(verdicts):
        for status in row["statuses"]:
            statuses[status] += 1
        if row["reward"] is None:
            ungraded += 1
        else:
            rewards[row["problem_id"]].append(row["reward"])
    fewest = min(map(len, rewards.values()), default=0)
    kept = [k for k in ks if k <= fewest]
    count = max(len(rewards), 1)
    return {
        "problems": len(rewards),
        "samples_a_problem_at_least": fewest,
        "ungraded": ungraded,
        "statuses": dict(statuses),
        "max@k": {k: sum(float(estimators.max_at_k(r, k)) for r in rewards.values()) / count for k in kept},
        "pass@k": {
            k: sum(float(estimators.pass_at_k(len(r), sum(x == 1.0 for x in r), k)) for r in rewards.values()) / count
            for k in kept
        },
    }


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        raise UserError(f"--k: {text!r} is not a comma-separated list of numbers") from None
    if any(number < 1 for number in numbers):
        raise UserError(f"--k: {text!r} must be positive")
    return numbers
