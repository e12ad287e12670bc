"""These tests run vLLM for real, on the CPU where there is no GPU: `make test-vllm`.

Without vLLM they are not collected, so the main suite neither counts nor skips them.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB

import pytest

from maxk.artifacts.records import Policy
from maxk.config import Config

INSTALLED = find_spec("vllm") is not None
collect_ignore_glob = [] if INSTALLED else ["test_*.py"]


@pytest.fixture(scope="session")
def policies(seconds: Config, tmp_path_factory: pytest.TempPathFactory) -> list[Policy]:
    """Two seconds-scale base models that differ in their seed; with heads of 32, which vLLM's CPU kernels support."""
    from maxk.training.pretrain import pretrain

    architecture = seconds.base.architecture.model_copy(update={"hidden_size": 64, "heads": 2})
    made = []
    for seed in (0, 1):
        folder = tmp_path_factory.mktemp("base") / "model"
        pretrain(seconds.base.model_copy(update={"architecture": architecture, "seed": seed}), seconds.prompt, folder)
        made.append(Policy("base", "Base model", str(folder)))
    return made
