"""The pages of the documentation whose blocks run, and the end of what they start."""

from typing import Any

import pytest

from .pages import RUN


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


def end_queries(spark: Any) -> None:
    """Stop all queries: an idle one asks Kafka for new records a hundred times a second."""
    for query in spark.streams.active:
        query.stop()
