"""The shared language: what it must refuse, what it must admit, and that sharing a process changes no verdict."""

from __future__ import annotations

import ast
import gzip
import importlib
import json
import sys
import warnings
from pathlib import Path

import pytest
from honest_programs import PROGRAMS
from hypothesis import given, settings
from hypothesis import strategies as st

from maxk.grading import Grader, Limits, Submission, parsing
from maxk.grading.sandbox import _PRELOAD
from maxk.grading.sharing import language
from maxk.grading.sharing.language import refusal

CORPUS = Path(__file__).with_name("corpus.jsonl.gz")

# Each keeps, finds or changes something that outlives an execution, or prepares to; every one must be refused.
LEAKS = """
import sys; sys.modules["x"] = 1
import sys; sys.argv.append(1)
import sys; sys.path.append("x")
import sys; sys.stdout = 1
import sys; sys.setrecursionlimit = 1
import sys as s; s.stdin = 1
import sys; print(sys._getframe())
import sys; x = sys
import sys; f = [sys][0]
import sys; sys.intern("x")
import sys; sys.exc_info()
import sys; sys.settrace(print)
import sys; sys.stdin.__class__
import math; math.x = 1
import math; del math.pi
import math; (lambda m: m)(math)
import builtins
import os; os.environ["x"] = "1"
import os; os.write(1, b"x")
import random; random.seed(1)
import random; print(random.random())
from random import random; random()
from os import *; open(0)
import threading; threading.Thread(target=print).start()
import signal
import atexit
import gc
import weakref
import ctypes
import types
import inspect
import contextlib
import collections.abc
import os.path
import importlib
from . import x
from collections import Counter; Counter.x = 1
from collections import Counter as C; C.y = 1
from collections import Counter; [Counter][0].x = 1
import collections; collections.Counter.x = 1
from collections import Counter; class A(Counter): pass
from collections import Counter; Counter.update(1)
from heapq import nlargest; nlargest.x = 1
import heapq; heapq.merge.state = 1
from functools import wraps; wraps(print)
from functools import lru_cache; x = lru_cache
from functools import partial; partial(len).func
import re; x = re.I
import re; re.compile("a", re.I)
import re; f = re.sub
import json; json.JSONEncoder
import json; json.dumps.x = 1
from decimal import getcontext; getcontext()
import decimal; decimal.getcontext().prec = 5
import decimal; decimal.DefaultContext
from typing import List; x = List
from typing import List; f = lambda: List[int]
from typing import List; x: (y := List) = 1
from typing import List; def f(x: g(List)): pass
from typing import List; o = 1; def f(x: o[List]): pass
from typing import List; o = 1; def f(x: o | List): pass
from typing import List; o = 1; def f(x: List[o]): pass
import typing; x = typing
import typing; typing.List
from dataclasses import dataclass; x = dataclass
from dataclasses import fields; fields(1)
from dataclasses import field; field().default.x = 1
from dataclasses import field; field()._field_type.x = 1
from decimal import Decimal; try: Decimal('x'); except Exception as e: e.args[0][0].x = 1
from statistics import mean; mean.x = 1
import time; time.sleep(1)
import time; time.process_time()
import string; string.Formatter()
import numpy
print(globals())
print(locals())
print(vars())
print(dir())
exec("x = 1")
eval("1")
compile("1", "", "eval")
open("x")
open(0)
__import__("os")
x = __builtins__
print(__loader__)
print(__spec__)
__name__ = 1; __builtins__ = 2
def __getattr__(n): pass
getattr(1, "x")
setattr(print, "x", 1)
hasattr(1, "x")
delattr(1, "x")
type(1)
type("A", (), {})
id(1)
breakpoint()
help()
memoryview(b"x")
input.__self__
print.__self__.x = 1
(1).__class__
().__class__.__base__.__subclasses__()
[].__class__
"".__doc__
(lambda: 1).__globals__
(lambda: 1).__code__
(lambda: 1).__defaults__
(x for x in ()).gi_frame
(x for x in ()).gi_code
def g(): yield; print(g().gi_frame.f_back)
def f(): pass; f.f_globals
class A: gi_frame = 1; x = (i for i in ()); x.gi_frame
class A: f_back = tb_frame = 1; A().f_back
try: 1/0; except Exception as e: e.__traceback__
try: 1/0; except Exception as e: e.with_traceback(None)
try: 1/0; except Exception as e: e.tb_frame
"{0.__class__}".format(1)
"{0[x]}".format({})
"{:{0.x}}".format(1)
f = "{0.__class__}"; f.format(1)
"x".format_map({})
str.format("{0.__class__}", 1)
x = str.format
class A(metaclass=type): pass
class A: __del__ = print
class A: def __del__(self): pass
class A: def __getattr__(self, n): pass
class A: def __getattribute__(self, n): pass
class A: def __setattr__(self, n, v): pass
class A: def __set_name__(self, o, n): pass
class A: def __init_subclass__(c): pass
class A: def __class_getitem__(c, i): pass
class A: def __instancecheck__(c, i): pass
class A: def __reduce__(self): pass
class A: __class__ = int
class A: def f(self): self.__class__ = int
class A: def f(self): self.__dict__["x"] = 1
class A: def f(self): return super().__getattribute__("x")
super = print; super().__init__
def g(): yield 1; x = g().throw(ValueError)
def g(): yield from (); g().gi_yieldfrom
async def f(): pass
def f(): pass; f.__wrapped__
match 1: case int(real=x): pass
match 1: case object(__class__=x): pass
def g(): try: yield; finally: print(1)
def g(): with x: yield 1
import collections; from collections import defaultdict; defaultdict(list).default_factory
from collections import ChainMap; ChainMap().maps
import sys; sys.stdout.buffer.raw
import sys; sys.stdout.reconfigure(encoding="latin-1")
import sys; sys.stdout.detach()
import sys; sys.stdin.fileno()
import sys; sys.stdin.close_x if 0 else sys.stdin.closed
def f(sys): pass; import sys; sys.stdin
import sys; sys = 5; sys.maxsize
""".strip().splitlines()


