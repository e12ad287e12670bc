"""A sound, default-deny check that one execution of a program cannot influence the next one in the same process.

`is_state_free(tree)` may refuse harmless programs (they get one process per test); it must never admit a program that
can keep, find or change anything that outlives one execution with fresh globals and fresh standard streams.

Why it is sound. The invariant is: *every value the program can hold is immutable or was made during this execution.*

1. It holds at the start: the globals are fresh and hold only constants; of the builtins only those in `_BUILTINS` can
   be named, all immutable C objects; the name of any other builtin is refused even where the program binds it, for it
   may not be bound where it is read; no name with two leading underscores but `__name__` can be named at all.
2. Imports keep it: of a library module only the listed attributes can be named. A module itself is never a value (its
   name may stand only before `.attribute`). Of its attributes, immutable ones (C functions, static types, numbers,
   strings: decided from the object itself by `_is_immutable`) may be used freely; Python-level functions and classes,
   which have a writable `__dict__`, may only be called or used as decorators, never held; `sys.stdin` and the like are
   made anew for each execution; `typing` names may stand only in annotations.
3. Attribute access keeps it: no name that begins with two underscores (but `super().__init__`), and no name that any
   builtin or library type reachable from here has, unless listed in `_METHODS` as yielding only new or own values. So
   frames, code, globals, tracebacks, buffers and default factories are out of reach, whatever the receiver is.
   `str.format` reaches attributes by text: allowed only on literals without them.
4. Attributes are never stored or deleted: methods of streams and library objects stay what they are.
5. Nothing of the program runs after its end, and no library code calls back into it with objects of its own: there are
   no classes (so no `__del__`, `__exit__`, `__radd__`, hooks of dataclasses or of `deepcopy`), no generator functions
   (no clean-up when collected), no threads, signals, atexit, async. Settings a program may change through the listed
   calls (recursion limit, integer digits) and caches of library functions, whose keys may be objects of the program,
   are reset by the executor (`execution.py`), which also frees what an execution leaves.
6. What an execution leaves in the allocator cannot be seen by the next. There is no clock. How much memory is left
   shows where an allocation fails, but nothing admitted here survives a MemoryError to tell: handlers name exceptions
   of a list, and there is no `finally`. Addresses show in texts and hashes of objects: the executor ends the process
   before it gives one (`addresses.py`).

Anything this module does not know, a syntax node included, is refused.
"""

from __future__ import annotations

import array
import ast
import builtins
import collections
import dataclasses
import decimal
import fractions
import functools
import importlib
import io
import re
import string
import sys
import types
from typing import Any

_BUILTINS = frozenset(
    """
    abs all any ascii bin bool bytearray bytes callable chr complex dict divmod enumerate filter float
    format frozenset hex input int isinstance issubclass iter len list map max min next oct ord pow print
    range repr reversed round set slice sorted str sum tuple zip Ellipsis NotImplemented
    exit quit
    ArithmeticError AssertionError AttributeError BaseException EOFError Exception FloatingPointError
    ImportError IndexError KeyError KeyboardInterrupt LookupError NameError NotImplementedError OSError OverflowError
    RecursionError RuntimeError StopIteration SyntaxError SystemExit TypeError UnboundLocalError UnicodeDecodeError
    UnicodeEncodeError UnicodeError ValueError ZeroDivisionError
    """.split()
)

