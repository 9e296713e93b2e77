"""ChangelogNormalize of a bounded read: the rows that the stream gives, without state.

Spark sorts the changes by key and order natively (and spills to disk), and one pass folds and types them as they come: it holds the
row of one key. The fold is the stream's own, so that the two cannot differ in what they do to a key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from . import decode, stage as streaming
from .counts import COLUMN, beside, counts_ddl, counts_row, observed
from .dead_letter import send
from .packing import KafkaRecord, join_rows, split_rows
from .stage import Change, Folded, Stage, fold_changes, keep_last
from .typed import Aside, Output, decode_asides
from .worker import worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = ("stamp", "source", "offset", "seq")
COUNTS = tuple(dict.fromkeys((*decode.COUNTS, *streaming.COUNTS)))
"""What is counted: what decoding counts and what the stage counts, summed where both count it."""
_COLUMNS = ("key", "row", "metadata", "partial", "asides")
_decode_record = msgspec.msgpack.Decoder(KafkaRecord).decode


def normalized(keyed: DataFrame, stage: Stage, output: Output, *, split_partitions: bool, observation: Any = None) -> DataFrame:
    """Return the changelog of keyed changes.

    Parameters
    ----------
    keyed : DataFrame
        Of `targets.KeyedRows`, with counts or without.
    stage : Stage
    output : Output
    split_partitions : bool
        Whether a Kafka partition may be read by several tasks.
    observation : Observation or None
        Gets `COUNTS`.
    """
    folded = in_order(keyed, split_partitions=split_partitions).mapInArrow(
        partial(fold_pass, stage=stage, output=output), f"{output.ddl}, {counts_ddl(COUNTS)}"
    )
    return observed(folded, COUNTS, observation)


def in_order(keyed: DataFrame, *, split_partitions: bool) -> DataFrame:
    """Return the changes by key, in their order.

    Parameters
    ----------
    keyed : DataFrame
        Of `targets.KeyedRows`.
    split_partitions : bool
        Whether a Kafka partition may be read by several tasks: then the timestamps, which are monotone in a task, are made so
        across tasks.
    """
    from pyspark.sql import Window, functions as F

    if split_partitions:
        so_far = Window.partitionBy("key", "source").orderBy("offset", "seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
        keyed = keyed.withColumn("stamp", F.max("stamp").over(so_far))
    kept = [name for name in (*_COLUMNS, COLUMN) if name in keyed.columns]
    return keyed.repartition("key").sortWithinPartitions("key", *ORDER).select(*kept)


def fold_pass(batches: Iterator[pa.RecordBatch], *, stage: Stage, output: Output) -> Iterator[pa.RecordBatch]:
    """Fold sorted changes into typed changelog rows, and the counts of all in a last row; for ``mapInArrow``."""
    rows: dict[bytes, bytes] = {}
    held: list[Change] = []
    counts: Counter[str] = Counter()
    with worker():
        for batch in batches:
            changes, asides = _read(batch, counts)
            if stage.mini_batch:
                # The last key goes on in the next batch.
                changes = keep_last([*held, *changes])
                held, changes = changes[-1:], changes[:-1]
            yield from _fold(changes, asides, rows, stage, output, counts)
        yield from _fold(held, [], rows, stage, output, counts)
        yield counts_row(output.arrow_schema, COUNTS, counts)


def _fold(
    changes: Sequence[Change], asides: list[Aside], rows: dict[bytes, bytes], stage: Stage, output: Output, counts: Counter[str]
) -> Iterator[pa.RecordBatch]:
    folded = Folded()
    fold_changes(changes, rows, stage, folded)
    counts.update(folded.counts)
    # Of all keys that are sorted before the last, nothing more comes.
    last = rows.get(changes[-1].key) if changes else None
    if changes:
        rows.clear()
    if last is not None:
        rows[changes[-1].key] = last
    if stage.dead_letters is not None:
        send(stage.dead_letters, folded.letters)
    asides += folded.asides
    if folded.rows or asides:
        metadata = [extra for extra in folded.metadata if extra is not None]
        yield beside(output.batch(folded.kinds, split_rows(join_rows(folded.rows)), split_rows(join_rows(metadata)), asides), COUNTS)


def _read(batch: pa.RecordBatch, counts: Counter[str]) -> tuple[list[Change], list[Aside]]:
    changes, asides = [], []
    for key, row, metadata, record, packed in zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True):
        if key is not None:
            changes.append(Change(key, row, metadata, _decode_record(record) if record is not None else None))
        elif packed is not None:
            asides += decode_asides(packed)
    counts["CHANGES"] += len(changes)
    if COLUMN in batch.schema.names:
        for counted in batch.column(COLUMN).drop_null().to_pylist():
            counts.update(counted)
    return changes, asides