def unfold(line: str) -> str:
    """`a; class A: def f(self): x` in one line → the program; blocks nest to the right."""
    lines, depth = [], 0
    for statement in line.split("; "):
        while True:
            head, colon, rest = statement.partition(": ")
            word = head.split(" ")[0]
            block = colon and (word in {"class", "def", "with", "match", "case", "async", "except", "finally"})
            block = block or (colon and head == "try")
            if not block:
                lines.append("    " * depth + statement)
                break
            if word in {"except", "finally"}:
                depth = max(depth - 1, 0)
            lines.append("    " * depth + head + ":")
            depth += 1
            statement = rest
    return "\n".join(lines) + "\n"


def parse(line: str) -> ast.Module:
    try:
        return ast.parse(line)
    except SyntaxError:
        return ast.parse(unfold(line))


@pytest.mark.parametrize("line", LEAKS)
def test_what_may_leak_is_refused(line: str) -> None:
    assert refusal(parse(line)) is not None


ADMITTED = [
    "import sys\ninput = sys.stdin.readline\nprint(input())",
    "import sys, os, threading, random\nprint(sys.maxsize)",
    "from collections import *\nd = defaultdict(list)\nd[1].append(deque())\nprint(Counter('aab'))",
    "from typing import List, Optional\ndef f(x: List[int], t: Optional[int] = None) -> int: pass",
    "from functools import lru_cache\n@lru_cache(None)\ndef f(n): return n\nprint(f(1))",
    "from copy import deepcopy\na = [[1]]\nb = deepcopy(a)\nb[0][0] += 1\nprint(a, b)",
    "print('{:>5} {}'.format(1, 2), f'{1:.3f}', '%d' % 3)",
    "if __name__ == '__main__':\n    print(1)",
    "it = iter(input().split())\nprint(next(it), *it)",
    "a, b = map(int, input().split())\nprint(a if a is not None else b)",
    "from functools import cmp_to_key\nprint(sorted([2, 1], key=cmp_to_key(lambda a, b: a - b)))",
    "sum = 0\nfor x in [1, 2]: sum += x\nprint(sum)",
    "d = {}\nfor k, v in sorted(d.items(), key=lambda p: p[1]): print(k, v)",
    "try:\n    print(int(input()))\nexcept (ValueError, EOFError): print('no')",
    "print(len({x % 3 for x in range(9)}), 2 ** 10)",
    "import sys, math\nprint(math.sqrt(2), 1 / 3, file=sys.stderr)",
    "a = [2, 1]\na.sort\nreversed(a)\nprint\nlambda: a\nprint(a)",  # mistakes without effect
    "print(nothing)",
]