# What may be named of each module. A module with an empty list may be imported (people import more than they use).
_LIBRARY: dict[str, frozenset[str]] = {
    name: frozenset(attributes.split())
    for name, attributes in {
        "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
        "cmath": "acos asin atan cos e exp inf isclose isfinite isinf isnan log log10 nan phase pi polar rect sin sqrt "
        "tan tau",
        "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
        "copy": "copy deepcopy",
        "dataclasses": "",
        "decimal": "Decimal ROUND_CEILING ROUND_DOWN ROUND_FLOOR ROUND_HALF_DOWN ROUND_HALF_EVEN ROUND_HALF_UP "
        "ROUND_UP",
        "fractions": "Fraction",
        "functools": "cache cmp_to_key lru_cache partial reduce",
        "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
        "itertools": "accumulate batched chain combinations combinations_with_replacement compress count cycle "
        "dropwhile filterfalse groupby islice pairwise permutations product repeat starmap takewhile tee zip_longest",
        "json": "dumps loads",
        "math": "acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf erfc exp "
        "exp2 expm1 fabs factorial floor fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm "
        "ldexp lgamma log log10 log1p log2 modf nan nextafter perm pi pow prod radians remainder sin sinh sqrt "
        "sumprod tan tanh tau trunc ulp",
        "operator": "abs add and_ concat contains countOf eq floordiv ge getitem gt index indexOf inv invert "
        "itemgetter le lshift lt mod mul ne neg not_ or_ pos pow rshift sub truediv truth xor",
        "re": "compile escape findall finditer fullmatch match search split sub subn",
        "statistics": "fmean geometric_mean harmonic_mean mean median median_high median_low mode multimode pstdev "
        "pvariance stdev variance",
        "string": "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits printable punctuation "
        "whitespace",
        "sys": "exit getrecursionlimit maxsize set_int_max_str_digits setrecursionlimit stderr stdin stdout",
        "time": "",
        "abc": "",
        "array": "array",
        "datetime": "",
        "enum": "",
        "io": "",
        "os": "",
        "queue": "",
        "random": "",
        "threading": "",
    }.items()
}
_TYPING = frozenset(
    """
    Any Callable DefaultDict Deque Dict FrozenSet Generator Hashable Iterable Iterator List Mapping MutableMapping
    NoReturn Optional Sequence Set Tuple Union
    """.split()
)
# What a handler may catch: not MemoryError, nor anything it is derived from.
_CAUGHT = frozenset(
    name
    for name in _BUILTINS
    if isinstance(kind := getattr(builtins, name), type)
    and issubclass(kind, BaseException)
    and not issubclass(MemoryError, kind)
)
_FRESH = frozenset({("sys", "stdin"), ("sys", "stdout"), ("sys", "stderr")})  # made anew for each execution

# Attributes of builtin and library values that yield only immutable, new, or the program's own values.
_METHODS = frozenset(
    """
    capitalize casefold center count encode endswith expandtabs find index isalnum isalpha isascii isdecimal isdigit
    isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip maketrans partition
    removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip
    swapcase title translate upper zfill decode hex fromhex
    append clear copy extend insert pop remove reverse sort
    fromkeys get items keys popitem setdefault update values
    add difference difference_update discard intersection intersection_update isdisjoint issubset issuperset
    symmetric_difference symmetric_difference_update union
    appendleft extendleft popleft rotate maxlen elements most_common subtract total move_to_end new_child
    as_integer_ratio bit_length bit_count conjugate from_bytes imag is_integer real to_bytes numerator denominator
    limit_denominator quantize normalize to_integral_value sqrt copy_abs
    read readline readlines write writelines flush buffer
    group groups groupdict start end span search match findall finditer fullmatch sub subn pattern string
    cache_clear step stop tolist from_iterable value name
    """.split()
)

_NODES = frozenset(
    getattr(ast, name)
    for name in """
    Module Expression FunctionDef Lambda Return Delete Assign AugAssign AnnAssign For While If Raise Try
    Assert Import ImportFrom Global Nonlocal Expr Pass Break Continue BoolOp NamedExpr BinOp UnaryOp IfExp Dict Set
    ListComp SetComp DictComp GeneratorExp Compare Call FormattedValue JoinedStr Constant Attribute
    Subscript Starred Name List Tuple Slice comprehension ExceptHandler arguments arg keyword alias
    Load Store Del And Or Add Sub Mult MatMult Div Mod Pow LShift RShift BitOr BitXor BitAnd FloorDiv Invert Not UAdd
    USub Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn
    """.split()
)


def _generator() -> Any:
    yield


