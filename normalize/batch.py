"""ChangelogNormalize for a bounded read: the same rows as for a stream, without state.

Spark sorts the changes by key and order (and spills to disk). One pass folds and types them in this order, and keeps only the row of one
key. The fold is the same as in a stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from . import decode, group as streaming
from .changes import Gathered
from .counts import COLUMN, beside, counts_ddl, counts_row, observed
from .dead_letter import send
from .group import Stage, Told, fold_changes
from .guard import Table, decode_seen
from .state import KeyGroup
from .typed import Aside, Output, decode_asides
from .where import MATCHES, told
from .worker import worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = ("stamp", "source", "offset", "seq")
COUNTS = tuple(dict.fromkeys((*decode.COUNTS, *streaming.COUNTS)))
"""The names of the counts of decoding and of the stage; counts with the same name are added."""
_COLUMNS = ("key", "stamp", "source", "change", "asides", "seen")


def normalized(keyed: DataFrame, stage: Stage, output: Output, *, split_partitions: bool, observation: Any = None) -> DataFrame:
    """Return the changelog of keyed changes.

    Parameters
    ----------
    keyed : DataFrame
        The batches of `targets.KeyedRows`, with counts or without.
    stage : Stage
    output : Output
    split_partitions : bool
        Whether a Kafka partition may be read by several tasks.
    observation : Observation or None
        Receives `COUNTS`.
    """
    folded = in_order(keyed, split_partitions=split_partitions).mapInArrow(
        partial(fold_pass, stage=stage, output=output), f"{output.ddl}, {counts_ddl(COUNTS)}"
    )
    return observed(folded, COUNTS, observation)


def in_order(keyed: DataFrame, *, split_partitions: bool) -> DataFrame:
    """Return the changes sorted by key and order.

    Parameters
    ----------
    keyed : DataFrame
        The batches of `targets.KeyedRows`.
    split_partitions : bool
        Whether several tasks may read a Kafka partition: the timestamps, which are monotone in a task, are then made monotone across
        tasks.
    """
    from pyspark.sql import Window, functions as F

    if split_partitions:
        so_far = Window.partitionBy("key", "source").orderBy("offset", "seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
        keyed = keyed.withColumn("stamp", F.max("stamp").over(so_far))
    kept = [name for name in (*_COLUMNS, MATCHES, COLUMN) if name in keyed.columns]
    return keyed.repartition("key").sortWithinPartitions("key", *ORDER).select(*kept)


def fold_pass(batches: Iterator[pa.RecordBatch], *, stage: Stage, output: Output) -> Iterator[pa.RecordBatch]:
    """Fold sorted changes into typed changelog rows, followed by a row of counts; for ``mapInArrow``."""
    counts: Counter[str] = Counter()
    tables: list[Table] = []
    group, held = stage.layout.empty(), Gathered(stage.shape)
    # These options require all changes of a key at once: the last key may continue in the next batch.
    whole_keys = stage.mini_batch or stage.layout.with_positions
    with worker():
        for batch in batches:
            # All rows without a key are in one task, which thus compares the tables of all partitions.
            tables = stage.expected.identity.merged(tables, _tables(batch))
            asides = _read(batch, held, counts)
            ready, held = held.split_last_key() if whole_keys else (held, Gathered(stage.shape))
            folded = Told()
            after = fold_changes(ready.changes(), group, stage, 0, folded)
            group = stage.layout.empty() if whole_keys else _of_last_key(after, ready)
            yield from _typed(folded, asides, stage, output, counts)
        folded = Told()
        fold_changes(held.changes(), group, stage, 0, folded)
        yield from _typed(folded, [], stage, output, counts)
        yield counts_row(output.arrow_schema, COUNTS, counts)


def _typed(folded: Told, asides: list[Aside], stage: Stage, output: Output, counts: Counter[str]) -> Iterator[pa.RecordBatch]:
    counts.update(folded.counts)
    if stage.dead_letters is not None:
        send(stage.dead_letters, folded.letters)
    for changelog in folded.changelogs:
        yield beside(output.of_stored(changelog), COUNTS)
    asides += folded.asides
    if asides:
        yield beside(output.batch([], [], [], asides), COUNTS)


def _of_last_key(group: KeyGroup, folded: Gathered) -> KeyGroup:
    """Return the key group with only the last key's row; no more changes of the keys before it follow."""
    if not folded.keys:
        return group
    last = folded.last_key()
    return replace(group, rows=group.rows.filter(pc.equal(group.rows.column("key"), last)))


def _tables(batch: pa.RecordBatch) -> list[Table]:
    return [table for seen in batch.column("seen").drop_null().to_pylist() for table in decode_seen(seen).tables]


def _read(batch: pa.RecordBatch, gathered: Gathered, counts: Counter[str]) -> list[Aside]:
    asides: list[Aside] = []
    matching = batch.column(MATCHES).to_pylist() if MATCHES in batch.schema.names else repeat(True)
    columns = (batch.column(name).to_pylist() for name in _COLUMNS)
    for (key, stamp, source, change, packed, _), matches in zip(zip(*columns, strict=True), matching, strict=False):
        if key is not None:
            # In a bounded read redeliveries are detected only among the changes of one key.
            gathered.add_packed(key, stamp, f"{source} {key.hex()}", change, told(matches, source))
        elif packed is not None:
            asides += decode_asides(packed)
    if COLUMN in batch.schema.names:
        for counted in batch.column(COLUMN).drop_null().to_pylist():
            counts.update(counted)
    return asides
