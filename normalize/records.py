"""Kafka's records, as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class KafkaRecord(NamedTuple):
    """A record as it is in Kafka, for what has to be told of the record itself.

    Attributes
    ----------
    topic, partition, offset : str, int, int
    timestamp : int
        In ms since 1970-01-01 UTC.
    key, value : bytes or None
    headers : sequence of (str, bytes or None)
        Empty where they were not read.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()

    @property
    def where(self) -> str:
        """The record's place, as errors name it."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


class Records(NamedTuple):
    """Consecutive records of one Kafka partition, as columns.

    Attributes
    ----------
    topic, partition : str, int
    offsets : array of int
    stamps : array of int
        Kafka's timestamps in ms, raised to the highest before them in the partition, so that partitions can be merged by time
        without ever reordering one.
    keys, values : list of bytes or None
    timestamps : array of int
        Kafka's own, in ms.
    headers : pyarrow.Array or None
        Lists of ``{key, value}``; None where nobody needs headers.
    """

    topic: str
    partition: int
    offsets: Any
    stamps: Any
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Any = ()
    headers: Any = None

    @property
    def source(self) -> str:
        """The partition, as it stands in the order of changes and in errors."""
        return f"{self.topic}[{self.partition}]"

    def record(self, index: int) -> KafkaRecord:
        """One of them, with its headers where they were read."""
        given = [] if self.headers is None else header_pairs(self.headers[index].as_py())
        offset, timestamp = int(self.offsets[index]), int(self.timestamps[index])
        return KafkaRecord(self.topic, self.partition, offset, timestamp, self.keys[index], self.values[index], given)


def header_pairs(headers: Sequence[Any] | None) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record, as Spark gives them, as names and values; those without a name are left out, as in Flink."""
    return [(header["key"], header["value"]) for header in headers or () if header["key"] is not None]
