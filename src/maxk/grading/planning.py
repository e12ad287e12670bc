"""Decides in the trusted parent how a program is run: compiled here or not, in a shared process or not.

Compiling runs no code, and here it costs a fraction of what it costs a child, where every touched page is copied.
Source that could strain the parser or the compiler is left to the children, each of which compiles it under its own
limits: long or deeply nested text, constructs whose code grows faster than their text (`_strains`), and code much
larger than its source, such as large constants.
"""

from __future__ import annotations

import ast
import marshal
import warnings
from dataclasses import dataclass
from types import CodeType

from maxk.grading.parsing import DEEPEST, depth
from maxk.grading.sharing.language import refusal

_LONGEST = 20_000  # characters
_LARGEST = 1 << 18  # bytes of code


@dataclass(frozen=True)
class Plan:
    """code: None if each child compiles the source itself. broken: the source does not compile."""

    code: CodeType | None = None
    shared: bool = False
    broken: bool = False


def plan(source: str, share: bool) -> Plan:
    """share: whether programs of the shared language may run all tests in one process."""
    if len(source) > _LONGEST or depth(source) > DEEPEST:
        return Plan()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
            if ("finally" in source or "|" in source) and any(map(_strains, ast.walk(tree))):
                return Plan()
            code = compile(tree, "main.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError):  # bad source, a NUL character, a lone surrogate, …
            return Plan(broken=True)
        except (RecursionError, MemoryError):
            return Plan()
    return Plan(code, shared=share and refusal(tree) is None) if len(marshal.dumps(code)) <= _LARGEST else Plan()


def _strains(node: ast.AST) -> bool:
    """Whether the compiler's work can grow faster than the text.

    A `finally` block is compiled once for every exit of its `try`, which is exponential when they are nested. The names
    of a pattern's alternatives are brought into one order, which is quadratic.
    """
    return isinstance(node, ast.MatchOr) or bool(getattr(node, "finalbody", None))
