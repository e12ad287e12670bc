"""Verdicts beside those of EvalPlus's and LiveCodeBench's own graders, on the same programs and tests.

    python benchmarks/agreement.py --evalplus PYTHON --mbpp mbpp.jsonl.gz --livecodebench FOLDER

PYTHON has evalplus installed; mbpp.jsonl.gz is the file of google-research; FOLDER is a clone of
github.com/LiveCodeBench/LiveCodeBench. Each grader decides whether a program passes all its tests: EvalPlus calls the
functions of MBPP, where ours runs them as programs (`maxk.data.calls`); LiveCodeBench runs programs on standard input,
and ours compares by its rule (`lines`). The programs: right ones, right ones with one change at a random place of their
syntax tree, honest programs with odd idioms, and ways to print an answer.

Prints a table, and every disagreement with what a fresh python3 process says for each test by the benchmark's rule: who
disagrees with it is wrong. Only trusted programs and their mutants are run here: both graders run them unconfined.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CPU_S = 3
TESTS = 3  # of a program; both others stop at the first that fails, or fork once a program


@dataclass
class Sample:
    """A program with its tests, and for EvalPlus the function with its calls."""

    kind: str
    name: str
    program: str
    tests: list[tuple[str, str]]
    function: str = ""
    calls: str = ""  # arguments and value of each, as a Python literal
    code: str = ""  # that defines the function
    unordered: bool = False  # the value holds a dict or set


# ------------------------------------------------------------------------------------------------------------ samples
class _Mutation(ast.NodeTransformer):
    """Changes the node whose turn it is."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.seen = 0

    def _turn(self) -> bool:
        self.seen += 1
        return self.seen - 1 == self.left

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is not int or not self._turn():
            return node
        return ast.copy_location(ast.Constant(node.value + 1), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        swapped = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv}
        if type(node.op) in swapped and self._turn():
            node.op = swapped[type(node.op)]()
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        swapped = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq}
        if type(node.ops[0]) in swapped and self._turn():
            node.ops[0] = swapped[type(node.ops[0])]()
        return self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        return ast.copy_location(ast.Return(None), node) if self._turn() else self.generic_visit(node)


def mutant(source: str, seed: int) -> str | None:
    """`source` with one change; None if there is nothing to change."""
    count = _Mutation(-1)
    count.visit(ast.parse(source))
    if not count.seen:
        return None
    tree = _Mutation(random.Random(seed).randrange(count.seen)).visit(ast.parse(source))
    return ast.unparse(tree) + "\n"


FORMATS = [
    *[("1 2", "1 2 "), ("1 2", " 1 2\n"), ("1 2", "1  2"), ("1 2", "1\n2"), ("1\n2", "1\n\n2"), ("1\n2", "1\r\n2")],
    *[("1", "1.0"), ("1.5", "1.50"), ("0.1", "0.1000001"), ("0", "-0"), ("7", "007"), ("0011", "11"), ("5", "+5")],
    *[("100000", "1e5"), ("1e-9", "0"), ("nan", "nan"), ("inf", "Infinity"), ("YES", "yes"), ("True", "1")],
    *[("12", "１２"), ("10", "1_0"), ("a b", "a\u00a0b"), ("", "\n"), ("x", ""), ("1 x", "1.0 x")],
]


def stdio_samples() -> Iterator[Sample]:
    with gzip.open(ROOT / "tests/grading/corpus.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    for index, row in enumerate(rows):
        tests = list(zip(row["inputs"], row["outputs"], strict=True))[:TESTS]
        yield Sample("right", row["id"], row["source"], tests)
        changed = mutant(row["source"], index)
        if changed is not None:
            yield Sample("mutant", row["id"], changed, tests)
    sys.path.append(str(ROOT / "tests/grading"))
    from honest_programs import PROGRAMS

    for name, source, stdin in PROGRAMS:
        printed, well = plain_python(source, stdin)
        if well and printed.isascii():
            yield Sample("idiom", name, source, [(stdin, printed)])
    for expected, printed in FORMATS:
        yield Sample("format", f"{printed!r} for {expected!r}", f"print({printed!r}, end='')\n", [("\n", expected)])


def mbpp_samples(path: Path) -> Iterator[Sample]:
    from maxk.data.calls import has_no_order, literal_test, parse_assert, reference_program

    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file][::3]
    for row in rows:
        found = [parse_assert(text) for text in row["test_list"]]
        calls = [call for call in found if call is not None]
        if not calls or len(calls) < len(found) or row["test_setup_code"]:
            continue
        given = repr([(call.arguments, call.value) for call in calls])
        code = row["code"].replace("\r\n", "\n")
        for kind, text in (("right", code), ("mutant", mutant(code, row["task_id"]))):
            if text is not None:
                program = reference_program(text, calls, "literal")
                tests = [literal_test(call) for call in calls]
                yield Sample(
                    kind, f"MBPP/{row['task_id']}", program, tests, calls[0].function, given, text, has_no_order(calls)
                )


