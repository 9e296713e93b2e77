"""Raw Kafka records, single and as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class KafkaRecord(NamedTuple):
    """A raw Kafka record, for errors, dead letters and side outputs.

    Attributes
    ----------
    topic, partition, offset : str, int, int
    timestamp : int
        In ms since 1970-01-01 UTC.
    key, value : bytes or None
    headers : sequence of (str, bytes or None)
        Empty if they were not read.
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
        """The record's topic, partition and offset, as in errors."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


class Records(NamedTuple):
    """Consecutive records of one Kafka partition, as columns.

    Attributes
    ----------
    topic, partition : str, int
    offsets : array of int
    stamps : array of int
        Kafka's timestamps in ms, made monotone within the partition, so that merging partitions by time never reorders one.
    keys, values : list of bytes or None
    timestamps : array of int
        Kafka's original timestamps, in ms.
    headers : pyarrow.Array or None
        Lists of ``{key, value}``; None if they were not read.
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
        """The partition as ``topic[partition]``, for the order of changes and errors."""
        return f"{self.topic}[{self.partition}]"

    def record(self, index: int) -> KafkaRecord:
        """Return a record, with its headers if they were read."""
        given = [] if self.headers is None else header_pairs(self.headers[index].as_py())
        offset, timestamp = int(self.offsets[index]), int(self.timestamps[index])
        return KafkaRecord(self.topic, self.partition, offset, timestamp, self.keys[index], self.values[index], given)


def header_pairs(headers: Sequence[Any] | None) -> list[tuple[str, bytes | None]]:
    """Return the names and values of a record's headers from Spark; headers without a name are dropped, as in Flink."""
    return [(header["key"], header["value"]) for header in headers or () if header["key"] is not None]