def _is_immutable(value: object) -> bool:
    """Whether no attribute of `value` can be set: C functions, numbers, strings, static or immutable types."""
    if isinstance(value, (types.BuiltinFunctionType, int, float, str)):
        return type(value) in (types.BuiltinFunctionType, int, float, str)
    heap_type, immutable_type = 1 << 9, 1 << 8
    return isinstance(value, type) and (not value.__flags__ & heap_type or bool(value.__flags__ & immutable_type))


def _reachable_attributes() -> frozenset[str]:
    """Names of all attributes of every builtin and library type of which a checked program could hold a value."""
    function = types.FunctionType((lambda: None).__code__, {})
    held: list[object] = [getattr(builtins, name) for name in dir(builtins)]
    held += [
        function,
        function.__code__,
        _generator(),
        sys._getframe(),
        [].append,
        [].__add__,
        list.append,
        len,
    ]
    held += [
        types.TracebackType,
        types.CoroutineType,
        types.AsyncGeneratorType,
        types.MappingProxyType,
        types.ModuleType,
    ]
    held += [
        types.CellType,
        types.GenericAlias,
        types.UnionType,
        types.SimpleNamespace,
        types.MemberDescriptorType,
    ]
    held += [
        io.TextIOWrapper,
        io.BufferedReader,
        io.BufferedWriter,
        io.FileIO,
        io.BytesIO,
        io.IncrementalNewlineDecoder,
    ]
    held += [
        re.Pattern,
        re.Match,
        iter([]),
        iter(()),
        iter(""),
        iter({}),
        iter(set()),
        iter(range(1)),
        reversed([]),
    ]
    held += [{}.keys(), {}.values(), {}.items(), ast.AST]
    for module_name, attributes in _LIBRARY.items():
        module = importlib.import_module(module_name)
        held += [getattr(module, name) for name in attributes if hasattr(module, name)]
    # instances, because what a constructor sets is not among a class's attributes; `field()` holds shared sentinels
    held += [dataclasses.field(), collections.ChainMap(), collections.Counter(), fractions.Fraction(1)]
    held += [decimal.Decimal(1), array.array("b"), collections.namedtuple("T", "")()]
    held += [functools.lru_cache(function), functools.partial(len), functools.cmp_to_key(lambda a, b: 0)]
    names: set[str] = set()
    for value in held:
        names.update(dir(value))
        names.update(dir(type(value)))
    return frozenset(names)


_ATTRIBUTES_OF_OTHERS = _reachable_attributes() - _METHODS
_INTROSPECTION = ("gi_", "ag_", "cr_", "f_", "tb_", "co_", "func_")
_FREE_ITEMS = frozenset(
    (module, name)
    for module, names in _LIBRARY.items()
    for name in names
    if (module, name) in _FRESH or _is_immutable(getattr(importlib.import_module(module), name, None))
)
_STAR_NAMES = {
    module: frozenset(
        getattr(importlib.import_module(module), "__all__", None)
        or [name for name in dir(importlib.import_module(module)) if not name.startswith("_")]
    )
    for module in _LIBRARY
}


_BINDING = frozenset(
    {ast.Name, ast.arg, ast.FunctionDef, ast.ExceptHandler, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom}
)


