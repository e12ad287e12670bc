"""No program carries anything from one test to the next: it gets no shared process or cannot tell that it has one."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from state_programs import PROGRAMS

from maxk.grading import Grader, Limits, Submission, purity
from maxk.grading.pool import RAN, Run, Server

INPUTS = ("1\n", "2\n", "3\n", "1\n")
NAMES = [name for name, _ in PROGRAMS]
ADMITTED = {name for name, source in PROGRAMS if purity.is_state_free(ast.parse(source))}


@pytest.fixture(scope="module")
def happened() -> dict[str, Any]:
    """By mode: statuses and outputs of every program; and who got a result from a process that ran several tests."""
    found: dict[str, Any] = {"shared": set()}
    runs = Server._runs

    def watched(self: Server, job: Any, first: int, packet: bytes, files: list[int], *of: Any) -> Iterator[Run]:
        shared, _ = of
        for run in runs(self, job, first, packet, files, *of):
            if shared and run.outcome == RAN:
                found["shared"].add(job.submission.program)
            yield run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Server, "_runs", watched)
        for mode in ("auto", "fork"):
            outputs: dict[str, list[str]] = {name: [] for name in NAMES}
            submissions = []
            for name, source in PROGRAMS:

                def keep(stdin: str, expected: str, output: str, kept: list[str] = outputs[name]) -> bool:
                    kept.append(output)
                    return True

                submissions.append(Submission(source, [(stdin, "") for stdin in INPUTS], checker=keep))
            with Grader(Limits(cpu_s=5, memory_mb=900), workers=2, mode=mode) as grader:
                verdicts = grader.grade(submissions)
            found[mode] = {
                name: (verdict.statuses, outputs[name]) for name, verdict in zip(NAMES, verdicts, strict=True)
            }
    return found


def test_there_are_many_of_both_kinds() -> None:
    assert len(set(NAMES)) == len(PROGRAMS) >= 100
    assert len(ADMITTED) >= 30


@pytest.mark.parametrize("name", NAMES)
def test_no_test_sees_another(name: str, happened: dict[str, Any]) -> None:
    assert happened["auto"][name] == happened["fork"][name]


@pytest.mark.parametrize("name", NAMES)
def test_the_last_test_ends_as_the_first_with_the_same_input(name: str, happened: dict[str, Any]) -> None:
    statuses, outputs = happened["auto"][name]
    assert statuses[0] == statuses[3]
    if len(outputs) == len(INPUTS):
        assert outputs[0] == outputs[3]


def test_what_is_admitted_shares_a_process_unless_it_looks_at_addresses(happened: dict[str, Any]) -> None:
    asks = {name for name in NAMES if name.startswith("address")}
    asks |= {"set_ordered_by_address", "set_of_nans", "set_of_exceptions", "frozen_decimals"}
    fails = {"memory_error_uncaught", "chosen_exit_status"}  # not in order, so run again alone
    shared = {name for name, source in PROGRAMS if source in happened["shared"]}
    assert asks <= ADMITTED
    assert shared == {name for name in ADMITTED - asks - fails if happened["auto"][name][0][0] == "passed"}


CLOCKS = ["time()", "monotonic()", "perf_counter()", "process_time()", "time_ns()", "sleep(1)", "ctime()"]


@pytest.mark.parametrize("call", CLOCKS)
def test_there_is_no_clock(call: str) -> None:
    """How long something takes tells whether memory is fresh and code is warm."""
    for source in (f"import time\ntime.{call}", f"from time import *\n{call}"):
        assert purity.refusal(ast.parse(source)) is not None


SETTING = """
import array, collections, decimal, fractions, functools, io, itertools, json, operator, re, statistics, sys
from maxk.grading.confined.addresses import Addresses
def function(): pass
pairs = collections.namedtuple("T", "x")
nan = float("nan")
"""
REVEALING = """
repr(function)
str(lambda: 0)
f"{function}"
f"{iter([])!r:>40}"
"%s" % function
"%r" % (map(int, []),)
"{}".format(function)
format(function)
ascii(function)
repr([function])
repr({1: function})
repr((x for x in ()))
repr([].append)
repr("".join)
repr(iter([]))
repr(iter(()))
repr(iter(""))
repr(iter("é"))
repr(iter({}))
repr(iter({}.items()))
repr(iter(set()))
repr(iter(range(3)))
repr(iter(range(1 << 70)))
repr(iter(b""))
repr(iter(bytearray()))
repr(iter(int, 1))
repr(reversed([]))
repr(reversed({}))
repr(enumerate([]))
repr(zip())
repr(filter(None, []))
repr(itertools.chain())
repr(itertools.permutations([]))
repr(itertools.groupby([]))
repr(list(itertools.groupby([1])))
repr(itertools.tee([])[0])
repr(itertools.islice([], 1))
repr(iter(collections.deque()))
repr(iter(collections.OrderedDict()))
repr(functools.lru_cache(function))
repr(functools.partial(function))
repr(functools.cmp_to_key(function)(1))
repr(collections.defaultdict(function))
repr(re.finditer("a", "b"))
repr(iter(array.array("b")))
str(KeyError(function))
str(ValueError(function))
{}[iter([])]
[].index(function)
hash(function)
{function}
{function: 1}
{(function, 1)}
{[].append}
{collections.Counter().update}
{nan}
{1.5}
{nan + 1j}
{(1, (nan,))}
{decimal.Decimal("NaN")}
frozenset([frozenset([nan])])
{ValueError()}
{KeyError(1): 1}
{decimal.InvalidOperation()}
{statistics.StatisticsError()}
{json.JSONDecodeError("", "", 0)}
{io.UnsupportedOperation()}
{(x for x in ())}
{iter([])}
{map(int, [])}
{functools.partial(int)}
{functools.lru_cache(function)}
{operator.itemgetter(1)}
{re.match("a", "a")}
{sys.stdin}
{sys.stdin.buffer}
{{}.values()}
collections.Counter([function])
functools.lru_cache(lambda f: 0)(function)
functools.lru_cache(lambda f: 0)(1.5)
""".strip().splitlines()
HARMLESS = """
repr(pairs.x)
repr([1, 1.5, "a", b"b", None, True, (), {1: 2}, {3}, 1j, nan, range(3), int, slice(1), ...])
repr([decimal.Decimal(1), fractions.Fraction(1, 2), collections.Counter("a"), collections.deque([1]), pairs(1)])
repr([array.array("b"), re.compile("a"), re.match("a", "a"), ValueError("x"), collections.ChainMap({}), {}.keys()])
repr([collections.defaultdict(list, {1: [2]}), collections.OrderedDict(a=1), itertools.count(), itertools.repeat(1)])
{1, "a", b"b", None, True, (), (1, ("a",)), frozenset([1]), int, list, len("a"), range(3), ..., fractions.Fraction(1)}
{pairs(1), fractions.Fraction(1, 2), re.compile("a"), bytes(3), 1 << 70, ValueError}
json.loads(json.dumps({"a": [1.5, None, {"b": 1}]}))
statistics.mean([1.5, 2]) + statistics.stdev([1, 2.5]) + statistics.median([1.5])
functools.lru_cache(None)(lambda a, b=1: a)(1, b=("x", None))
re.sub("a", lambda m: m.group() + str(m), "banana")
sorted([1.5, -0.0, nan, 2]), round(2.5), str(1.5), hash("a"), hash(10 ** 30)
__import__("copy").deepcopy([[1], {2: [3.5]}, (function, nan)])
""".strip().splitlines()


def _forked(expressions: list[str]) -> list[int]:
    """Exit statuses of processes, forked from one, that each evaluate one expression after addresses were hidden."""
    script = SETTING + (
        "import os\nready = Addresses()\n"
        f"for code in [compile(expression, '', 'eval') for expression in {expressions!r}]:\n"
        "    if (pid := os.fork()) == 0:\n"
        "        ready.hide()\n"
        "        eval(code)\n"
        "        os._exit(0)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    return [int(line) for line in done.stdout.split()]


def test_a_process_ends_before_it_shows_an_address() -> None:
    ended = dict(zip(REVEALING, _forked(REVEALING), strict=True))
    assert {expression: status for expression, status in ended.items() if status != -signal.SIGABRT} == {}


def test_a_process_that_shows_none_goes_on() -> None:
    ended = dict(zip(HARMLESS, _forked(HARMLESS), strict=True))
    assert {expression: status for expression, status in ended.items() if status != 0} == {}
