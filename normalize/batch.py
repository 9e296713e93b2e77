"""ChangelogNormalize of a bounded read: the rows that the stream gives, without state.

Spark sorts the changes by key and order natively (and spills to disk), and one pass folds and types them as they come: it holds the
row of one key. The fold is the stream's own, so that the two cannot differ in what they do to a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from .packing import Partial, join_rows, split_rows
from .stage import Change, Folded, Stage, fold_changes, keep_last
from .typed import Output, decode_corrupt
from .worker import worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = ("stamp", "source", "offset", "seq")
_COLUMNS = ("key", "row", "metadata", "partial", "corrupt")
_decode_partial = msgspec.msgpack.Decoder(Partial).decode


def in_order(keyed: DataFrame, *, split_partitions: bool) -> DataFrame:
    """Return the changes by key, in their order.

    Parameters
    ----------
    keyed : DataFrame
        Of `decode.KeyedRows`.
    split_partitions : bool
        Whether a Kafka partition may be read by several tasks: then the timestamps, which are monotone in a task, are made so
        across tasks.
    """
    from pyspark.sql import Window, functions as F

    if split_partitions:
        so_far = Window.partitionBy("key", "source").orderBy("offset", "seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
        keyed = keyed.withColumn("stamp", F.max("stamp").over(so_far))
    return keyed.repartition("key").sortWithinPartitions("key", *ORDER).select(*_COLUMNS)


def fold_pass(batches: Iterator[pa.RecordBatch], *, stage: Stage, output: Output) -> Iterator[pa.RecordBatch]:
    """Fold sorted changes into typed changelog rows; for ``mapInArrow``."""
    rows: dict[bytes, bytes] = {}
    held: list[Change] = []
    with worker():
        for batch in batches:
            changes, corrupt = _read(batch)
            if stage.mini_batch:
                # The last key goes on in the next batch.
                changes = keep_last([*held, *changes])
                held, changes = changes[-1:], changes[:-1]
            yield from _fold(changes, corrupt, rows, stage, output)
        yield from _fold(held, [], rows, stage, output)


def _fold(
    changes: Sequence[Change], corrupt: Sequence[bytes], rows: dict[bytes, bytes], stage: Stage, output: Output
) -> Iterator[pa.RecordBatch]:
    folded = Folded()
    fold_changes(changes, rows, stage, folded)
    # Of all keys that are sorted before the last, nothing more comes.
    last = rows.get(changes[-1].key) if changes else None
    if changes:
        rows.clear()
    if last is not None:
        rows[changes[-1].key] = last
    records = [record for block in corrupt for record in decode_corrupt(block)] + folded.corrupt
    if folded.rows or records:
        metadata = [extra for extra in folded.metadata if extra is not None]
        yield output.batch(folded.kinds, split_rows(join_rows(folded.rows)), split_rows(join_rows(metadata)), records)


def _read(batch: pa.RecordBatch) -> tuple[list[Change], list[bytes]]:
    changes, corrupt = [], []
    for key, row, metadata, partial, records in zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True):
        if key is None:
            corrupt.append(records)
        else:
            changes.append(Change(key, row, metadata, _decode_partial(partial) if partial is not None else None))
    return changes, corrupt
