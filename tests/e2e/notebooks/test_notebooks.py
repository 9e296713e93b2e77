"""Notebooks, run top to bottom on a real Kafka and Spark: no log line, and a plot at the end."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from tests.support.paths import REPOSITORY

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
CELL_SECONDS = 300  # for a busy machine; on an idle one, a notebook takes less than two minutes
NEXT = """\
for query in spark.streams.active:
    query.stop()
spark.catalog.clearCache()
kafka.stop()
%reset -f"""
"""Between notebooks. `local_session` returns the running session, which has what all need."""
ORDER = ("topic_to_live_table", "write_your_own_format", "explore_a_topic", "database_to_lakehouse")
"""The first starts Spark with Delta Lake; the last sends its log to the standard output."""


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow(100)
@pytest.mark.parametrize(
    "paths",
    [
        # A kernel and its Spark serve all. Each starts its own in `make soak`.
        pytest.param(
            sorted(NOTEBOOKS, key=lambda path: ORDER.index(path.stem)), id="in one kernel"
        ),
        *(pytest.param([path], id=path.stem, marks=pytest.mark.soak) for path in NOTEBOOKS),
    ],
)
def test_notebooks_run(paths, monkeypatch):
    for name in ("CDC_BOOTSTRAP_SERVERS", "CDC_TOPIC"):
        monkeypatch.delenv(name, raising=False)
    of_notebooks = [nbformat.read(path, as_version=4).cells for path in paths]
    notebook = nbformat.read(paths[0], as_version=4)
    notebook.cells = [cell for cells in of_notebooks for cell in [*cells, new_code_cell(NEXT)]]
    folder = {"metadata": {"path": str(REPOSITORY / "notebooks")}}
    NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=folder
    ).execute()
    for cells in of_notebooks:
        code = [cell for cell in cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in code)
        assert [
            output.text
            for cell in code
            for output in cell.outputs
            if output.get("name") == "stderr"
        ] == []
        assert "image/png" in code[-1].outputs[-1].data
