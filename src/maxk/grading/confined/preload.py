"""Imports a fork server's modules for its programs, before its own code."""

from __future__ import annotations

import importlib
import sys

_OF_THE_SERVER = ("errno", "fcntl", "marshal", "resource", "signal", "_sitebuiltins")


def preload(modules: list[str], paths: list[str]) -> None:
    """Imports modules, also from `paths`."""
    sys.path.extend(paths)
    for name in [*modules, *_OF_THE_SERVER]:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # not in this Python; a program that imports it fails as it would anywhere
