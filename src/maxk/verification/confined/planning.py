"""Decides how a program is run: compiled here once if that is safe, sharing a process if it is proven state-free.

Compiling in the server saves a child half its page faults. Source text cannot run here, but it could be made to cost
much or to crash the parser, so only small, shallow programs are compiled under a CPU timer; others are compiled in
their own children. If the server dies all the same, the parent sends the job to its successor marked `careful`, and
nothing of it is touched before the fork: hostile text costs a restart and gets its ordinary verdict.
"""

from __future__ import annotations

import ast
import signal
import types
from dataclasses import dataclass

from maxk.verification.confined.purity import is_state_free

COMPILE_ERRORS = (SyntaxError, ValueError, OverflowError)  # bad source, a NUL character, a lone surrogate, …
_LONGEST = 20_000  # characters
_DEEPEST = 30  # brackets
_COMPILE_CPU_S = 2.0


@dataclass
class Plan:
    """code: compiled, or None where each child compiles for itself. broken: it does not compile, whatever the input."""

    code: types.CodeType | None = None
    shared: bool = False
    broken: bool = False


def plan(source: str, share: bool, careful: bool) -> Plan:
    if careful or len(source) > _LONGEST or _depth(source) > _DEEPEST:
        return Plan()
    signal.setitimer(signal.ITIMER_PROF, _COMPILE_CPU_S)
    try:
        if not share:
            return Plan(compile_program(source))
        tree = ast.parse(source)
        return Plan(compile(tree, "main.py", "exec", dont_inherit=True), shared=is_state_free(tree))
    except COMPILE_ERRORS:
        return Plan(broken=True)
    except (RecursionError, MemoryError):
        return Plan()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def compile_program(source: str) -> types.CodeType:
    return compile(source, "main.py", "exec", dont_inherit=True)


def _depth(source: str) -> int:
    """The deepest nesting of brackets, counting those in strings: too high at worst, or a successor is careful."""
    depth = deepest = 0
    for character in source:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest
