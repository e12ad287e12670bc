"""Programs that try to carry something from one test to the next, or to find what belongs to another: (name, source).

Each prints what it found; the tests are inputs 1, 2, 3 and 1 again. Whoever lets one keep something sees other outputs
than a fresh process for every test gives.
"""

from __future__ import annotations

_PROGRAMS = r"""
### closure
def make():
    n = 0
    def more():
        nonlocal n
        n += 1
        return n
    return more
more = make()
print(more(), more(), input())
### default_list
def f(x, seen=[]):
    seen.append(x)
    return seen
print(f(input()), f("b"))
### default_dict_of_a_lambda
f = lambda x, seen={}: seen.setdefault(x, len(seen))
print(f(input()), f("b"), f("c"))
### default_stream
import sys
def say(text, file=sys.stdout, read=sys.stdin.readline):
    print(text, read(), file=file)
say("a")
### mutable_global
try:
    seen.append(input())
except NameError:
    seen = []
print(seen)
### global_of_a_function
def f():
    global late
    try:
        print(late)
    except NameError:
        print("none")
    late = input()
f()
### walrus_out_of_a_comprehension
try:
    print(last)
except NameError:
    print("none")
[last := c for c in input()]
### comprehension_variable
[c for c in input()]
try:
    print(c)
except NameError:
    print("none")
### deleted_builtin
print(len(input()))
len = 5
del len
print(len([1]))
### shadowed_builtin
print(max(1, 2))
max = min
print(max(1, 2))
### unpacked_into_subscripts
a = [0, 0]
a[0], *a[1:] = input(), 2, 3
(a[0], b), c = (a[1], a[2]), a
print(a, b, c)
### unpacked_into_a_module
import sys
try:
    print(sys.kept)
except AttributeError:
    print("none")
sys.kept, b = input(), 1
### loop_into_a_module
import math
print(getattr(math, "kept", None))
for math.kept in input():
    pass
### augmented_module_attribute
import sys
print(sys.maxsize)
sys.maxsize += int(input())
### augmented_shared_list
import sys
print(len(sys.path))
sys.path += [input()]
### modules_cache
import sys
print("kept" in sys.modules)
sys.modules["kept"] = sys
### builtins_module
import builtins
print(hasattr(builtins, "kept"))
builtins.kept = input()
### builtins_by_name
print("kept" in vars(__builtins__))
vars(__builtins__)["kept"] = 1
### function_attribute
def f(): pass
print(hasattr(f, "kept"))
f.kept = input()
### library_function_attribute
import heapq
print(hasattr(heapq.nlargest, "kept"))
heapq.nlargest.kept = 1
### library_class_attribute
from collections import Counter
print(hasattr(Counter, "kept"))
Counter.kept = 1
### library_class_by_instance
from fractions import Fraction
kind = Fraction(1).__class__
print(hasattr(kind, "kept"))
kind.kept = 1
### lru_cache
from functools import lru_cache
@lru_cache(None)
def f(x): return input()
print(f(1), f(1), f.cache_info())
### lru_cache_of_a_builtin
from functools import lru_cache
size = lru_cache(maxsize=2)(len)
print(size(input()), size("12"), size("12"))
### cached_pattern
import re
word = input()
p = re.compile(word)
print(p is re.compile("1"), p is re.compile(word), re.sub(word, "x", "123"))
### full_pattern_cache
import re
first = re.compile("x1")
for i in range(600):
    re.compile("y%d" % i)
print(first is re.compile("x1"), input())
### pattern_flags_as_keys
import re
print(re.compile("a", 0.0 if input() == "1" else 0).pattern)
### typing_cache
from typing import List, Dict
def f(x: List[int], y: Dict[str, List[int]]) -> List[str]: return x
print(f(input(), 1))
### interned_string
from sys import intern
print(intern("k" + input()) is intern("k1"))
### interned_by_a_namedtuple
from collections import namedtuple
name = "field" + input()
T = namedtuple("T", [name])
print(T._fields[0] is name, T(1))
### identity_of_small_values
a, b = int(input()), 1
print(a is b, str(a) is "1", () is tuple([]), "" is input.__name__[:0])
### id
print(id(input()) > 0, id([]) == id([]))
### address_in_a_text
fs = [lambda: 0 for _ in range(200)]
where = [repr(f).split(" at ")[1] for f in fs]
print(len(set(where)), input())
### address_in_an_error
table = {}
try:
    table[lambda: 0]
except KeyError as e:
    print(str(e)[:11])
try:
    [].index(iter(""))
except ValueError as e:
    print(str(e)[:20])
### address_of_a_method
print(str([].append)[:30], f"{'a'.join}"[:10], "%s" % iter([]) != "")
### set_ordered_by_address
fs = [lambda: 0 for _ in range(3)]
print(len(set(fs)), len({f: 0 for f in fs}))
### set_of_nans
a, b = float("nan"), float("nan")
print(next(iter({a, b})) in [a, b], len({a, b}), len({1 + 1j, (b, 2)}))
### set_of_exceptions
try:
    int("x")
except ValueError as e:
    print(len({e, StopIteration()}))
### frozen_decimals
from decimal import Decimal
print(len(frozenset([Decimal("NaN"), Decimal(input())])))
### iterator_of_a_shared_string
import string
it = iter(string.digits)
print(next(it), next(it), input())
### shared_counter
from itertools import count, cycle
c, d = count(), cycle(input())
print(next(c), next(c), next(d))
### abandoned_library_generator
from heapq import merge
it = merge([1, 3], [2])
print(next(it), input())
### raised_recursion_limit
import sys
print(sys.getrecursionlimit())
sys.setrecursionlimit(5000 + int(input()))
### lowered_recursion_limit
import sys
print(input())
sys.setrecursionlimit(8)
### lowest_recursion_limit
import sys
print(input())
for n in range(1, 50):
    try:
        sys.setrecursionlimit(n)
    except RecursionError:
        continue
    break
### recursion_depth_left
def deep(n):
    try:
        return deep(n + 1)
    except RecursionError:
        return n
print(deep(0) == deep(0), input())
### digits_limit
import sys
try:
    print(len(str(10 ** 5000)))
except ValueError:
    print("limited")
sys.set_int_max_str_digits(0 if input() == "1" else 700)
### decimal_precision
import decimal
print(decimal.getcontext().prec, decimal.Decimal(1) / 3)
decimal.getcontext().prec = 3
### decimal_flags
from decimal import Decimal, getcontext, Inexact
print(getcontext().flags[Inexact])
Decimal(1) / 3
### decimal_default_context
import decimal
print(decimal.DefaultContext.prec)
decimal.DefaultContext.prec = 5
### decimal_without_context
from decimal import Decimal
print(Decimal(1) / Decimal(3), Decimal(2).sqrt(), input())
### random_state
import random
print(random.getstate()[1][:2] == (1, 2))
random.setstate((3, (1, 2) + (0,) * 622 + (1,), None))
### random_seed
import random
random.seed(input())
print(random.random())
### locale
import locale
print(locale.setlocale(locale.LC_NUMERIC))
locale.setlocale(locale.LC_NUMERIC, "C" if input() == "2" else "POSIX")
### warnings_filters
import warnings
print(len(warnings.filters))
warnings.simplefilter("error")
### warnings_registry
import warnings
warnings.warn("w" + input())
print(sorted(n for n in globals() if "warn" in n))
### descriptor_position
import os
print(os.lseek(1, 0, os.SEEK_CUR), input())
### descriptor_numbers
import os
print(os.dup(0) == os.dup(0), open("/dev/null").fileno(), input())
### closed_descriptor
import os
print(input(), flush=True)
os.close(0)
### written_past_the_streams
import os
os.write(1, b"direct ")
print(input())
### output_taken_back
import sys
print("wrong")
sys.stdout.seek(0)
sys.stdout.truncate()
print(input())
### output_stream_replaced
import sys, io
print(type(sys.stdout).__name__)
sys.stdout = io.StringIO()
### output_method_replaced
import sys
print("a")
sys.stdout.write = None
### output_left_in_a_buffer
import sys
sys.stdout.buffer.write(b"one ")
sys.stdout.write("two")
keep = sys.stdout.buffer.write
keep(input().encode())
### no_line_end
print(input(), end="")
### input_buffer
import sys
print(sys.stdin.buffer.read(1), sys.stdin.readline())
### input_half_read
import sys
print(sys.stdin.read(1), next(iter(sys.stdin)))
### input_replaced
import sys, io
print(sys.stdin.readline())
sys.stdin = io.StringIO("from before")
### input_closed
import sys
print(sys.stdin.read())
sys.stdin.close()
### frames_of_a_traceback
try:
    1 / 0
except ZeroDivisionError as e:
    frame = e.__traceback__.tb_frame
    print(frame.f_back is None or "attempts" in str(frame.f_back.f_code))
### exception_chain
try:
    raise ValueError(input())
except ValueError as e:
    kept = e
try:
    raise KeyError("k") from kept
except KeyError as e:
    print(e.__context__, e)
### exception_left_behind
import sys
print(sys.exc_info()[0])
raise ValueError(input())
### frame_of_a_generator_expression
g = (c for c in input())
print(g.gi_frame.f_back)
### unfinished_generator_expression
g = (print("late", c) for c in "ab")
print(next(g), input())
### generator_clean_up
def g():
    try:
        yield input()
    finally:
        print("late")
it = g()
print(next(it))
### finaliser
class A:
    def __del__(self):
        print("late")
a = A()
a.self = a
print(input())
### format_reaches_attributes
print("{0.__class__.__mro__}".format(1), "{:{1}}".format(1, 5), input())
### format_by_map
print(*map("{0.real}".format, [1, 2]), str.format("{0.imag}", 1))
### format_string_attributes
print(f"{(1).real} {[].__class__} {input()!r:>{5}}")
### decorator_that_keeps
seen = []
def note(f):
    seen.append(f)
    return f
@note
@note
def g(): return len(seen)
print(g(), input())
### star_import
from sys import *
print(maxsize > 0, "kept" in modules)
modules["kept"] = 1
### star_import_of_operators
from operator import *
import sys
print(attrgetter("modules")(sys) is sys.modules)
### one_name_for_two_things
import math as q
from sys import stdin as q
print(q.readline())
### deepcopy_default
from copy import deepcopy
memo = {}
print(len(deepcopy([[]], memo)), len(memo) > 0)
### json_default_encoder
import json
print(json._default_encoder.indent, json.dumps([1]))
json._default_encoder.indent = 2
### chain_map_default
from collections import ChainMap, OrderedDict
c = ChainMap()
print(len(c), OrderedDict(a=1))
c[input()] = 1
### annotations
x: int = 1
print("x", input())
### annotations_of_the_module
print("y" in __annotations__)
y: int = 1
### last_expression
try:
    print(_)
except NameError:
    print("none")
input()
### environment
import os
print(os.environ.get("KEPT"), os.getcwd())
os.environ["KEPT"] = input()
### garbage_collector
import gc
print(gc.isenabled(), gc.get_threshold())
gc.disable()
### other_objects
import gc
print(sum(type(o).__name__ == "Kept" for o in gc.get_objects()))
class Kept: pass
Kept.itself = Kept
### weak_references
import weakref
class A: pass
a = A()
a.a = a
print(len(weakref.WeakSet([a])), input())
### threads
import threading
print(threading.active_count())
threading.Thread(target=input).start()
### exit_functions
import atexit
print(atexit._ncallbacks())
atexit.register(print, input())
### signals
import signal
print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
### tracing
import sys
print(sys.gettrace(), sys.getprofile())
sys.setprofile(lambda *a: None)
### with_statement
from contextlib import suppress
with suppress(KeyError):
    {}[input()]
print("after")
### match_statement
match input():
    case str(kept):
        print(kept)
### memory_left
from collections import namedtuple
def hoard():
    blocks = [bytes(100_000) for _ in range(7000)]
    return namedtuple("T", ["f%d" % i for i in range(20000)]) if input() == "1" else None
try:
    hoard()
    print(len(bytes(600 << 20)))
except Exception:
    print("full")
### memory_error_dropped_by_finally
def f():
    try:
        return bytes(10 ** 13)
    finally:
        return input()
print(f())
### memory_error_by_another_name
ValueError = Exception
try:
    bytes(10 ** 13)
except ValueError:
    print("caught", input())
### memory_error_by_an_argument
def f(kind):
    try:
        bytes(10 ** 13)
    except kind:
        print("caught", input())
f(Exception)
### memory_error_by_a_tuple
try:
    bytes(10 ** 13)
except (ValueError, BaseException):
    print("caught", input())
### memory_error_uncaught
print(input(), flush=True)
try:
    bytes(10 ** 13)
except ValueError:
    print("caught")
### chosen_exit_status
print(input(), flush=True)
raise SystemExit(251)
### exit_in_a_loop
for i in range(3):
    print(i, input())
    exit()
### numpy_settings
import numpy as np
print(np.get_printoptions()["precision"], np.geterr()["divide"])
np.set_printoptions(precision=3)
np.seterr(all="ignore")
### numpy_random
import numpy as np
np.random.seed(int(input()))
print(np.random.randint(1000))
"""

PROGRAMS: list[tuple[str, str]] = []
for _block in _PROGRAMS.split("### ")[1:]:
    _name, _, _source = _block.partition("\n")
    PROGRAMS.append((_name.strip(), _source))
