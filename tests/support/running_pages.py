"""Running the blocks of Python of a page of the documentation, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from .pages import PRINTED, RUN


def pages(*, of_tasks: bool) -> pytest.MarkDecorator:
    """Give a test the pages with blocks that run: those of `docs/tasks`, or the others."""
    return pytest.mark.parametrize(
        "page",
        [
            pytest.param(
                page,
                marks=[pytest.mark.iceberg]
                * any('packages=["iceberg"]' in each.source for each in run),
            )
            for page, run in RUN.items()
            if run and page not in ("README.md", "docs/index.md")
            if page.startswith("docs/tasks/") == of_tasks
        ],
    )


def run_page(
    spark: Any,
    broker: Any,
    page: str,
    folder: Path,
    namespace: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run each block, and each function of a test that they define, and check what is printed."""
    for number, block in enumerate(RUN[page]):
        text = block.source.replace("localhost:9092", broker.bootstrap_servers)
        # Spark's folder is not the page's.
        text = re.sub(
            r'"/?(tmp/lake|lake|tmp|data|bronze)/', lambda at: f'"{folder}/{at[1]}/', text
        )
        exec(compile(text, f"{page}, block {number}", "exec"), namespace)
        for query in spark.streams.active:
            query.processAllAvailable()
        end_queries(spark)
    for name, value in [*namespace.items()]:
        if name.startswith("test_"):
            value()
    if page in PRINTED:
        assert PRINTED[page] in capsys.readouterr().out


def end_queries(spark: Any) -> None:
    """Stop all queries: an idle one asks Kafka for new records a hundred times a second."""
    for query in spark.streams.active:
        query.stop()
