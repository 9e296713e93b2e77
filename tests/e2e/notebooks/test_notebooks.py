"""Notebooks, run top to bottom on a real Kafka and Spark: their stored outputs, and no log line."""

import re

import pytest

from tools.notebooks import NAMES, executed, read, texts


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow(100)
@pytest.mark.parametrize(
    "names",
    [
        # A kernel and its Spark serve all. Each starts its own in `make soak`.
        pytest.param(NAMES, id="in one kernel"),
        *(pytest.param([name], id=name, marks=pytest.mark.soak) for name in NAMES),
    ],
)
def test_notebooks_print_what_is_stored(names: list[str]) -> None:
    for name, cells in executed(names).items():
        code = [cell for cell in cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in code)
        lines = [
            line
            for cell in code
            for output in cell.outputs
            if output.get("name") == "stderr"
            for line in output.text.splitlines()
        ]
        # A worker of Spark keeps its producer of dead letters, whose broker the notebook before
        # has stopped.
        assert [line for line in lines if not re.match(r"%3\|.*Connection refused", line)] == []
        assert texts(cells) == texts(read(name).cells), f"run make notebooks-rendered: {name}"
