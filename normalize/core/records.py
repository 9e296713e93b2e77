"""Raw Kafka records, single and as columns, and the counts of what was decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cdc_formats.errors import DECODE_CONDITIONS, DecodeError, PartialImageError
from cdc_formats.events import Headers, Ignored

from .fold_columns import Ints


class KafkaRecord(NamedTuple):
    """A raw Kafka record, for errors, dead letters and side outputs.

    Attributes
    ----------
    topic : str
        Empty if unknown.
    partition, offset : int
        The partition and the row of the DataFrame if the record is not `placed`.
    timestamp : int or None
        In ms since 1970-01-01 UTC; None if unknown.
    key, value : bytes or None
    headers : sequence of (str, bytes or None)
        Empty if they were not read.
    placed : bool
        Whether the record has a partition and an offset of Kafka.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    placed: bool = True

    @property
    def where(self) -> str:
        """The record's topic, partition and offset, or its row, as in errors."""
        return f"{_partition_name(self.topic, self.partition, self.placed)}@{self.offset}"

    def without_content(self) -> KafkaRecord:
        """Return the record without its key, value and headers."""
        return self._replace(key=None, value=None, headers=())

    @property
    def origin(self) -> tuple[str | None, int | None, int | None]:
        """The record's topic, partition and offset; None where unknown."""
        return (
            self.topic or None,
            *((self.partition, self.offset) if self.placed else (None, None)),
        )


def _partition_name(topic: str, partition: int, placed: bool) -> str:
    return f"{(topic or 'partition') if placed else 'DataFrame'}[{partition}]"


class Values(Sequence[bytes | None]):
    """The values of records, which become Python objects only when one is read.

    Parameters
    ----------
    array : pyarrow.Array
        Binary.
    """

    def __init__(self, array: pa.Array) -> None:
        self.array = array

    @cached_property
    def _list(self) -> list[bytes | None]:
        return list(self.array.to_pylist())

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self._list)

    def __getitem__(self, index: Any) -> Any:
        # A sample reads a few of many.
        few = isinstance(index, int) and "_list" not in vars(self)
        return self.array[index].as_py() if few else self._list[index]

    def only(self, indexes: Ints) -> Values:
        """Return the values at these indexes."""
        return Values(self.array.take(pa.array(indexes)))


class Records(NamedTuple):
    """Consecutive records of one Kafka partition, as columns.

    Attributes
    ----------
    topic, partition : str, int
    offsets : array of int
    stamps : array of int
        Kafka's timestamps in ms, made monotone within the partition, so that merging partitions by
        time never reorders one.
    keys, values : sequence of bytes or None
    timestamps : array of int or None
        Kafka's original timestamps, in ms; None if unknown.
    headers : pyarrow.Array or None
        Lists of ``{key, value}``; None if they were not read.
    placed : bool
        Whether the records have a partition and offsets of Kafka. Otherwise these are the partition
        and the rows of a DataFrame.
    numbers : array of int
        The number of each record among those that a target collects.
    """

    topic: str
    partition: int
    offsets: Any
    stamps: Any
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Any = ()
    headers: Any = None
    placed: bool = True
    numbers: Any = np.zeros(0, np.int64)

    @property
    def source(self) -> str:
        """The partition as ``topic[partition]``, for the order of changes and errors."""
        return _partition_name(self.topic, self.partition, self.placed)

    def only(self, indexes: Sequence[int]) -> Records:
        """Return the records at these indexes."""
        chosen = np.array(indexes, np.int64)
        values = (
            self.values.only(chosen)
            if isinstance(self.values, Values)
            else [self.values[index] for index in indexes]
        )
        timestamps = self.timestamps if self.timestamps is None else self.timestamps[chosen]
        headers = None if self.headers is None else self.headers.take(pa.array(chosen))
        chosen_of = {name: getattr(self, name)[chosen] for name in ("offsets", "stamps", "numbers")}
        return self._replace(
            keys=[self.keys[index] for index in indexes],
            values=values,
            timestamps=timestamps,
            headers=headers,
            **chosen_of,
        )

    def record(self, index: int) -> KafkaRecord:
        """Return a record, with its headers if they were read."""
        pairs = [] if self.headers is None else header_pairs(self.headers[index].as_py())
        timestamp = None if self.timestamps is None else int(self.timestamps[index])
        key, value = self.keys[index], self.values[index]
        return KafkaRecord(
            self.topic,
            self.partition,
            int(self.offsets[index]),
            timestamp,
            key,
            value,
            pairs,
            self.placed,
        )


def header_pairs(headers: Sequence[Any] | None) -> list[tuple[str, bytes | None]]:
    """Return a record's header names and values from Spark, without nameless ones, as in Flink."""
    return [
        (header["key"], header["value"]) for header in headers or () if header["key"] is not None
    ]


def header_lists(headers: pa.ListArray) -> list[Headers]:
    """Return a list of header names and values for each record, from Spark's headers."""
    if headers.null_count == len(headers):
        return [()] * len(headers)
    names, values = (headers.flatten().field(index).to_pylist() for index in (0, 1))
    pairs = zip(names, values, strict=True)
    return [list(islice(pairs, length or 0)) for length in headers.value_lengths().to_pylist()]


# --------------------------------------------------------------------------------------------------
# The names of all counts that queries report, and which part of a query reports them.

DEAD_LETTERS = "DEAD_LETTERS"
ABSENT_COLUMNS, UNKNOWN_COLUMNS, WITHOUT_POSITION = (
    "ABSENT_COLUMNS",
    "UNKNOWN_COLUMNS",
    "WITHOUT_POSITION",
)

NATIVE_COUNTS = ("CHANGES", "SUPPRESSED_EQUAL", "DELETES_OF_UNKNOWN_KEYS")
"""Of the native engine: keys changed in a micro-batch, and those of them without a resulting row,
by reason."""
STAGE_COUNTS = (
    *NATIVE_COUNTS,
    "REDELIVERIES",
    "EXPIRED",
    PartialImageError.condition,
    DEAD_LETTERS,
)
"""Of the stage: changes read; rows equal to the stored one; deletes of keys without a row; changes
at or before the position of their key; rows expired; partial rows that could not be completed, and
those of them written as dead letters."""
WATCHED_COUNTS = (ABSENT_COLUMNS, UNKNOWN_COLUMNS, WITHOUT_POSITION)
"""Of sampled records: those that lack a declared column, and those with an undeclared one; and
changes without a position, which ``order="source"`` applies as they arrive."""
DECODE_COUNTS = (
    "RECORDS",
    *(reason.value for reason in Ignored),
    *DECODE_CONDITIONS,
    DecodeError.condition,
    DEAD_LETTERS,
    *WATCHED_COUNTS,
)
"""Of the first pass: records read; records ignored (also control events) by reason; bad records by
condition (``DECODE``: a format's own condition); bad records written as dead letters; and
`WATCHED_COUNTS`."""
ALL_COUNTS = tuple(dict.fromkeys((*DECODE_COUNTS, *STAGE_COUNTS)))
"""Of a bounded read, which decodes and folds in one pass: counts with the same name are added."""
