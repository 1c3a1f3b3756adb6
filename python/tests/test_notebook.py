"""The example notebook is executed. Fault model: an example that no longer works; a table or picture that is empty."""

from __future__ import annotations

import os
from pathlib import Path

from conftest import skip

try:
    import nbformat
    from nbclient import NotebookClient
except ImportError:
    skip("nbclient and nbformat are not installed")

NOTEBOOK = Path(__file__).parent.parent / "notebooks" / "example.ipynb"


def test_the_example_runs(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    package = str(NOTEBOOK.parent.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")])))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    text = "".join(str(out.get("data", {}).get("text/plain", "")) for outs in outputs for out in outs)
    assert "2 trace(s)" in text and "/log" in text and "amplification" in text, text
    pictures = [out for outs in outputs for out in outs if "image/png" in out.get("data", {})]
    assert len(pictures) == 3
