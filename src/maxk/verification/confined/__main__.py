"""Starts a fork server; in each child it forks, runs programs: `python -s -S -B PATH/__main__.py CONTROL_FD`.

A child leaves the server's functions by raising `Child`, so that a program runs at the top of the stack, with the
recursion depth plain Python would give it.
"""

# ruff: noqa: E402
from __future__ import annotations

import os
import sys
import types

for _name in ("maxk", "maxk.verification", "maxk.verification.confined"):
    _package = types.ModuleType(_name)  # so that this folder is importable without the packages above it
    _package.__path__ = [sys.path[0]]
    sys.modules[_name] = _package

from maxk.verification.confined.execution import Attempt
from maxk.verification.confined.server import Child, start

_server = start()
try:
    _server.serve()
    os._exit(0)
except Child as _child:
    _runs = _child.runs
_attempt: Attempt
for _attempt in _runs.attempts():
    try:
        exec(_attempt.code, _attempt.namespace)
    except BaseException as _error:
        _attempt.error = _error