# ------------------------------------------------------------------------------------------------------------ graders
def plain_python(source: str, stdin: str) -> tuple[str, bool]:
    """What a fresh process prints, and whether it ends well."""
    with tempfile.TemporaryDirectory() as folder:
        script, data = Path(folder, "main.py"), Path(folder, "input.txt")
        script.write_text(source)
        data.write_text(stdin)
        with data.open("rb") as file:
            command = ["prlimit", f"--cpu={CPU_S}", sys.executable, "-s", "-W", "ignore", str(script)]
            environment = {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
            done = subprocess.run(command, stdin=file, capture_output=True, env=environment, cwd=folder, check=False)
    return done.stdout.decode(errors="replace"), done.returncode == 0


def truth(sample: Sample, rule: str) -> bool:
    from maxk.grading import outputs_match

    for stdin, expected in sample.tests:
        printed, well = plain_python(sample.program, stdin)
        same = well and outputs_match(printed.encode(), expected, rule)
        if not same and not (well and sample.unordered and ast.literal_eval(printed) == ast.literal_eval(expected)):
            return False
    return True


def ours(samples: list[Sample], rule: str) -> list[str]:
    from maxk.data.calls import LITERAL_CHECKER
    from maxk.grading import CheckerProgram, Grader, Limits, Submission

    checker = CheckerProgram(LITERAL_CHECKER)
    with Grader(Limits(cpu_s=CPU_S)) as grader:
        given = [Submission(s.program, s.tests, None, checker if s.unordered else None, rule) for s in samples]
        return [", ".join(sorted(set(verdict.statuses))) for verdict in grader.grade(given)]


def in_a_process(function: Callable[[], str], seconds: float) -> str:
    """Both graders disable functions of the process that they run in."""
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def send() -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        theirs.send(function())

    process = multiprocessing.get_context("fork").Process(target=send)
    process.start()
    theirs.close()
    try:
        return str(ours.recv()) if ours.poll(seconds) else "no answer"
    except EOFError:
        return "its process ended"
    finally:
        process.kill()
        process.join()


def livecodebench(folder: Path, samples: list[dict[str, Any]]) -> list[str]:
    sys.path.insert(0, str(folder))
    from lcb_runner.evaluation.testing_util import run_test

    def judge(sample: dict[str, Any]) -> str:
        inputs, outputs = zip(*sample["tests"], strict=True)
        given = {"input_output": json.dumps({"inputs": inputs, "outputs": outputs})}
        results, said = run_test(given, test=sample["program"], timeout=2 * CPU_S)
        passed = len(results) == len(inputs) and all(result is True for result in results)
        return "passed" if passed else str(said.get("error_message")) + " " + str(said.get("error", ""))[:60]

    return [in_a_process(partial(judge, sample), 4 * CPU_S * TESTS) for sample in samples]


def evalplus(samples: list[dict[str, Any]]) -> list[str]:
    from evalplus.eval import untrusted_check

    answers = []
    for sample in samples:
        calls = ast.literal_eval(sample["calls"])
        inputs, values = [list(arguments) for arguments, _ in calls], [value for _, value in calls]
        status, _ = untrusted_check(
            "mbpp", sample["code"], inputs, sample["function"], values, 0, [CPU_S / 4] * len(calls)
        )
        answers.append("passed" if status == "pass" else status)
    return answers


def theirs(python: str, name: str, samples: list[Sample], folder: Path | None) -> list[str]:
    """Runs this file in `python` for one of the others."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([asdict(sample) for sample in samples], file)
        file.flush()
        command = [python, __file__, "--judge", name, "--samples", file.name]
        command += ["--livecodebench", str(folder)] if folder else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    answers: list[str] = json.loads(done.stdout.splitlines()[-1])
    return answers


# ------------------------------------------------------------------------------------------------------------ report
def report(title: str, rule: str, samples: list[Sample], other: list[str]) -> None:
    mine = ours(samples, rule)
    counts: dict[str, Counter[tuple[bool, bool]]] = {}
    different: list[str] = []
    for sample, ours_says, other_says in zip(samples, mine, other, strict=True):
        pair = ours_says == "passed", other_says == "passed"
        counts.setdefault(sample.kind, Counter())[pair] += 1
        if pair[0] != pair[1]:
            plain = "passed" if truth(sample, rule) else "failed"
            different.append(f"| {sample.kind} | {sample.name} | {ours_says} | {other_says} | {plain} |")
    print(f"\n{title}\n\n| programs | both pass | both fail | only maxk passes | only {title} passes |")
    print("|---|---:|---:|---:|---:|")
    for kind, count in counts.items():
        cells = [count[pair] for pair in ((True, True), (False, False), (True, False), (False, True))]
        print(f"| {kind} | {' | '.join(map(str, cells))} |")
    if different:
        print(f"\n| programs | name | maxk | {title} | fresh python3, rule `{rule}` |\n|---|---|---|---|---|")
        print(*different, sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evalplus", metavar="PYTHON")
    parser.add_argument("--mbpp", type=Path)
    parser.add_argument("--livecodebench", type=Path, metavar="FOLDER")
    parser.add_argument("--judge", help=argparse.SUPPRESS)
    parser.add_argument("--samples", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.judge:
        given = json.loads(args.samples.read_text())
        answers = evalplus(given) if args.judge == "evalplus" else livecodebench(args.livecodebench, given)
        print("\n" + json.dumps(answers))
        return
    if args.livecodebench:
        samples = list(stdio_samples())
        report("LiveCodeBench", "lines", samples, theirs(sys.executable, "livecodebench", samples, args.livecodebench))
    if args.evalplus and args.mbpp:
        samples = list(mbpp_samples(args.mbpp))
        report("EvalPlus", "numbers", samples, theirs(args.evalplus, "evalplus", samples, None))


if __name__ == "__main__":
    main()
