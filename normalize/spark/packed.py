"""What tasks compute, as few values of Arrow IPC: the JVM converts no row of them.

Executors hold the values. The driver reads those of a task while others compute, if all fit into
its memory. Otherwise, tasks read them as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, functions as F
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from .plans import arriving
from .sessions import most_collected

Pass = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]
"""What a task computes of its batches."""
_MOST_BYTES = 32 << 20
_PACKED = StructType([StructField("ipc", BinaryType()), StructField("bytes", LongType())])
"""As types: Spark's parser of DDL takes ms."""


def packed(rows: DataFrame, compute: Pass) -> DataFrame:
    """Return what tasks compute of a DataFrame's batches, all of one schema.

    The columns are ``ipc``, and ``bytes``: how many a task has packed until then.
    """
    pack: Any = partial(_packed, compute=compute)
    return rows.mapInArrow(pack, _PACKED)


def collected(values: DataFrame, tasks: int, most_bytes: int) -> list[pa.Table] | None:
    """Return all rows on the driver, in no order; None if they have more bytes.

    Parameters
    ----------
    values : DataFrame
        Those of `packed`.
    tasks : int
        The number of tasks, each of which may have its share.
    most_bytes : int
    """
    most = min(most_bytes, most_collected(values.sparkSession)) // max(1, tasks)
    small = values.select(F.when(F.col("bytes") <= most, F.col("ipc")))
    parts = [
        pa.Table.from_batches(batches_in([value])) if value.is_valid else None
        for batch in arriving(small)
        for value in batch.column(0)
    ]
    whole = [part for part in parts if part is not None]
    return whole if len(whole) == len(parts) else None


def unpacked(values: DataFrame, schema: StructType) -> DataFrame:
    """Return the rows of `packed` as Spark's, in the partitions of their tasks."""
    unpack: Any = _unpacked
    return values.select("ipc").mapInArrow(unpack, schema)


def _packed(batches: Iterator[pa.RecordBatch], *, compute: Pass) -> Iterator[pa.RecordBatch]:
    waiting, size, total = list[pa.RecordBatch](), 0, 0
    for batch in compute(batches):
        waiting.append(batch)
        size += batch.nbytes
        if size >= _MOST_BYTES:
            total += size
            yield _value(waiting, total)
            waiting, size = [], 0
    if waiting:
        yield _value(waiting, total + size)


def packed_batches(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Return batches of one schema as Arrow IPC."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def batches_in(values: Iterable[pa.Scalar]) -> Iterator[pa.RecordBatch]:
    """Return the batches of values of `packed_batches`."""
    for value in values:
        yield from pa.ipc.open_stream(value.as_buffer())


def values_of(buffers: Sequence[pa.Buffer]) -> pa.Array:
    """Return results of `packed_batches` as a column; a single one is not copied.

    Raises
    ------
    pyarrow.ArrowInvalid
        When they have more than 2 GB together.
    """
    ends = pa.array(accumulate((each.size for each in buffers), initial=0), pa.int32()).buffers()[1]
    data = buffers[0] if len(buffers) == 1 else pa.py_buffer(b"".join(buffers))
    return pa.Array.from_buffers(pa.binary(), len(buffers), [None, ends, data])


def _value(batches: list[pa.RecordBatch], total: int) -> pa.RecordBatch:
    value = values_of([packed_batches(batches)])
    return pa.RecordBatch.from_arrays([value, pa.array([total])], ["ipc", "bytes"])


def _unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from batches_in(batch.column(0))
