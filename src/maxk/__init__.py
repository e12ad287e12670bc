"""max@k and pass@k for code models: estimators, training objectives, a sandboxed grader, a trainer and a pipeline.

    from maxk import max_at_k

    max_at_k([[0.0, 0.5, 1.0, 1.0]], k=2)  # expected best reward of 2 of the 4 samples, per problem

The names in `__all__` are the stable API. Each is imported on first use, so `import maxk` needs nothing but Python; a
name whose dependencies are missing raises ModuleNotFoundError with the extra to install. The method is that of
arXiv 2510.23393.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxk import estimators, grading, objectives, statistics, trl
    from maxk.estimators import max_at_k, pass_at_k
    from maxk.grading import Grader, Limits, extract_program
    from maxk.trl import MaxkTrainer

__version__ = "0.2.0"
__all__ = [
    "Grader",
    "Limits",
    "MaxkTrainer",
    "estimators",
    "extract_program",
    "grading",
    "max_at_k",
    "objectives",
    "pass_at_k",
    "statistics",
    "trl",
]

_MODULE_OF = {
    "Grader": "grading",
    "Limits": "grading",
    "MaxkTrainer": "trl",
    "extract_program": "grading",
    "max_at_k": "estimators",
    "pass_at_k": "estimators",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULE_OF.get(name, name)
    found = import_module(f"{__name__}.{module}")
    return found if module == name else getattr(found, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
