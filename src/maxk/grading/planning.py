"""Decides, in the trusted parent, how a program is run: compiled once here, sharing a process if proven state-free.

The parent never forks, so parsing costs it a fraction of what it costs a fork server or a child, whose every touched
page has to be copied. Source text cannot run here; what could strain the parser (very long or deeply nested text) is
left to the children, each of which then compiles for itself under its limits.
"""

from __future__ import annotations

import ast
import marshal
import warnings
from dataclasses import dataclass

from maxk.grading.purity import is_state_free

_LONGEST = 20_000  # characters
_DEEPEST = 30  # brackets


@dataclass(frozen=True)
class Plan:
    """code: marshalled, or b"" where each child compiles for itself. broken: it compiles for no input."""

    code: bytes = b""
    shared: bool = False
    broken: bool = False


def plan(source: str, share: bool) -> Plan:
    """share: whether programs proven state-free may run all tests in one process."""
    if len(source) > _LONGEST or _depth(source) > _DEEPEST:
        return Plan()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
            code = compile(tree, "main.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError):  # bad source, a NUL character, a lone surrogate, …
            return Plan(broken=True)
        except (RecursionError, MemoryError):
            return Plan()
    return Plan(marshal.dumps(code), shared=share and is_state_free(tree))


def _depth(source: str) -> int:
    """The deepest nesting of brackets, those in strings counted too."""
    depth = deepest = 0
    for character in source:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest
