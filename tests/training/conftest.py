from __future__ import annotations

import pytest
import tiny


@pytest.fixture(scope="session")
def letters_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a random model over letters (tests/training/tiny.py)."""
    return tiny.make_model(tmp_path_factory.mktemp("letters"))
