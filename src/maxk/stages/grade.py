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
printed as JSON, and as a table on stderr: max@k and pass@k, means over problems with 95 % intervals over problems, up
to the fewest samples of a problem. If a problem has no sample there are no means; `--only-sampled` leaves it out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from maxk.errors import counted

_SAMPLE_FORMS = ("maxk", "evalplus", "livecodebench", "lm-eval", "apps")
_PROBLEM_FORMS = ("maxk", "humaneval", "mbpp", "livecodebench", "apps")
_SANDBOXES = ("auto", "bubblewrap", "landlock", "seccomp", "off")
_RESULT_FORMS = ("humaneval", "evalplus", "livecodebench", "lm-eval")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("problems", type=Path)
    parser.add_argument("samples", type=Path)
    parser.add_argument("--to", choices=_RESULT_FORMS, help="also write results in this form, beside the samples")
    parser.add_argument("--output", type=writable, help="verdicts (default: SAMPLES with .verdicts.jsonl)")
    parser.add_argument("--k", type=numbers, help="values of k, comma-separated (default: 1, 2, 4, … and n)")
    parser.add_argument(
        "--only-sampled", action="store_true", help="leave out problems without samples (default: then no max@k)"
    )
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """How samples are read and graded, for every subcommand that does so."""
    parser.add_argument("--format", choices=_SAMPLE_FORMS, help="form of the samples (default: detected)")
    parser.add_argument("--problem-format", choices=_PROBLEM_FORMS, help="form of the problems (default: detected)")
    parser.add_argument(
        "--ignore", type=lambda text: text.split(","), default=[], metavar="KEY,…", help="keys of problems to ignore"
    )
    parser.add_argument(
        "--cpu-s", type=up_to(3600, float), default=2.0, help="CPU seconds per test, where the problem has no limit"
    )
    parser.add_argument(
        "--memory-mb", type=up_to(1 << 20, int), default=512, help="MiB per program, where the problem has no limit"
    )
    parser.add_argument("--workers", type=up_to(4096, int), help="grading processes (default: one per core)")
    parser.add_argument("--sandbox", default="auto", choices=_SANDBOXES, help="isolation (default: auto)")
    parser.add_argument(
        "--mode", default="auto", choices=("auto", "fork"), help="fork: a new process for every test (default: auto)"
    )
    parser.add_argument("--cache", type=writable, help="verdict cache, shared by runs")


def run(args: argparse.Namespace) -> int:
    from maxk.evaluation.result_files import path_of, require_fit, write_results
    from maxk.evaluation.sample_files import SampleFile
    from maxk.evaluation.verdict_files import graded_rows
    from maxk.reporting import grades

    only_sampled = args.only_sampled
    samples = SampleFile(args.samples, args.format)
    if args.to:
        require_fit(args.to, samples)
    with Samples(args, args.problems) as graded:
        tally = graded.tally(args.samples, args.output, lambda sizes: grades.require_ks(sizes, args.k, only_sampled))
    summary = grades.summary(tally, args.k, only_sampled)
    if args.to:
        path = path_of(args.samples, args.to)
        rows = graded_rows(tally.path, samples, graded.problems)
        write_results(path, args.to, rows)
        print(f"results: {path}", file=sys.stderr)
    print(grades.to_text(summary), file=sys.stderr)
    print(json.dumps(summary, indent=2))
    return 0


class Samples:
    """Grades files of samples of the same problems with the options of the command line; a context manager."""

    def __init__(self, args: argparse.Namespace, problems: Path) -> None:
        from maxk.evaluation.problem_files import read_problems
        from maxk.grading import Grader, Limits, VerdictCache

        self._args = args
        limits = Limits(cpu_s=args.cpu_s, memory_mb=args.memory_mb)
        self.problems = read_problems(problems, limits, args.problem_format, args.ignore)
        if left_out := self.problems.left_out:
            problem_id, reason = next(iter(left_out.items()))
            print(f"left out {counted(len(left_out), 'problem')}, first {problem_id!r}: {reason}", file=sys.stderr)
        cache = VerdictCache(args.cache) if args.cache else None
        self._grader = Grader(None, args.workers, args.sandbox, args.mode, cache)

    def __enter__(self) -> Samples:
        self._grader.__enter__()
        print(f"sandbox: {self._grader.tier}", file=sys.stderr)
        return self

    def __exit__(self, *error: Any) -> None:
        for complaint in self._grader.stats.complaints():
            print(complaint, file=sys.stderr)
        self._grader.__exit__(*error)

    def tally(
        self, path: Path, output: Path | None = None, require: Callable[[Mapping[str, int]], None] = lambda sizes: None
    ) -> Any:
        """The verdicts of a file, counted; those that `output` lacks are made.

        require: raises UserError for numbers of samples by problem that do not serve, before one is graded.
        """
        from maxk.evaluation.result_files import verdicts_beside
        from maxk.evaluation.sample_files import SampleFile
        from maxk.evaluation.verdict_files import Grading

        samples = SampleFile(path, self._args.format)
        grading = Grading(output or verdicts_beside(path), samples, self.problems, self._grader)
        require(grading.tally.sizes)
        if grading.done < grading.total:  # once, and not by every command that reads the verdicts again
            self._name_unread(samples)
        return grading.finish()

    def _name_unread(self, samples: Any) -> None:
        """Prints the keys of samples that are not read, of which one may be misspelt."""
        if unread := [key for key in samples.unread() if key != vars(self._args).get("score")]:
            print(f"{samples.path}: keys that are not read: {', '.join(unread)}", file=sys.stderr)


# ------------------------------------------------------------------------------------------------------ arguments
def numbers(text: str) -> list[int]:
    """A comma-separated list of positive numbers, as a type of an argument."""
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a comma-separated list of numbers") from None
    if any(number < 1 for number in found):
        raise argparse.ArgumentTypeError(f"{text!r} must be positive")
    return found


def writable(text: str) -> Path:
    """A file that can be written, as a type of an argument: a wrong one is refused before any work."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; name a file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: no folder {path.parent}; make it, or name another file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written (no permission); name another file")
    return path


def up_to(most: float, kind: type) -> Callable[[str], Any]:
    """A number above 0 and at most `most`, as a type of an argument."""

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
