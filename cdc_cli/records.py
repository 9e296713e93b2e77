"""A record to convert or to show, from a topic or a file."""

from __future__ import annotations

from typing import NamedTuple

from cdc_formats.events import Headers


class Record(NamedTuple):
    """A record of a topic, or of a file.

    Attributes
    ----------
    source : str
        The topic, or the file.
    partition, offset : int
        In a file, those on the line, otherwise 0 and the line number.
    key, value : bytes or None
    headers : sequence of (str, bytes or None)
    line : int
        The line number in a file; 0 for a record of a topic.
    """

    source: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    line: int = 0

    @property
    def where(self) -> str:
        """``topic[partition]@offset``, or ``file:line``."""
        return f"{self.source}:{self.line}" if self.line else f"{self.source}[{self.partition}]@{self.offset}"
