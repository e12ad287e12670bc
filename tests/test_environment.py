"""Optional imports that a job leaves out."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest

from maxk.artifacts import environment


def test_left_out_libraries_are_missing_in_the_context_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    with environment.without("wave", "sys"):
        assert importlib.util.find_spec("wave") is None
        with pytest.raises(ImportError):
            importlib.import_module("wave")
        assert importlib.import_module("sys") is sys
    assert importlib.import_module("wave").__name__ == "wave"


def test_the_context_ends_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    with pytest.raises(KeyError), environment.without("wave"):
        raise KeyError
    assert importlib.util.find_spec("wave") is not None