def _children(node: ast.AST) -> list[ast.AST]:
    """`ast.iter_child_nodes`, several times as fast."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif type(value) is list:
            found += [item for item in value if isinstance(item, ast.AST)]
    return found


class _Refused(Exception):
    """The program is not provably state-free; the message says why."""


class _Check:
    """One walk over one program; raises `_Refused` at the first thing that is not known to be harmless."""

    def __init__(self, tree: ast.Module) -> None:
        self.modules: dict[str, str] = {}  # local name → module
        self.items: dict[str, set[tuple[str, str]]] = {}  # local name → library items it may stand for
        self.typing: set[str] = set()
        self.stored: set[str] = set()  # names bound by anything but an import
        nodes: list[ast.AST] = [tree]
        for node in nodes:  # grows as it is walked
            self._collect(node)
            nodes += _children(node)
        if self.stored & (self.modules.keys() | self.items.keys() | self.typing) or self.modules.keys() & self.items:
            raise _Refused("rebinds an imported name")
        self.pending: list[ast.AST] = [tree]
        while self.pending:
            node = self.pending.pop()
            visitor = _VISITORS.get(type(node))
            if visitor is None:
                self.pending += _children(node)
            else:
                visitor(self, node)

    def _later(self, *nodes: ast.AST | None) -> None:
        self.pending += [node for node in nodes if node is not None]

    # first pass: what every name may stand for

    def _collect(self, node: ast.AST) -> None:
        kind = type(node)
        if kind not in _NODES:
            raise _Refused(kind.__name__)
        if kind in _BINDING:
            self._collect_binding(node)

    def _collect_binding(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                _plain_name(node.id)
                self.stored.add(node.id)
        elif isinstance(node, ast.arg):
            _plain_name(node.arg)
            self.stored.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ExceptHandler)) and node.name is not None:
            _plain_name(node.name)
            self.stored.add(node.name)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            for name in node.names:
                _plain_name(name)
        elif isinstance(node, ast.Import):
            self._collect_import(node)
        elif isinstance(node, ast.ImportFrom):
            self._collect_import_from(node)

    def _collect_import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name != "typing" and alias.name not in _LIBRARY:
                raise _Refused(f"import {alias.name}")
            bound = alias.asname or alias.name
            _plain_name(bound)
            if self.modules.setdefault(bound, alias.name) != alias.name:
                raise _Refused(f"two modules named {bound}")

    def _collect_import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for alias in node.names:
            bound = alias.asname or alias.name
            if node.level == 0 and (module, alias.name) == ("__future__", "annotations"):
                continue
            if node.level == 0 and module == "typing" and (alias.name == "*" or alias.name in _TYPING):
                self.typing |= _TYPING if alias.name == "*" else {bound}
            elif node.level or module not in _LIBRARY:
                raise _Refused(f"from {module} import")
            elif alias.name == "*":
                for item in _STAR_NAMES[module]:
                    self.items.setdefault(item, set()).add((module, item))
            else:
                self.items.setdefault(bound, set()).add((module, alias.name))
            _plain_name(bound)

    # second pass: what is done with them

    def _nothing(self, node: ast.AST) -> None:
        """Wholly checked in the first pass."""

    def _name(self, node: ast.Name, called: bool = False) -> None:
        name = node.id
        if not isinstance(node.ctx, ast.Load) or name == "__name__":
            return
        _plain_name(name)
        if name in self.modules or name in self.typing:
            raise _Refused(f"{name} used as a value")
        for module, item in self.items.get(name, ()):
            self._library_item(module, item, called)
        known = name in self.stored or name in self.items or name in _BUILTINS
        if not known:
            raise _Refused(f"name {name}")

    def _library_item(self, module: str, item: str, called: bool) -> None:
        if item not in _LIBRARY.get(module, ()):
            raise _Refused(f"{module}.{item}")
        if (module, item) not in _FREE_ITEMS and not called:
            raise _Refused(f"{module}.{item} used as a value")

    def _attribute(self, node: ast.Attribute, called: bool = False) -> None:
        base, name = node.value, node.attr
        if not isinstance(node.ctx, ast.Load):
            raise _Refused(f"stores .{name}")
        if isinstance(base, ast.Name) and base.id in self.modules:
            self._library_item(self.modules[base.id], name, called)
            return
        if not _harmless_read(base, name):
            raise _Refused(f".{name}")
        self._later(base)

    def _called(self, node: ast.expr) -> None:
        """`node` stands where it is called at once, so that a Python-level library function may stand there."""
        if isinstance(node, ast.Name):
            self._name(node, called=True)
        elif isinstance(node, ast.Attribute):
            self._attribute(node, called=True)
        else:
            self._later(node)

    def _call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        copies = name in ("copy", "deepcopy") or ("copy", "deepcopy") in self.items.get(name, ())
        if copies and (node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args)):
            raise _Refused("copies with a memo")
        if copies and len(node.args) > 1:  # `deepcopy(x, memo)` hands its own mutable default to the memo
            raise _Refused("copies with a memo")
        self._called(node.func)
        self._later(*node.args, *node.keywords)

    def _function(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self._called(decorator)
        self._later(node.args, *node.body)
        self._annotation(node.returns)

    def _try(self, node: ast.Try) -> None:
        if node.finalbody:  # it could leave a function, or raise something else, and so drop a MemoryError
            raise _Refused("finally")
        self.pending += _children(node)

    def _handler(self, node: ast.ExceptHandler) -> None:
        for kind in node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]:
            name = kind.id if isinstance(kind, ast.Name) else ""
            if name not in _CAUGHT or name in self.stored or name in self.items:
                raise _Refused("a handler that may catch MemoryError")
        self._later(*node.body)

    def _argument(self, node: ast.arg) -> None:
        self._annotation(node.annotation)

    def _annotated(self, node: ast.AnnAssign) -> None:
        self._later(node.target, node.value)
        self._annotation(node.annotation)

    def _annotation(self, node: ast.expr | None) -> None:
        """Typing caches what it is subscripted with, so only classes and types may stand in an annotation."""
        if node is None or isinstance(node, ast.Constant):
            return
        if isinstance(node, (ast.Tuple, ast.List)):
            for element in node.elts:
                self._annotation(element)
        elif isinstance(node, ast.Subscript):
            self._annotation(node.value)
            self._annotation(node.slice)
        elif isinstance(node, ast.Name):
            self._annotation_name(node)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = self.modules.get(node.value.id)
            if module != "typing" or node.attr not in _TYPING:
                raise _Refused(f"annotation .{node.attr}")
        else:
            raise _Refused("annotation")

    def _annotation_name(self, node: ast.Name) -> None:
        if node.id in self.stored:
            raise _Refused(f"annotation {node.id}")
        if node.id not in self.typing:
            self._name(node, called=True)


_OTHER_BUILTINS = frozenset(dir(builtins)) - _BUILTINS


def _plain_name(name: str) -> None:
    """A name that means nothing but what the program binds, or a builtin of the list."""
    if name.startswith("__") or name in _OTHER_BUILTINS:
        raise _Refused(name)


def _harmless_read(base: ast.expr, name: str) -> bool:
    """Whether reading `.name`, on whatever value, can yield only values the program may hold."""
    if name in _METHODS:
        return True
    if name == "format" and isinstance(base, ast.Constant):
        return _harmless_format(base.value)
    return not name.startswith(("__", *_INTROSPECTION)) and name not in _ATTRIBUTES_OF_OTHERS


_VISITORS: dict[type[ast.AST], Any] = {
    ast.Import: _Check._nothing,
    ast.ImportFrom: _Check._nothing,
    ast.Name: _Check._name,
    ast.Attribute: _Check._attribute,
    ast.Call: _Check._call,
    ast.FunctionDef: _Check._function,
    ast.Try: _Check._try,
    ast.ExceptHandler: _Check._handler,
    ast.arg: _Check._argument,
    ast.AnnAssign: _Check._annotated,
}


def _harmless_format(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        fields = [(name or "", spec or "") for _, name, spec, _ in string.Formatter().parse(text)]
        fields += [(n or "", s or "") for _, spec in fields for _, n, s, _ in string.Formatter().parse(spec)]
    except ValueError:
        return False
    return all("." not in name and "[" not in name for name, _ in fields)


def refusal(tree: ast.Module) -> str | None:
    """None for a state-free program, else the reason why it is not known to be one."""
    try:
        _Check(tree)
    except _Refused as reason:
        return str(reason)
    return None


def is_state_free(tree: ast.Module) -> bool:
    return refusal(tree) is None
