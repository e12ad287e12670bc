"""Starts a fork server; in each child it forks, runs programs: `python -s -S -B PATH/__main__.py CONTROL_FD`.

The server is a generator, which only yields in a child: so a program runs at the top of the stack, with the recursion
depth plain Python would give it.
"""

# ruff: noqa: E402
from __future__ import annotations

import os
import sys
import types

for _name in ("maxk", "maxk.grading", "maxk.grading.confined"):
    _package = types.ModuleType(_name)  # so that this folder is importable without the packages above it
    _package.__path__ = [sys.path[0]]
    sys.modules[_name] = _package

from maxk.grading.confined.server import start

for _runs in start().serve():
    for _attempt in _runs.attempts():
        try:
            exec(_attempt.code, _attempt.namespace)
        except BaseException as _error:
            _attempt.error = _error
os._exit(0)