# Whole programs that an earlier, larger language admitted although each kept something for the next test.
KEPT = [
    "def unused(eval): pass\nprint(eval(\"__import__('sys').modules.setdefault('k', [])\"))",
    "def unused(\uff45val): pass\neval('1')",  # a full-width letter: the parser normalises it
    "class A:\n    import sys\nm = A.sys.modules",
    "from sys import modules as x\nclass R:\n    def __radd__(self, o): return 0\nx += R()",
    "from copy import deepcopy\nmemo = {}\ndeepcopy(1, memo)",
    "import copy\ncopy.deepcopy(1, memo={})",
    "from copy import deepcopy as d\nd(*[1, {}])",
    "import json\nclass X:\n    def __exit__(self, t, e, tb): t.seen = 1\nwith X(): json.loads('{')",
    "from dataclasses import dataclass, field\n@dataclass\nclass A:\n    _HAS_DEFAULT_FACTORY: int = 5",
    "def g(): yield from It()\nnext(g())",
    "import sys\nsys.stdout.flush = lambda: None",
    "import sys\ns = sys.stdin\ns.close = print",
    "import sys\ndel sys.stdin.mode",
    "class C: pass",
    "with open(0): pass",
    "def g():\n    yield 1",
    "match 1:\n    case int(real=x): pass",
]


# Each would show an address, or what an earlier execution filled.
SHOWN = [
    "import \uff52\uff45 as q\nprint(q.compile('a').pattern is 'a')",  # full-width letters spell `re`
    "from collections import namedtuple\nprint(set([namedtuple('T', 'a')]))",
    "def at(n): return at(n - 1) if n else 'x'.encode('zz')\ntry:\n    at(990)\nexcept RecursionError: print(1)",
    "try:\n    print(1)\nexcept Exception: pass",
    "try:\n    print(1)\nexcept: pass",
    "print(lambda: 0)",
    "def f(): pass\nprint(f)",
    "def f(): pass\nprint([f])",
    "def f(): pass\ndef g(h): return {h}\nprint(g(f))",
    "def f(): return f\nprint(f())",
    "print(map(int, []))",
    "print((x for x in ()))",
    "print([iter([])])",
    "a = iter([])\nprint(a)",
    "a = iter([])\nb = [a]",
    "print({1: 2}.values())",
    "print({}.keys() & {}.keys())",
    "print(min(map(int, []), map(int, []), key=lambda v: 0))",
    "print(next(iter([]), iter([])))",
    "print(sum([], iter([])))",
    "from functools import reduce\nprint(reduce(max, [], iter([])))",
    "from collections import defaultdict\nprint(defaultdict(lambda: 0))",
    "from functools import cmp_to_key\nk = cmp_to_key(lambda a, b: 0)\nprint(k(1))",
    "from functools import cmp_to_key\nprint(list(map(cmp_to_key(lambda a, b: 0), [1])))",
    "from functools import partial\nprint(partial(int))",
    "import re\nprint(re.search('a', 'a'))",
    "import re\nprint(re.findall('a', 'a', 0.0))",
    "from copy import deepcopy\nprint(deepcopy(*[[], {}]))",
    "print([].append)",
    "a = []\nb = [a.sort]",
    "a = []\nb = a.sort or 1\nprint(b)",
    "def f(): return [].sort\nprint(f())",
    "print(sys.stdin)",
    "print({float('nan')})",
    "print({1e999 - 1e999, 2})",
    "a = 10 ** 308 / 1 * 10\nprint({a - a})",
    "n = int(input())\na = 0 - n\nprint({2 ** a})",
    "print(1 is 1.0)",
    "a = 5\nprint(a is a)",
    "a = object()\nprint(a)",
    "print(hash('a'))",
    "if 0:\n    from functools import reduce as print\nprint(lambda: 0, [1])",
    "if 0:\n    def enumerate(x): pass\nprint(enumerate([]))",
    "if 0:\n    def eval(x): pass\neval('1')",
    "if 0:\n    from math import gcd as eval\neval('1')",
    "import math as len\nlen.x = 1",
    "import json\nprint(json.dumps([], default=print))",
    "print('{0.real}'.format(1))",
    "print(*map(map, [1], [2]))",
    "import sys\nsys.stdout.buffer.raw",
    "def f(**k): return k\nprint(sorted([1], **f(key=1)))",
]


