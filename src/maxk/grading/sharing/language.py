"""The language of programs that may share a process: an allow-list over the syntax tree.

What is not listed is refused, which costs only time: the program then gets a process of its own for every test.

The invariant: *every value that a program can hold is plain data made by this execution*: numbers, strings, bytes,
None, and lists, tuples, dicts, sets, ranges and deques of them. Functions, iterators, streams, types, exceptions and
modules are second-class: they may only be called, consumed or raised, or be the value of a statement, which is dropped;
they are never put into a container, passed to the program's own functions, or returned. So

* nothing shared can be changed: attributes are never stored, and read only to call a listed method; there are no
  classes, no `with`, no `finally`, no `yield`; of modules only listed items can be named;
* no address can be seen: what Python prints or hashes by address is never a value; `is` compares with None, True or
  False only; a NaN is hashed by address too, so a program has sets or floats, not both;
* nothing lazily filled can be seen: there is no clock, and no handler catches a RecursionError or a MemoryError, which
  end the execution and make the executor (`confined/shared.py`) discard it.

A name has one kind in all scopes of a program, and builtins keep their meaning.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import re

# Kinds: d data, i iterator (streams, too), f function, t type, k sort key, e exception, c exception that may be caught,
# @ decorator. A row gives the kinds of the arguments (i: or data; * repeats the last), that of the result, and names.
# `min` and `max` take an iterator where it is the only argument: of several, one is the result.
_CALLABLES = """
d*  d abs ascii bin bool bytearray bytes chr complex divmod exit float format hex input int max min oct ord pow print
d*  d quit range repr round str sys.exit sys.setrecursionlimit json.dumps json.loads statistics.mean statistics.median
d*  d math.acos math.asin math.atan math.atan2 math.ceil math.comb math.cos math.degrees math.dist math.exp
d*  d math.factorial math.floor math.fmod math.gcd math.hypot math.isclose math.isqrt math.lcm math.log math.log10
d*  d math.log2 math.perm math.pow math.radians math.sin math.sqrt math.tan bisect.bisect bisect.bisect_left
d*  d bisect.bisect_right bisect.insort bisect.insort_left bisect.insort_right heapq.heapify heapq.heappop
d*  d heapq.heappush heapq.heappushpop heapq.heapreplace operator.add operator.and_ operator.mul operator.or_
d*  d operator.sub operator.xor str.maketrans
id* d all any dict frozenset len list next set sorted sum tuple collections.Counter collections.OrderedDict
id* d collections.deque dict.fromkeys math.prod
d   d copy.copy copy.deepcopy
dd  d re.findall
di  d heapq.nlargest heapq.nsmallest
dt  d isinstance
t   d collections.defaultdict
fid* d functools.reduce
i   i iter reversed itertools.cycle itertools.pairwise
id* i enumerate itertools.combinations itertools.combinations_with_replacement itertools.islice itertools.permutations
if  i itertools.accumulate
d*  i itertools.count itertools.repeat
i*  i zip heapq.merge itertools.chain itertools.product itertools.zip_longest
fi* i map filter itertools.starmap itertools.takewhile itertools.dropwhile itertools.filterfalse
f   k functools.cmp_to_key
d*  f operator.itemgetter
d*  @ functools.lru_cache
d*  e ArithmeticError AssertionError AttributeError EOFError Exception IndexError KeyError LookupError OverflowError
d*  e NotImplementedError RuntimeError SystemExit TypeError ValueError ZeroDivisionError
"""
_METHODS = """
d*  d capitalize casefold center count endswith expandtabs find index isalnum isalpha isascii isdecimal isdigit islower
d*  d isnumeric isspace istitle isupper ljust lower lstrip partition removeprefix removesuffix replace rfind rindex
d*  d rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title translate upper zfill bit_count
d*  d bit_length append appendleft clear copy get insert move_to_end pop popitem popleft remove reverse rotate
d*  d setdefault sort add discard hex is_integer most_common total
i*  d difference difference_update extend extendleft intersection intersection_update isdisjoint issubset issuperset
i*  d join subtract symmetric_difference symmetric_difference_update union update
-   d decode encode
-   i elements items keys values
"""
_STREAM_METHODS = "d* d flush read readline readlines write\n i* d writelines"
_OTHERS = """
d __name__ math.e math.inf math.pi math.tau sys.maxsize string.ascii_letters string.ascii_lowercase string.digits
d string.ascii_uppercase string.punctuation
i sys.stdin sys.stdin.buffer sys.stdout sys.stdout.buffer sys.stderr
t bool bytearray bytes dict float frozenset int list set str tuple collections.Counter collections.deque typing.Any
t typing.Callable typing.DefaultDict typing.Deque typing.Dict typing.FrozenSet typing.Iterable typing.List
t typing.Optional typing.Sequence typing.Set typing.Tuple typing.Union
c ArithmeticError AssertionError AttributeError EOFError IndexError KeyError LookupError OverflowError StopIteration
c TypeError ValueError ZeroDivisionError
@ functools.cache functools.lru_cache
"""
MODULES = set(  # that the fork server has imported, so that importing them again does nothing
    "abc array bisect cmath collections copy dataclasses datetime decimal enum fractions functools heapq io "
    "itertools json math operator os queue random re statistics string sys threading time typing".split()
)
_NODES = set(
    "Module AnnAssign Assert Break Continue Delete Expr For FunctionDef Global If Import ImportFrom Nonlocal Pass "
    "Raise Return Try While BinOp AugAssign BoolOp Compare Constant Dict DictComp FormattedValue GeneratorExp IfExp "
    "JoinedStr Lambda ListComp NamedExpr Set SetComp Slice Starred UnaryOp ExceptHandler arguments arg "
    "comprehension".split()
)
_PLACES = dict(  # what takes another kind than data
    place.split(":")
    for place in "For.iter:di comprehension.iter:di Starred.value:di Compare.comparators:di arg.annotation:dt "
    "Raise.exc:e AnnAssign.annotation:dt FunctionDef.returns:dt FunctionDef.decorator_list:@ "
    "ExceptHandler.type:c Expr.value:dif".split()
)
_KEYWORDS = {"key": "fk", "func": "f", "file": "i"} | dict.fromkeys(
    "base default end fillvalue flush indent initial maxlen maxsize repeat reverse sep start step strict".split(), "d"
)
_FLOATS = re.compile(
    r"float|complex|pow|json\.loads|statistics\..*|math\.(?!(?:ceil|comb|factorial|floor|gcd|isqrt|lcm|perm|prod)$).*"
)
_FORMAT = re.compile(r"(?:[^{}]|\{\{|\}\}|\{\w*(?:![rsa])?(?::[^{}]*)?\})*")  # no attribute, no subscript
_BINDERS = ((ast.Import, ast.ImportFrom), (ast.FunctionDef, ast.arg, ast.Assign), (ast.Name,))  # in this order
_PARTS = (ast.expr, ast.stmt, ast.arguments, ast.arg, ast.comprehension, ast.ExceptHandler)
_SYMBOLS = (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.alias)  # nothing to check in them
Signature = tuple[str, str]  # kinds of the arguments and of the result


def _signatures(table: str) -> dict[str, Signature]:
    rows = [line.split() for line in table.strip().splitlines()]
    return {name: (arguments, result) for arguments, result, *names in rows for name in names}


_CALLS, _OF_DATA, _OF_STREAMS = map(_signatures, (_CALLABLES, _METHODS, _STREAM_METHODS))
_OF_PROGRAM: Signature = ("d*", "d")
_LISTED = [(kind, names) for kind, *names in map(str.split, _OTHERS.strip().splitlines())]


class _Refused(Exception):
    """The program is outside the language; the message says where."""


def refusal(tree: ast.Module) -> str | None:
    """None if executions of the program may follow one another in one process, else why they may not."""
    check = _Check()
    try:
        check.names(tree)
        check.parts(tree)
    except _Refused as reason:
        return str(reason)
    except RecursionError:
        return "nested too deeply"
    return "sets and floats" if check.sets and check.floats else None


class _Check:
    """Two walks over a program: the kinds of names, then the kind of every expression against what its place takes."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}  # by name: d, i, f, "module math" or "item math.gcd"
        self.sets = self.floats = False

    def names(self, tree: ast.Module) -> None:
        nodes = _nodes(tree)
        for node in (node for types in _BINDERS for node in nodes if type(node) in types):
            match node:
                case ast.Import() | ast.ImportFrom():
                    self._import(node)
                case ast.FunctionDef(name=name):
                    self._bind(name, "f")
                case ast.arg(arg=name):
                    self._bind(name, "d")
                case ast.Assign(targets=[ast.Name(id=name), *_], value=value):
                    self._bind(name, self._kind_of(value))
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if name not in self.kinds:
                    self._bind(name, "d")
                case ast.Name(id=name) if name not in self.kinds and not _has_value(name):
                    self.kinds[name] = "d"  # reading it is a NameError

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            whole, star = isinstance(node, ast.Import), alias.name == "*"
            module = alias.name if isinstance(node, ast.Import) else "" if node.level else node.module or ""
            if module not in MODULES:
                raise _Refused(f"import of {module}")
            for name in _public_names(module) if star else [alias.name]:
                self._bind(alias.asname or name, f"module {module}" if whole else f"item {module}.{name}", star)

    def _bind(self, name: str, kind: str, star: bool = False) -> None:
        """A builtin's name may only be called where calling the builtin itself, if it is not bound yet, is harmless."""
        if name.startswith("__") or self.kinds.setdefault(name, kind) != kind:
            raise _Refused(f"{name} of two kinds")
        alike = kind in "fi" or "f" in _kinds_of(kind.removeprefix("item "))  # takes and gives what such builtins do
        if kind != "d" and hasattr(builtins, name) and not star and not (alike and "f" in _kinds_of(name)):
            raise _Refused(f"{name} rebound")

    def _kind_of(self, value: ast.expr) -> str:
        """The kind of a name that `value` is assigned to."""
        if isinstance(value, ast.Call):
            return _CALLS.get(self._library_name(value.func), _OF_PROGRAM)[1]
        kinds = _kinds_of(self._library_name(value))
        if isinstance(value, ast.GeneratorExp) or "i" in kinds:
            return "i"
        is_method = isinstance(value, ast.Attribute) and "d" not in kinds
        return "f" if is_method or isinstance(value, ast.Lambda) or "f" in kinds else "d"

    def _library_name(self, node: ast.expr) -> str:
        """`len` of a builtin, `math.gcd` of a library item however imported; "" of what the program binds."""
        if isinstance(node, ast.Name):
            return self.kinds.get(node.id, f" {node.id}").partition(" ")[2]
        base = self._library_name(node.value) if isinstance(node, ast.Attribute) else ""
        return f"{base}.{node.attr}" if isinstance(node, ast.Attribute) and base else ""

    def expect(self, node: ast.AST, kinds: str) -> None:
        """Checks a node and all below it; refuses one that is not one of `kinds`."""
        if self._visit(node).isdisjoint(kinds):
            raise _Refused(f"{ast.unparse(node)} is not one of {kinds}")

    def _visit(self, node: ast.AST) -> set[str]:
        """Checks a node and all below it, and returns its possible kinds."""
        kinds: set[str] = getattr(self, f"_{type(node).__name__}", self.parts)(node)
        return kinds

    def parts(self, node: ast.AST) -> set[str]:
        kind = type(node).__name__
        if kind not in _NODES or getattr(node, "finalbody", None):
            raise _Refused(kind)
        for field in node._fields:
            value = getattr(node, field, None)
            for part in value if isinstance(value, list) else (value,):
                if isinstance(part, _PARTS):
                    self.expect(part, _PLACES.get(f"{kind}.{field}", "d"))
                elif isinstance(part, ast.AST) and not isinstance(part, _SYMBOLS):
                    raise _Refused(type(part).__name__)  # such as the type parameters of Python 3.12
        if isinstance(node, ast.ExceptHandler) and (node.name or not node.type):
            raise _Refused("a handler of everything, or with a name")
        self._note(node)
        return {{"Lambda": "f", "GeneratorExp": "i"}.get(kind, "d")}

    def _note(self, node: ast.AST) -> None:
        """Records what makes sets, or floats even of integers: division, a power that may have a negative exponent."""
        self.sets |= isinstance(node, (ast.Set, ast.SetComp))
        self.floats |= isinstance(node, ast.Constant) and isinstance(node.value, (float, complex))
        if isinstance(node, (ast.BinOp, ast.AugAssign)):
            right = node.right if isinstance(node, ast.BinOp) else node.value
            natural = isinstance(right, ast.Constant) and isinstance(right.value, int)
            self.floats |= isinstance(node.op, ast.Div) or (isinstance(node.op, ast.Pow) and not natural)

    def _Constant(self, node: ast.Constant) -> set[str]:
        self._note(node)
        return set("dtf") if node.value is None else {"d"}

    def _Name(self, node: ast.Name) -> set[str]:
        kind = self.kinds.get(node.id, " ")
        if kind != "d" and not isinstance(node.ctx, ast.Load):
            raise _Refused(f"{node.id} of two kinds")
        return self._library(self._library_name(node)) if " " in kind else {kind}

    def _Attribute(self, node: ast.Attribute) -> set[str]:
        if not isinstance(node.ctx, ast.Load):
            raise _Refused(f"stores .{node.attr}")
        name = self._library_name(node)
        return self._library(name) or _usable(self._signature(node))

    def _library(self, name: str) -> set[str]:
        self.sets |= name in ("set", "frozenset")
        self.floats |= bool(_FLOATS.fullmatch(name))
        return _kinds_of(name)

    def _signature(self, node: ast.expr) -> Signature:
        """How to call what `node` names."""
        if isinstance(node, ast.Name) and self.kinds.get(node.id) == "f":
            return _OF_PROGRAM
        name = self._library_name(node)
        self._library(name)
        found = _CALLS.get(name) or (self._method(node) if isinstance(node, ast.Attribute) else None)
        if found is None:
            raise _Refused(f"call of {ast.unparse(node)}")
        return found

    def _method(self, node: ast.Attribute) -> Signature | None:
        kinds = self._visit(node.value)  # once, or a chain of n calls would take 2ⁿ steps
        if hasattr(builtins, self._library_name(node.value)):  # `str.strip`
            return _OF_DATA.get(node.attr) if "t" in kinds else None
        if "d" not in kinds:
            return _OF_STREAMS.get(node.attr) if "i" in kinds else None
        text = node.value.value if isinstance(node.value, ast.Constant) else None
        if node.attr == "format" and isinstance(text, str) and _FORMAT.fullmatch(text):
            return _OF_PROGRAM
        return _OF_DATA.get(node.attr)

    def _Call(self, node: ast.Call) -> set[str]:
        signature = self._signature(node.func)
        letters, repeats = signature[0].rstrip("*-"), signature[0].endswith("*")
        least = len(node.args) == 1 and self._library_name(node.func) in ("max", "min")
        for index, argument in enumerate(node.args):
            left = letters[min(index, len(letters) - 1) :] if repeats else letters[index:]
            if not left or (isinstance(argument, ast.Starred) and (not repeats or set(left) & set("ft"))):
                raise _Refused("arguments")
            self.expect(argument, "di" if least or left[0] == "i" else left[0])
        for keyword in node.keywords:
            takes = "d" if signature is _OF_PROGRAM and keyword.arg else _KEYWORDS.get(keyword.arg or "", "")
            self.expect(keyword.value, takes)
        return {signature[1]}

    def _Compare(self, node: ast.Compare) -> set[str]:
        for sign, right in zip(node.ops, node.comparators, strict=True):
            constant = isinstance(right, ast.Constant) and (right.value is None or isinstance(right.value, bool))
            if isinstance(sign, (ast.Is, ast.IsNot)) and not constant:
                raise _Refused("is")
        return self.parts(node)

    def _Tuple(self, node: ast.Tuple | ast.List) -> set[str]:
        """A sequence of data, or of types or exceptions where these are allowed."""
        return set("dtc" if node.elts else "d").intersection(*map(self._visit, node.elts))

    _List = _Tuple

    def _Subscript(self, node: ast.Subscript) -> set[str]:
        kinds = self._visit(node.value) & set("dt")
        self.expect(node.slice, "".join(kinds))
        return kinds

    def _Assign(self, node: ast.Assign) -> set[str]:
        first, alone = node.targets[0], len(node.targets) == 1
        kind = self.kinds[first.id] if isinstance(first, ast.Name) else "d"
        self.expect(node.value, "di" if alone and isinstance(first, (ast.Tuple, ast.List)) else kind)
        for target in [] if alone and kind != "d" else node.targets:
            self.expect(target, "d")
        return {"d"}


def _nodes(tree: ast.AST) -> list[ast.AST]:
    """The nodes of `ast.walk`, in its order, in half of its time."""
    found = [tree]
    for node in found:
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                found += [part for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


def _has_value(name: str) -> bool:
    """Whether a name that the program does not bind may have a value."""
    return name.startswith("__") or hasattr(builtins, name)


@functools.cache
def _kinds_of(name: str) -> set[str]:
    """The kinds of a builtin or a library item; empty if it is not listed."""
    kinds = {kind for kind, names in _LISTED if name in names}
    signature = _CALLS.get(name, ("", ""))
    return kinds | _usable(signature) | ({"e"} & set(signature[1]))


def _usable(signature: Signature) -> set[str]:
    """A function may be given to another one unless it takes functions or types, or gives anything but data."""
    return {"f"} if signature[1] == "d" and not set(signature[0]) & set("ft") else set()


def _public_names(module: str) -> list[str]:
    found = importlib.import_module(module)
    names: list[str] | None = getattr(found, "__all__", None)
    return names or [name for name in vars(found) if not name.startswith("_")]
