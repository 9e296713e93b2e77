"""A record to convert or to show, wherever it comes from."""

from __future__ import annotations

from typing import NamedTuple

from cdc_formats.base import Headers


class Record(NamedTuple):
    """A record of a topic, or of a file.

    Attributes
    ----------
    source : str
        The topic, or the file.
    partition, offset : int
        In a file those that the line says, else 0 and the line.
    key, value : bytes or None
    headers : sequence of (str, bytes or None)
    line : int
        The number of the line in a file; 0 of a topic's record.
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