def test_a_name_that_becomes_a_constant_is_not_one() -> None:
    """The parser normalises names (NFKC), and such a tree has no code; the rule refuses it by itself."""
    assert refusal(ast.parse("\U0001d413rue = 1000\nprint(1 is \U0001d413rue)")) is not None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 has type parameters")
def test_type_parameters_are_refused() -> None:
    assert refusal(ast.parse("def f[A, B](x): return {A, B}\nprint(f(1))")) == "TypeVar"
    assert refusal(ast.parse("A = B = 0\ndef f[A, B](x): return {A, B}\nprint(f(1))")) == "TypeVar"


def test_a_part_that_a_later_python_adds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ast.parse("def f(x): return x")
    assert refusal(tree) is None
    monkeypatch.setattr(ast.FunctionDef, "_fields", (*ast.FunctionDef._fields, "later"))
    tree.body[0].later = [ast.withitem(ast.Constant(1))]  # type: ignore[attr-defined]
    assert refusal(tree) == "withitem"


@pytest.mark.parametrize("source", SHOWN)
def test_what_would_show_an_address_or_a_cache_is_refused(source: str) -> None:
    assert refusal(ast.parse(source)) is not None


@pytest.mark.parametrize("source", KEPT)
def test_what_kept_state_once_is_refused(source: str) -> None:
    assert refusal(ast.parse(source)) is not None


@pytest.mark.parametrize("source", ADMITTED)
def test_common_idioms_are_admitted(source: str) -> None:
    assert refusal(ast.parse(source)) is None


def test_most_of_the_corpus_is_admitted() -> None:
    with gzip.open(CORPUS, "rt") as file:
        sources = [json.loads(line)["source"] for line in file]
    assert sum(refusal(ast.parse(source)) is None for source in sources) >= 0.95 * len(sources)


def test_importing_what_may_be_imported_does_nothing() -> None:
    """The fork server has imported it already, on every tier."""
    assert set(_PRELOAD) >= language.MODULES


def test_what_is_listed_exists() -> None:
    """A misspelt entry would admit nothing, and hide that it does not."""
    import builtins

    for name in {*language._CALLS, *(name for _, names in language._LISTED for name in names)} - {"__name__"}:
        module, _, item = name.rpartition(".")
        holder = builtins if not module or module in ("str", "dict") else None
        if holder is None and module not in ("sys.stdin", "sys.stdout"):
            holder = importlib.import_module(module)
        if item == "pairwise" or holder is None or item in ("exit", "quit"):
            continue
        assert hasattr(holder, item) or module in ("str", "dict"), name


def test_methods_hide_no_way_out() -> None:
    methods = {*language._OF_DATA, *language._OF_STREAMS}
    dangerous = "gi_frame f_back f_globals tb_frame default_factory func raw detach reconfigure throw format_map mro"
    assert not methods & set(dangerous.split())
    assert all(not name.startswith("_") for name in methods)


# Programs that behave differently when run twice in one process with the same globals, streams or settings; they are
# admitted or not, but their verdicts must be those of fresh processes.
STATEFUL = [
    "import sys\nprint(sys.getrecursionlimit())\nsys.setrecursionlimit(5000)\n",
    "import sys\ntry: print(len(str(10**5000)))\nexcept ValueError: print('no')\nsys.set_int_max_str_digits(0)\n",
    "try:\n    x\n    print('seen')\nexcept NameError:\n    print('new')\nx = 1\n",
    "from functools import lru_cache\n@lru_cache(None)\ndef f(): return input()\nprint(f(), f.cache_info().currsize)\n",
    "import sys\nprint(sys.stdin.readline())\nsys.stdin.close()\n",
    "import sys\nprint('a')\nsys.stdout.close()\n",
    "class A:\n    n = 0\n    def __init__(self): A.n += 1\nA()\nprint(A.n)\n",
    "def f(x=[]):\n    x.append(1)\n    return len(x)\nprint(f())\n",
    "import random\nprint(random.random() != random.random())\nrandom.seed(1)\n",
    "import decimal\nprint(decimal.getcontext().prec)\ndecimal.getcontext().prec = 3\n",
    "import sys\nprint('mark' in sys.modules)\nsys.modules['mark'] = 1\n",
    "import collections\nprint(hasattr(collections.Counter, 'mark'))\ncollections.Counter.mark = 1\n",
    "import builtins\nprint(hasattr(builtins, 'mark'))\nbuiltins.mark = 1\n",
    "print(sorted(globals().keys()))\n",
    "input()\ninput()\n",
    "n = int(input())\nwhile n == 2: pass\nprint(n)\n",
    "n = int(input())\nif n == 2: a = [0] * 10**9\nprint(n)\n",
    "n = int(input())\nwhile n == 2: print('x' * 1000)\nprint(n)\n",
    "n = int(input())\nif n == 2: raise SystemExit(3)\nprint(n)\n",
    "print(input(), end='')\n",
    "import re\nclass F(int):\n    def __eq__(s, o): print('leak'); return True\n    def __hash__(s): return 0\n"
    "re.compile('q', F(0))\nprint(1)\n",
]


def test_auto_equals_fork_on_honest_stateful_and_corpus_programs() -> None:
    with gzip.open(CORPUS, "rt") as file:
        rows = [json.loads(line) for line in file][::4]
    items = [(row["source"], list(zip(row["inputs"], row["outputs"], strict=True))[:4]) for row in rows]
    items += [(source, [(stdin, "x"), ("1\n", "1\n"), (stdin, "")]) for _, source, stdin in PROGRAMS]
    items += [(source, [("1\n", "1\n"), ("2\n", "2\n"), ("3\n", "3\n")]) for source in STATEFUL]
    outputs: dict[str, dict] = {"auto": {}, "fork": {}}
    statuses = {}
    for mode in outputs:
        submissions = []
        for number, (source, tests) in enumerate(items):

            def keep(stdin: str, expected: str, output: str, number: int = number, mode: str = mode) -> bool:
                outputs[mode].setdefault(number, []).append(output)
                return output.strip() == expected.strip()

            submissions.append(Submission(source, tests, checker=keep))
        with Grader(Limits(cpu_s=0.7, memory_mb=256, output_bytes=11 << 20), mode=mode) as grader:
            statuses[mode] = [verdict.statuses for verdict in grader.grade(submissions)]
    for number, (source, _) in enumerate(items):
        assert statuses["auto"][number] == statuses["fork"][number], source
        assert outputs["auto"].get(number) == outputs["fork"].get(number), source


_NAMES = st.sampled_from(["x", "sys", "math", "Counter", "f", "A", "self", "List", "__builtins__", "g", "print"])
_ATTRIBUTES = st.sampled_from(["append", "x", "gi_frame", "f_back", "stdin", "__class__", "modules", "update", "pi"])
_EXPRESSIONS = st.recursive(
    _NAMES | st.sampled_from(["1", "'a'", "[]", "(i for i in ())"]),
    lambda inner: st.one_of(
        st.builds("{}.{}".format, inner, _ATTRIBUTES),
        st.builds("{}({})".format, inner, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("(lambda x: {})".format, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({}, {})".format, inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=200)
@given(_EXPRESSIONS, _EXPRESSIONS)
def test_no_admitted_expression_reaches_shared_state(target: str, value: str) -> None:
    """Whatever is built from dangerous parts: if admitted, running it changes nothing that another run can see."""
    import collections
    import math
    import sys

    head = (
        "import sys, math\nfrom collections import Counter\ndef f(x): return x\nclass A: pass\nx = A()\ng = self = x\n"
    )
    source = f"{head}try:\n    ({target}).mark = ({value})\nexcept Exception: pass\n"
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    if refusal(tree):
        return
    stdin, stdout = sys.stdin, sys.stdout
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(tree, "x", "exec"), {"__name__": "__main__"})
    for thing in (collections.Counter, math, sys, collections, print, len):
        assert not hasattr(thing, "mark")
    assert (sys.stdin, sys.stdout) == (stdin, stdout)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        vars(stream).pop("mark", None) if hasattr(stream, "__dict__") else None


def test_all_nodes_of_a_program_are_looked_at_in_the_order_of_ast_walk() -> None:
    trees = list(filter(None, (parsing.parse(source) for _, source, _ in PROGRAMS)))
    assert trees
    for tree in trees:
        assert language._nodes(tree) == list(ast.walk(tree))
