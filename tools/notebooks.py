"""Run the notebooks, and store their small outputs, which a code host then shows.

    python -m tools.notebooks      # make notebooks-rendered

A test runs them, too, and compares the stored outputs with what they print. What differs between
two runs is not compared: times, ports, folders and pictures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_output

FOLDER = Path(__file__).parent.parent / "notebooks"
NAMES = (
    "topic_to_live_table",
    "write_your_own_format",
    "explore_a_topic",
    "database_to_lakehouse",
)
"""In the order in which they run: the first starts Spark with Delta Lake; the last sends its log to
the standard output."""
MOST_CHARACTERS = {"image/png": 60_000, "text/html": 30_000, "text/plain": 10_000}
"""Longer outputs are not stored."""
_CELL_SECONDS = 300  # for a busy machine; on an idle one, a notebook takes less than two minutes
_NEXT = """\
for query in spark.streams.active:
    query.stop()
spark.catalog.clearCache()
kafka.stop()
%reset -f"""
"""Between notebooks. `local_session` returns the running session, which has what all need."""
_TEMPORARY = re.compile(r"/tmp/tmp\w+")
_OBJECT = re.compile(r"<[\w.]+ (?:object )?at 0x[0-9a-f]+>")
"""What Python prints of an object without a text of its own: it says nothing, and is not stored."""
_VARYING = re.compile(
    r"0x[0-9a-f]+|/tmp/\S+|\b1\d{12}\b|(?:localhost|127\.0\.0\.1):\d+|\d{4}-\d\d-\d\d[ T][\d:.]+Z?|\d+(?:\.\d+)? m?s\b"
    r"|Fetched .*|\d+(?:,\d{3})* (?:bytes|records)/s"
)


def executed(names: Sequence[str]) -> dict[str, list[Any]]:
    """Run notebooks in one kernel and Spark, and return the cells of each, with their outputs."""
    cells = {name: read(name).cells for name in names}
    notebook = read(names[0])
    notebook.cells = [cell for each in cells.values() for cell in [*each, new_code_cell(_NEXT)]]
    # They load a recorded topic into a broker of their own.
    for name in ("CDC_BOOTSTRAP_SERVERS", "CDC_TOPIC"):
        os.environ.pop(name, None)
    folder = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(
        notebook, timeout=_CELL_SECONDS, kernel_name="python3", resources=folder
    ).execute()
    return cells


def read(name: str) -> Any:
    """Return a notebook."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def stored(outputs: Sequence[Any]) -> list[Any]:
    """Return the outputs that are stored: what is printed, as one text, and what is not too long."""
    printed = "".join(
        each.text for each in outputs if each.output_type == "stream" and each.name == "stdout"
    )
    printed = _TEMPORARY.sub("/tmp/folder", printed)
    kept = [new_output("stream", name="stdout", text=printed)] if _is_short(printed) else []
    for each in outputs:
        data = {
            kind: content
            for kind, content in each.get("data", {}).items()
            if len(content) <= MOST_CHARACTERS.get(kind, -1) and not _OBJECT.match(content)
        }
        if data:
            kept.append(new_output("display_data", data=data))
    return kept


def _is_short(text: str) -> bool:
    return 0 < len(text) <= MOST_CHARACTERS["text/plain"]


def texts(cells: Sequence[Any]) -> list[list[list[str]]]:
    """Return the lines of the outputs of each cell of code, without what differs between runs."""
    return [
        [_lines(output) for output in stored(cell.outputs)]
        for cell in cells
        if cell.cell_type == "code"
    ]


def _lines(output: Any) -> list[str]:
    if output.output_type == "stream":
        # Several tables are logged in any order.
        return sorted(_VARYING.sub("…", output.text).splitlines())
    if "image/png" in output.data:
        return ["a picture"]
    return _VARYING.sub("…", str(output.data.get("text/plain", "a table"))).splitlines()


def main() -> None:
    """Run all notebooks, and store their outputs."""
    for name, cells in executed(NAMES).items():
        notebook = read(name)
        for number, (cell, run) in enumerate(zip(notebook.cells, cells, strict=True), 1):
            if cell.cell_type == "code":
                cell.execution_count, cell.outputs = number, stored(run.outputs)
        nbformat.write(notebook, FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main()
