"""The notebooks run from top to bottom against a real Kafka and Spark, without a log line, and end in a plot."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.paths import REPOSITORY

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
CELL_SECONDS = 300  # for a busy machine; on an idle one, a notebook takes less than two minutes


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
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert [output.text for cell in code for output in cell.outputs if output.get("name") == "stderr"] == []
    assert "image/png" in code[-1].outputs[-1].data
