"""The notebooks run from top to bottom against a real Kafka and Spark, and are stored without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
CELL_SECONDS = 300  # for a busy machine; on an idle one, a notebook takes less than two minutes


def test_notebooks_are_found():
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path):
    cells = nbformat.read(path, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count or cell.metadata for cell in code)
    assert any("assert " in cell.source for cell in code)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, monkeypatch):
    for name in ("CDC_BOOTSTRAP_SERVERS", "CDC_TOPIC"):
        monkeypatch.delenv(name, raising=False)
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code" and cell.source)
