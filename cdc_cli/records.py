"""A record of a topic, to show."""

from __future__ import annotations

from typing import NamedTuple

from cdc_formats.base import Headers


class Record(NamedTuple):
    """A record of a topic.

    Attributes
    ----------
    topic : str
    partition, offset : int
    key, value : bytes or None
    headers : sequence of (str, bytes or None)
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def where(self) -> str:
        """``topic[partition]@offset``."""
        return f"{self.topic}[{self.partition}]@{self.offset}"
