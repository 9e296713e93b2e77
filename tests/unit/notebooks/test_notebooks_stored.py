"""The notebooks are stored with their small outputs, which a code host shows."""

import re

import pytest

from tools.notebooks import FOLDER, NAMES, read, stored


def test_notebooks_are_found() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_what_it_prints(name: str) -> None:
    code = [cell for cell in read(name).cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    assert not any(cell.metadata for cell in code)
    assert all(cell.outputs == stored(cell.outputs) for cell in code)
    texts = str([output for output in outputs if "image/png" not in output.get("data", {})])
    assert not re.search("at 0x[0-9a-f]+>|/tmp/tmp", texts)
    assert sum("text/html" in output.get("data", {}) for output in outputs) >= 1
    assert "image/png" in outputs[-1].data
    assert any("assert " in cell.source for cell in code)
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 300_000
