"""Code of the user that the configuration names by its import path: an objective or a dataset of their own."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


def imported(path: str, what: str) -> Any:
    """What the import path `package.module:name` names; the module may be in the working folder.

    Raises ValueError if there is none; its message begins with `what`.
    """
    module, _, name = path.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        fix = "; install it, or name its folder in PYTHONPATH" if isinstance(error, ModuleNotFoundError) else ""
        raise ValueError(f"{what}{path!r} cannot be imported ({error}){fix}") from None
