"""Function calls as stdin/stdout tests: `f(arguments) == value` becomes an input and the output to print.

There are two forms. The flat form is that of CURE (arXiv 2506.03136, Appendix C.2): each argument on its own line, the
items of a list or tuple separated by spaces, a list of lists with one row per line; the output alike. It does not exist
where it would lose information: empty lists, strings with line breaks or outer spaces, list items with spaces or of
mixed types, dicts, sets, None, complex numbers, deeper nesting, two arguments of several lines. The literal form is
`repr` of each argument on its own line, and of the value; it exists for all Python literals.

`reference_program` makes a program of a function that reads and prints the form, so that the tests can be validated
with the code that came with the asserts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from maxk.artifacts.records import Test

SCALARS = (bool, int, float, str)


@dataclass(frozen=True)
class Call:
    """`assert function(*arguments) == value`, where all are literals."""

    function: str
    arguments: tuple[Any, ...]
    value: Any


def parse_assert(text: str) -> Call | None:
    """The call in an assert statement; None if the statement has another form or contains more than literals."""
    try:
        [statement] = ast.parse(text.strip()).body
        match statement:
            case ast.Assert(
                test=ast.Compare(
                    left=ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]),
                    ops=[ast.Eq()],
                    comparators=[value],
                )
            ):
                return Call(function, tuple(map(ast.literal_eval, arguments)), ast.literal_eval(value))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return None


# ------------------------------------------------------------------------------------------------------------ types
def type_name(value: Any) -> str:
    """A literal's type with the types of its items: `list[int|str]`."""
    if isinstance(value, list | tuple | set):
        return f"{type(value).__name__}[{'|'.join(sorted(set(map(type_name, value))))}]"
    return "None" if value is None else type(value).__name__


def argument_types(calls: Sequence[Call]) -> list[list[str]]:
    """By position, the types of the arguments."""
    longest = max(len(call.arguments) for call in calls)
    passed = [[call.arguments[i] for call in calls if i < len(call.arguments)] for i in range(longest)]
    return [sorted(set(map(type_name, values))) for values in passed]


def types_vary(calls: Sequence[Call]) -> bool:
    """Whether the calls differ in the number of arguments or in the type of an argument."""
    counts = {len(call.arguments) for call in calls}
    return len(counts) > 1 or any(len(types) > 1 for types in argument_types(calls))


def parameters(code: str, calls: Sequence[Call]) -> list[str]:
    """Names of the called function's arguments from its definition in `code`; `argument 1`, … if there is none."""
    name = calls[0].function.rpartition(".")[2]
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        nodes = []
    definitions = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name]
    given = [argument.arg for argument in definitions[-1].args.args if argument.arg != "self"] if definitions else []
    longest = max(len(call.arguments) for call in calls)
    return [given[i] if i < len(given) else f"argument {i + 1}" for i in range(longest)]


# --------------------------------------------------------------------------------------------------------- the forms
def literal_test(call: Call) -> Test:
    """The call in the literal form."""
    return Test("".join(map(_literal, call.arguments)), _literal(call.value))


def _literal(value: Any) -> str:
    """`repr`, with the items of a set in an order that is the same in every process."""
    items = ", ".join(sorted(map(repr, value))) if isinstance(value, set) else ""
    return f"{{{items}}}\n" if items else f"{value!r}\n"


def has_no_order(calls: Sequence[Call]) -> bool:
    """Whether an expected value contains a dict or set, which may be printed in any order."""
    return any("dict" in type_name(call.value) or "set[" in type_name(call.value) for call in calls)


LITERAL_CHECKER = """\
import ast, sys
expected, output = (ast.literal_eval(open(path).read().strip()) for path in sys.argv[2:4])
print(int(expected == output))
"""


def flat_tests(calls: Sequence[Call]) -> list[Test] | None:
    """The calls in the flat form; None if one of them does not fit it."""
    shapes = [[_dimensions(value) for value in (*call.arguments, call.value)] for call in calls]
    for *arguments, value in shapes:
        if None in arguments or value is None or arguments.count(2) > 1:
            return None
    return [Test("".join(map(_flat, call.arguments)), _flat(call.value)) for call in calls]


def _dimensions(value: Any) -> int | None:
    """0 for a scalar, 1 for a list of scalars, 2 for a list of such lists; None if the flat form loses information."""
    if isinstance(value, SCALARS):
        whole_line = not isinstance(value, str) or (value == value.strip() != "" and len(value.splitlines()) == 1)
        return 0 if whole_line else None
    if not isinstance(value, list | tuple) or not value:
        return None
    if all(isinstance(item, SCALARS) for item in value):
        words = [isinstance(item, str) for item in value]
        one_word_each = all(len(item.split()) == 1 and item == item.strip() for item in value if isinstance(item, str))
        return 1 if one_word_each and len(set(words)) == 1 else None
    return 2 if all(isinstance(row, list | tuple) and _dimensions(row) == 1 for row in value) else None


