"""The Python of the documentation's pages, block by block, with what a block needs to run."""

import doctest
import re
from typing import NamedTuple

from .paths import REPOSITORY

PAGES = {
    str(path.relative_to(REPOSITORY)): path.read_text("utf-8")
    for path in [
        *sorted((REPOSITORY / "docs").rglob("*.md")),
        *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    ]
}
"""The text of each page by its path in the repository."""

PROVIDED = frozenset(
    {
        "a topic orders", "a topic prices", "a topic products", "a topic shop.public.orders", "a topic users", "a topic weights",
        "a variable MASK_KEY", "any_changelog",
        "arguments", "bounded_changes", "bronze", "changes", "columns", "kafka", "options", "spark", "topics orders and orders.dead",
        "the topics of a database", "write",
    }
)  # fmt: skip
"""What tests/e2e/docs makes for the blocks that need it."""
NOT_PROVIDED = frozenset(
    {
        "a MySQL server", "a PostgreSQL server", "a pipeline of Spark Declarative Pipelines",
        "a schema registry", "an Iceberg catalog", "a server of Spark Connect", "the changes of a query that fails", "the changes above",
        "the envelope's StructType", "a Delta table orders", "topics with a schema block", "your query's arguments",
    }
)  # fmt: skip
"""What the other blocks need: they do not run. That their names and arguments exist is a unit
test."""

_BLOCK = re.compile(
    r'^```python(?: title="needs (?P<needs>[^"\n]+)")?\n(?P<source>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A block of Python.

    Attributes
    ----------
    source : str
        The block's code. A block with prompts has its statements, without those that show an error.
    needs : tuple of str
        What the page does not make, as the block's title says:
        ``title="needs spark, a topic orders"``. Empty: it runs as pasted, below the page's other
        blocks.
    """

    source: str
    needs: tuple[str, ...]


def blocks(page: str) -> list[Block]:
    """Return the Python blocks of a page's text, in order."""
    return [
        Block(
            _statements(match["source"]),
            tuple((match["needs"] or "").split(", ")) if match["needs"] else (),
        )
        for match in _BLOCK.finditer(page)
    ]


def _statements(source: str) -> str:
    if not source.startswith(">>>"):
        return source
    return "".join(
        each.source for each in doctest.DocTestParser().get_examples(source) if each.exc_msg is None
    )


RUN = {
    page: [block for block in blocks(text) if {*block.needs} <= PROVIDED]
    for page, text in PAGES.items()
}
PRINTED = {
    page: table
    for page, text in PAGES.items()
    for table in re.findall(r"^```\n(\+--.*?)^```$", text, re.MULTILINE | re.DOTALL)
}
"""The table that a page prints."""
