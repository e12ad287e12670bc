"""Which programs may share a process, and with which: a fork and its page faults cost several times a short program.

The one function is `may_share`. A program that it admits, because it lies in a small language (`language.py`), runs all
its tests in one process, and up to eight such programs, of different problems, run in the same one (`packs.py`). A run
that does not end normally there is repeated in its own process (`confined/shared.py`). Verdicts are those of a process
for every test. `Grader(mode="fork")` does not use this package.
"""

import ast

from maxk.grading.sharing.language import refusal
from maxk.grading.sharing.packs import Packs

__all__ = ["Packs", "may_share"]


def may_share(tree: ast.Module) -> bool:
    """Whether no execution of the program can influence another one in the same process."""
    return refusal(tree) is None
