"""Honest programs with odd idioms: (name, source, standard input). Each must end here as it ends under plain Python."""

from __future__ import annotations

from textwrap import dedent

_PROGRAMS = r"""
### input_lines | 3\n1\n2\n3\n
n = int(input())
print(sum(int(input()) for _ in range(n)))
### iterate_stdin | a\nb\n\nc
import sys
for line in sys.stdin:
    print(repr(line))
### read_twice | abc\n
import sys
print(repr(sys.stdin.read()), repr(sys.stdin.read()))
### readline_then_read | 1 2\n3 4\n5 6\n
import sys
first = sys.stdin.readline()
print(first.strip(), sys.stdin.read().split())
### open_zero | 4 5\n
print(sum(map(int, open(0).read().split())))
### open_zero_iterate | x\ny\n
for line in open(0):
    print(line.strip().upper())
### stdin_buffer | 10 20\n
import sys
print(sum(map(int, sys.stdin.buffer.read().split())))
### buffer_readline | 7\n8\n
import sys
read = sys.stdin.buffer.readline
print(int(read()) * int(read()))
### dropped_values | 3 1 2\n
a = list(map(int, input().split()))
a.sort
reversed(a)
lambda: a
(x for x in a)
print
print(a)
### unbound_name | 3 1 2\n
a = input()
print(a)
sorted_ = sorte
print(sorted_)
### past_the_end | 1\n
print(input())
try:
    input()
except EOFError:
    print("end")
### past_the_end_uncaught | 1\n
input()
input()
### os_read | 12 34\n
import os
print(os.read(0, os.fstat(0).st_size).split())
### fast_io_template | 3\n1 2 3\n
import os, sys
from io import BytesIO, IOBase
class FastIO(IOBase):
    newlines = 0
    def __init__(self, file):
        self._fd = file.fileno()
        self.buffer = BytesIO()
        self.writable = "x" in file.mode or "r" not in file.mode
        self.write = self.buffer.write if self.writable else None
    def readline(self):
        while self.newlines == 0:
            b = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192))
            self.newlines = b.count(b"\n") + (not b)
            ptr = self.buffer.tell()
            self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)
        self.newlines -= 1
        return self.buffer.readline()
    def flush(self):
        if self.writable:
            os.write(self._fd, self.buffer.getvalue())
            self.buffer.truncate(0), self.buffer.seek(0)
class IOWrapper(IOBase):
    def __init__(self, file):
        self.buffer = FastIO(file)
        self.flush = self.buffer.flush
        self.writable = self.buffer.writable
        self.write = lambda s: self.buffer.write(s.encode("ascii"))
        self.readline = lambda: self.buffer.readline().decode("ascii")
sys.stdin, sys.stdout = IOWrapper(sys.stdin), IOWrapper(sys.stdout)
input = lambda: sys.stdin.readline().rstrip("\r\n")
n = int(input())
print(n, sum(map(int, input().split())))
sys.stdout.flush()
### bytesio_readline | 5\n6\n
import io, os
input = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline
print(int(input()) + int(input()))
### stringio_input | 5\n
import io, sys
sys.stdin = io.StringIO("9\n")
print(input())
### mmap_stdin | 1 2 3\n
import mmap
with mmap.mmap(0, 0, access=mmap.ACCESS_READ) as m:
    print(m.readline().split())
### main_guard | 2\n
def main():
    print(int(input()) ** 2)
if __name__ == "__main__":
    main()
### main_guard_first |
if __name__ == "__main__":
    print("early")
print("late")
### global_statement |
total = 0
def add(x):
    global total
    total += x
for i in range(5):
    add(i)
print(total)
### exit_zero_after_output |
import sys
print("done")
sys.exit(0)
### exit_one_after_output |
import sys
print("done")
sys.exit(1)
### exit_string |
import sys
print("done")
sys.exit("bad")
### exit_256 |
raise SystemExit(256)
### builtin_exit |
print("x")
exit()
### builtin_quit |
print("x")
quit(0)
### os_exit_flushed |
import os, sys
print("kept")
sys.stdout.flush()
os._exit(0)
### os_exit_unflushed |
import os
print("lost")
os._exit(0)
### recursion_deep | 100000\n
import sys
sys.setrecursionlimit(10**6)
def f(n):
    return 0 if n == 0 else 1 + f(n - 1)
print(f(int(input())))
### recursion_default_limit |
def f(n):
    return 0 if n == 0 else 1 + f(n - 1)
print(f(980))
### recursion_error |
def f(n):
    return f(n + 1)
f(0)
### recursion_error_caught |
def f(n):
    return f(n + 1)
try:
    f(0)
except RecursionError:
    print("caught")
### recursion_in_thread | 50000\n
import sys, threading
sys.setrecursionlimit(1 << 25)
threading.stack_size(1 << 26)
def main():
    def f(n):
        return 0 if n == 0 else 1 + f(n - 1)
    print(f(int(input())))
t = threading.Thread(target=main)
t.start()
t.join()
### thread_not_joined |
import threading, time
def work():
    time.sleep(0.05)
    print("from the thread")
threading.Thread(target=work).start()
print("main ends")
### daemon_thread |
import threading, time
threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
print("ends at once")
### thread_pool |
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(lambda x: x * x, range(10))))
### atexit_output |
import atexit, sys
out = []
atexit.register(lambda: sys.stdout.write("\n".join(out)))
out.append("a")
out.append("b")
### atexit_order |
import atexit
atexit.register(print, 1)
atexit.register(print, 2)
print(0)
### del_at_exit |
class A:
    def __del__(self):
        print("gone")
a = A()
print("end")
### own_stream_unflushed |
out = open(1, "w")
out.write("not flushed by hand")
### stdout_replaced |
import io, sys, os
sys.stdout = io.StringIO()
print("hidden")
os.write(1, sys.stdout.getvalue().upper().encode())
### stdout_closed |
import sys
print("before")
sys.stdout.close()
### stdout_buffer |
import sys
sys.stdout.buffer.write(b"raw\n")
sys.stdout.buffer.flush()
print("text")
### no_final_newline |
print("abc", end="")
### print_options |
print(1, 2, 3, sep="-", end="!\n", flush=True)
### stderr_flood |
import sys
for i in range(20000):
    print("noise" * 10, file=sys.stderr)
print("ok")
### big_output |
print("x" * 10_500_000)
### excepthook |
import sys
def hook(kind, error, trace):
    print("hooked", kind.__name__)
sys.excepthook = hook
1 / 0
### uncaught |
print("before")
raise ValueError("x")
### assertion |
assert 1 == 2
### syntax_error |
print("never"
### name_error |
print(undefined_name)
### index_error | 1 2\n
a = input().split()
print(a[5])
### keyboard_interrupt |
raise KeyboardInterrupt
### unicode | naïve café 日本 😀\n
s = input()
print(s[::-1], len(s), s.upper())
### unicode_names |
größe = 3
π = 3.14
print(größe * π)
### bad_utf8_escape |
print("\udcff")
### big_integers | 123456789012345678901234567890\n
n = int(input())
print(n ** 20, pow(n, 65537, 10**9 + 7))
### big_integer_digits |
import sys
sys.set_int_max_str_digits(0)
print(len(str(7 ** 20000)))
### big_integer_digits_refused |
print(len(str(7 ** 20000)))
### decimal_context |
from decimal import Decimal, getcontext
getcontext().prec = 50
print(Decimal(1) / Decimal(7))
### fractions |
from fractions import Fraction
print(sum(Fraction(1, n) for n in range(1, 30)))
### dataclasses_order |
from dataclasses import dataclass, field
@dataclass(order=True)
class Item:
    cost: int
    name: str = field(compare=False, default="x")
    tags: list = field(default_factory=list)
print(sorted([Item(3), Item(1, "a")]), Item(1) < Item(2))
### namedtuple |
from collections import namedtuple
P = namedtuple("P", "x y")
p = P(1, 2)
print(p, p.x + p.y, p._replace(x=5))
### typing_namedtuple |
from typing import NamedTuple
class P(NamedTuple):
    x: int
    y: int = 2
print(P(1))
### enums |
from enum import Enum, auto
class Color(Enum):
    RED = auto()
    BLUE = auto()
print(list(Color), Color["RED"].value)
### pickle_main_class |
import pickle
class A:
    def __init__(self, x):
        self.x = x
print(pickle.loads(pickle.dumps(A(4))).x)
### copy_deepcopy |
import copy
a = [[1], [2]]
b = copy.deepcopy(a)
b[0].append(5)
print(a, b)
### lru_cache |
from functools import lru_cache
@lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(300), fib.cache_info().misses)
### generators |
def gen():
    try:
        while True:
            x = yield
            print("got", x)
    finally:
        print("closed")
g = gen()
next(g)
g.send(1)
g.close()
### generator_left_open |
def gen():
    try:
        yield 1
    finally:
        print("finalised")
g = gen()
print(next(g))
### asyncio_run |
import asyncio
async def main():
    await asyncio.sleep(0.01)
    return [await asyncio.gather(*[asyncio.sleep(0, i) for i in range(3)])]
print(asyncio.run(main()))
### regex |
import re
print(re.findall(r"(\w)(\d+)", "a12 b3"), re.sub("a+", lambda m: str(len(m[0])), "aaab"))
### star_imports |
from math import *
from collections import *
from itertools import *
print(gcd(12, 18), Counter("aab").most_common(1), list(accumulate([1, 2, 3])))
### seeded_random |
import random
random.seed(5)
print(random.randint(1, 10**9), random.sample(range(100), 5))
### set_order |
print({"b", "a", "c"}, hash("x") == hash("x"))
### expanduser |
import os
print(isinstance(os.path.expanduser("~"), str))
### match_statement | 3 4\n
match input().split():
    case [a, b]:
        print(int(a) + int(b))
    case _:
        print("other")
### walrus | 1\n2\n0\n
while (n := int(input())) != 0:
    print(n)
### self_kill |
import os, signal
print("x", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
### signal_alarm |
import signal
def handler(*_):
    print("alarm")
    raise SystemExit(0)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.05)
while True:
    pass
### module_attributes |
import sys
print(__name__, sys.argv[1:], __doc__, sys.modules["__main__"].__name__)
### exec_and_eval |
exec("x = 5")
print(eval("x + 1"))
### inspect_main |
class A:
    pass
print(A.__module__, A.__qualname__, type(A()).__name__)
### exception_chain |
try:
    try:
        1 / 0
    except ZeroDivisionError as e:
        raise ValueError("v") from e
except ValueError as e:
    print(type(e.__cause__).__name__)
### heap_and_bisect |
import heapq, bisect
h = [5, 1, 4]
heapq.heapify(h)
print(heapq.heappop(h), bisect.bisect([1, 3, 5], 3), heapq.nsmallest(2, h), list(heapq.merge([1], [2])))
### linked_list |
class Node:
    def __init__(self, v):
        self.v = v
        self.next = None
a, b = Node(1), Node(2)
a.next = b
while a:
    print(a.v)
    a = a.next
### string_format |
print("{:>5}|{:<5}|{:^5}|{:05d}|{:.3f}|{!r}".format("a", "b", "c", 42, 3.14159, "q"), "%s %d" % ("x", 3))
### datetime_arithmetic |
from datetime import date, timedelta
print(date(2024, 2, 28) + timedelta(days=2))
### json_round_trip |
import json
print(json.dumps(json.loads('{"a": [1, 2.5, null, true]}'), sort_keys=True))
### textwrap_and_string |
import string, textwrap
print(textwrap.fill("aaa bbb ccc", 7), string.ascii_lowercase)
### tempfile_refused_is_handled |
import io
b = io.BytesIO()
b.write(b"abc")
print(b.getvalue())
### time_measured |
import time
t = time.perf_counter()
print(time.perf_counter() >= t)
### crlf_is_kept | abc\r\n
s = input()
print(len(s), repr(s))
### crlf_lines | a b\r\nc\rd\n
import sys
print([len(line) for line in sys.stdin])
### crlf_compared | abc\r\n
print("YES" if input() == "abc" else "NO")
### large_thread_stack | 7\n
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(1 << 30)
def main():
    print(int(input()) * 2)
t = threading.Thread(target=main)
t.start()
t.join()
### stack_limit_infinite | 7\n
import resource
resource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(int(input()) + 1)
### stack_limit_soft | 7\n
import resource
resource.setrlimit(resource.RLIMIT_STACK, [0x10000000, resource.RLIM_INFINITY])
print(int(input()) + 1)
### stdout_replaced_at_the_end | 1\n
import sys, io
print("answer", input())
sys.stdout = io.StringIO()
print("debug")
### stdout_none_at_the_end | 1\n
import sys
print("answer", input())
sys.stdout = None
print("debug")
### stdout_is_stderr | 1\n
import sys
print("answer", input())
sys.stdout = sys.stderr
print("debug")
### stdout_to_devnull | 1\n
import sys, os
print("answer", input())
sys.stdout.flush()
sys.stdout = open(os.devnull, "w")
print("debug")
### stderr_to_devnull | 1\n
import sys, os
sys.stderr = open(os.devnull, "w")
print("answer", input())
### writer_never_flushed | 1\n
import io
out = io.BufferedWriter(io.FileIO(1, "w"))
out.write(input().encode() + b"\n")
### dev_stdin | 1 2\n3\n
print(sum(map(int, open("/dev/stdin").read().split())))
### dev_stdin_lines | 1 2\n3\n
print(len(open("/dev/stdin").readlines()))
### exact_recursion | 5\n
def f(n): return 0 if n == 0 else 1 + f(n - 1)
for n in range(985, 1003):
    try:
        print(n, f(n))
    except RecursionError:
        print(n, "deep")
### exact_recursion_of_a_method | 5\n
class A:
    def f(self, n): return len(str(n)) if n == 0 else 1 + self.f(n - 1)
for n in range(985, 1003):
    try:
        print(n, A().f(n))
    except RecursionError:
        print(n, "deep")
### recursion_limit_is_the_usual | 5\n
import sys
print(sys.getrecursionlimit())
sys.setrecursionlimit(2 ** 31 - 1)
print(sys.getrecursionlimit())
### names_of_streams | 5\n
import sys
print(sys.stdin.name, sys.stdin.encoding, sys.stdin.isatty(), sys.stdout.name, sys.stdout.encoding)
### own_source | 5\n
print(len(open(__file__).read()) > 20, __file__.endswith("main.py"))
### site_builtins | 5\n
print(callable(help), type(exit).__name__, exit)
### a_file_that_is_not_there | 5\n
import sys
try:
    sys.stdin = open("no_such_file.txt")
except FileNotFoundError:
    pass
print(input())
### preferred_encoding | 5\n
import locale
print(locale.getpreferredencoding())
"""


def _parse() -> list[tuple[str, str, str]]:
    programs = []
    for part in _PROGRAMS.split("### ")[1:]:
        head, _, source = part.partition("\n")
        name, _, stdin = head.partition("|")
        programs.append((name.strip(), dedent(source), stdin.strip().encode().decode("unicode_escape")))
    return [(name, source, stdin.encode("latin-1").decode()) for name, source, stdin in programs]


PROGRAMS = _parse()
