"""Python source written by a model → its syntax tree, in bounded time and memory.

CPython's parser was not made for hostile text: nested brackets were exponential in several releases, f-string fields
are quadratic in Python 3.11, and a tree takes up to 900 times the memory of its source. Extraction needs a tree in the
trusted parent (in training it runs once per completion, and a confined child would cost several times the parse), so
the source is bounded before it gets there: at most 50,000 characters and 30 nested brackets, including those in
strings. Within these bounds no text that we tried takes more than 0.4 s or 80 MiB, on Python 3.11 to 3.13
(`benchmarks/hostile_text.py`). A longer program is left unparsed; it still runs, in a child under its limits.
"""

from __future__ import annotations

import ast
import re
import warnings

LONGEST = 50_000  # characters
DEEPEST = 30  # brackets

_OTHER = re.compile(r"[^()\[\]{}]++")


def parse(source: str) -> ast.Module | None:
    """The tree of `source`; None if it is not Python, too long or too deeply nested. Never raises."""
    if len(source) > LONGEST or depth(source) > DEEPEST:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
            return None


def depth(source: str) -> int:
    """The deepest nesting of brackets, including those in strings and comments."""
    level = deepest = 0
    for bracket in _OTHER.sub("", source):
        level += 1 if bracket in "([{" else -1
        deepest = max(deepest, level)
    return deepest
