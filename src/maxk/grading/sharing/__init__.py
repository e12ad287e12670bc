"""Which programs may share a process, and with whom: a fork and its page faults cost several times a short program.

The one function is `may_share`. A program that it admits, because it lies in a small language (`language.py`), runs all
its tests in one process, and up to eight such programs, of different problems, run in the same one (`packs.py`). What
does not end in order there is run again in processes of its own (`confined/shared.py`). Verdicts are those of a process
for every test. Without this package, `Grader(mode="fork")` is what is left.
"""

import ast

from maxk.grading.sharing.language import refusal
from maxk.grading.sharing.packs import Packs

__all__ = ["Packs", "may_share"]


def may_share(tree: ast.Module) -> bool:
    """Whether no execution of the program can influence another one in the same process."""
    return refusal(tree) is None
