"""The notebook of examples/ runs from its first to its last cell, as a reader would run it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_notebook_trains_and_draws(root: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(root / "examples" / "pocket.ipynb", as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [kind for output in outputs for kind in output.get("data", {})]
    assert shown.count("image/png") == 2
    summary = (tmp_path / "results/notebook/summary.md").read_text()
    for label in ("Base model", "GRPO", "BoN LOO-1"):
        assert f"| {label} | 0." in summary