def _flat(value: Any) -> str:
    if _dimensions(value) == 2:
        return "".join(map(_flat, value))
    return f"{' '.join(map(str, value)) if isinstance(value, list | tuple) else value}\n"


# ------------------------------------------------------------------------------------------------ statement's last line
def format_line(parameters: Sequence[str], calls: Sequence[Call], form: str) -> str:
    """One line on how the program reads its input and prints its output."""
    if form == "literal" and not parameters:
        return "Input: nothing. Output: a Python literal."
    if form == "literal":
        inputs = (
            f"{_names(parameters)}, each a Python literal"
            if len(parameters) > 1
            else f"{parameters[0]}, a Python literal"
        )
        return f"Input: {inputs} on its own line. Output: a Python literal."
    shown = [f"{name} ({_shape(types)})" for name, types in zip(parameters, argument_types(calls), strict=True)]
    outputs = _shape(sorted({type_name(call.value) for call in calls}))
    place = ", each on its own line" if len(shown) > 1 else " on one line" if "one row a line" not in shown[0] else ""
    return f"Input: {', then '.join(shown)}{place}. Output: {outputs}."


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]


def _shape(types: Sequence[str]) -> str:
    """How the flat form writes a value of one of these types."""
    name = " or ".join(types)
    if "[" not in name:
        return name
    items = " or ".join(sorted({item for item in ("bool", "float", "int", "str") if item in name}))
    two = any(kind.count("[") > 1 for kind in types)
    return f"{items} separated by spaces" + (", one row a line" if two else "")


# --------------------------------------------------------------------------------------------------- reference program
_LITERAL_MAIN = """
import ast as _ast, sys as _sys
print(repr(_as({outputs}, {function}(*map(_ast.literal_eval, _sys.stdin.read().splitlines())))))
"""

_FLAT_MAIN = """
import sys as _sys

def _scalar(text, kinds):
    if "bool" in kinds and text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        if kind.__name__ in kinds:
            try:
                return kind(text)
            except ValueError:
                pass
    return text

def _read(lines, shape):
    dimensions, outer, inner, kinds = shape
    if dimensions == 0:
        return _scalar(lines[0], kinds)
    rows = [inner(_scalar(word, kinds) for word in line.split()) for line in lines]
    return outer(rows) if dimensions == 2 else outer(rows[0])

def _flat(value):
    if isinstance(value, (list, tuple)):
        rows = any(isinstance(item, (list, tuple)) for item in value)
        return "\\n".join(map(_flat, value)) if rows else " ".join(map(str, value))
    return str(value)

_lines, _shapes, _arguments = _sys.stdin.read().splitlines(), [{shapes}], []
for _shape in _shapes:
    # All but one argument take one line each; that of two dimensions takes what is left.
    _count = len(_lines) - sum(s[0] < 2 for s in _shapes[len(_arguments) + 1:]) if _shape[0] == 2 else 1
    _arguments.append(_read(_lines[:_count], _shape))
    _lines = _lines[_count:]
print(_flat(_as({outputs}, {function}(*_arguments))))
"""

# `assert f(x) == 4` also holds for 4.0 and True; the program must print the form in the assert.
_AS = """
def _as(kinds, value):
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_as(kinds, item) for item in value)
    if isinstance(value, (int, float)) and type(value).__name__ not in kinds:
        for kind in (bool, int, float):
            if kind.__name__ in kinds and kind(value) == value:
                return kind(value)
    return value
"""


def reference_program(code: str, calls: Sequence[Call], form: str) -> str:
    """`code`, which defines the function, as a program that reads and prints the form."""
    function, outputs = calls[0].function, _scalar_names(call.value for call in calls)
    if form == "literal":
        main = _LITERAL_MAIN.format(outputs=outputs, function=function)
    else:
        columns = zip(*(call.arguments for call in calls), strict=True)
        shapes = "".join(f"{_shape_of(column)}, " for column in columns)
        main = _FLAT_MAIN.format(outputs=outputs, function=function, shapes=shapes)
    return code.replace("\r\n", "\n") + "\n" + _AS + main


def _shape_of(values: Sequence[Any]) -> str:
    """(dimensions, outer type, inner type, scalar types) of an argument, as source text."""
    first = values[0]
    dimensions = max(_dimensions(value) or 0 for value in values)
    outer = type(first).__name__ if dimensions else "list"
    inner = type(first[0]).__name__ if dimensions == 2 and isinstance(first, list | tuple) else "list"
    return f"({dimensions}, {outer}, {inner if inner in ('list', 'tuple') else 'list'}, {_scalar_names(values)})"


def _scalar_names(values: Iterable[Any]) -> list[str]:
    """Names of the scalar types at any depth."""

    def names(value: Any) -> set[str]:
        if isinstance(value, list | tuple | set):
            return {name for item in value for name in names(item)}
        return {type(value).__name__}

    return sorted({name for value in values for name in names(value)})
