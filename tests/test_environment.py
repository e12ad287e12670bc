"""Optional imports that a job leaves out."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys

import pytest

from maxk.artifacts import environment


def test_left_out_libraries_are_missing_in_the_context_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    with environment.importing(without=["wave", "sys"]):
        assert importlib.util.find_spec("wave") is None
        with pytest.raises(ImportError):
            importlib.import_module("wave")
        assert importlib.import_module("sys") is sys
    assert importlib.import_module("wave").__name__ == "wave"


def test_the_context_ends_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    with pytest.raises(KeyError), environment.importing(without=["wave"]):
        raise KeyError
    assert importlib.util.find_spec("wave") is not None


def test_arrow_converts_without_pandas_which_can_be_imported_later() -> None:
    run = """
import sys
import pyarrow as pa
from maxk.artifacts import environment
environment.arrow_without_pandas()
assert pa.table({"a": [1, 2]}).take([1]).to_pylist() == [{"a": 2}]
assert "pandas" not in sys.modules
assert pa.table({"a": [1, 2]}).to_pandas().a.sum() == 3
assert "pandas" in sys.modules
"""
    subprocess.run([sys.executable, "-c", run], check=True)


def test_transformers_is_imported_without_scipy() -> None:
    run = """
import sys
from maxk.artifacts import environment
environment.quiet_libraries()
from transformers import LlamaForCausalLM
assert not {"scipy", "sklearn"} & {name.partition(".")[0] for name in sys.modules}
import scipy.optimize
"""
    subprocess.run([sys.executable, "-c", run], check=True)


def test_transformers_that_was_imported_with_scipy_stays_whole() -> None:
    run = """
from transformers.utils import is_scipy_available
assert is_scipy_available()
from maxk.artifacts import environment
environment.quiet_libraries()
from transformers.loss.loss_for_object_detection import linear_sum_assignment
"""
    subprocess.run([sys.executable, "-c", run], check=True)


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_off_in_the_context_alone(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    state = [on]
    monkeypatch.setattr(environment.gc, "isenabled", lambda: state[-1])
    monkeypatch.setattr(environment.gc, "disable", lambda: state.append(False))
    monkeypatch.setattr(environment.gc, "enable", lambda: state.append(True))
    with pytest.raises(KeyError), environment.uncollected():
        assert not state[-1]
        raise KeyError
    assert state[-1] is on


def test_transformers_models_are_imported_without_the_collector() -> None:
    """Which would scan half a million objects that stay, again and again."""
    run = """
import gc
from maxk.artifacts import environment
runs = []
gc.callbacks.append(lambda phase, _: runs.append(phase))
environment.quiet_libraries()
assert not runs and gc.isenabled() and gc.get_freeze_count() > 100_000
import sys
assert "transformers.models.auto.modeling_auto" in sys.modules
"""
    subprocess.run([sys.executable, "-c", run], check=True)
