"""ChangelogNormalize of a bounded read: the rows that the stream gives, without state.

Spark sorts the changes by key and order natively (and spills to disk), and one pass folds and types them as they come: it holds the
row of one key. The fold is the stream's own, so that the two cannot differ in what they do to a key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from . import decode, group as streaming
from .changes import Gathered
from .counts import COLUMN, beside, counts_ddl, counts_row, observed
from .dead_letter import send
from .group import Stage, Told, fold_changes
from .state import KeyGroup
from .typed import Aside, Output, decode_asides
from .worker import worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = ("stamp", "source", "offset", "seq")
COUNTS = tuple(dict.fromkeys((*decode.COUNTS, *streaming.COUNTS)))
"""What is counted: what decoding counts and what the stage counts, summed where both count it."""
_COLUMNS = ("key", "stamp", "source", "change", "asides")


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
    counts: Counter[str] = Counter()
    group, held = stage.layout.empty(), Gathered(stage.shape)
    with worker():
        for batch in batches:
            asides = _read(batch, held, counts)
            ready = held
            if stage.mini_batch:
                # The last key goes on in the next batch.
                ready, held = held.split_last_key()
            else:
                held = Gathered(stage.shape)
            told = Told()
            group = _of_last_key(fold_changes(ready.changes(), group, stage, 0, told), ready)
            yield from _typed(told, asides, stage, output, counts)
        told = Told()
        fold_changes(held.changes(), group, stage, 0, told)
        yield from _typed(told, [], stage, output, counts)
        yield counts_row(output.arrow_schema, COUNTS, counts)


def _typed(told: Told, asides: list[Aside], stage: Stage, output: Output, counts: Counter[str]) -> Iterator[pa.RecordBatch]:
    counts.update(told.counts)
    if stage.dead_letters is not None:
        send(stage.dead_letters, told.letters)
    for changelog in told.changelogs:
        yield beside(output.of_stored(changelog), COUNTS)
    asides += told.asides
    if asides:
        yield beside(output.batch([], [], [], asides), COUNTS)


def _of_last_key(group: KeyGroup, folded: Gathered) -> KeyGroup:
    """Keep the last key's row: of all keys that are sorted before it, nothing more comes."""
    if not folded.keys:
        return group
    last = folded.last_key()
    return replace(group, rows=group.rows.filter(pa.compute.equal(group.rows.column("key"), last)))


def _read(batch: pa.RecordBatch, gathered: Gathered, counts: Counter[str]) -> list[Aside]:
    asides: list[Aside] = []
    for key, stamp, source, change, packed in zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True):
        if key is not None:
            gathered.add_packed(key, stamp, source, change)
        elif packed is not None:
            asides += decode_asides(packed)
    if COLUMN in batch.schema.names:
        for counted in batch.column(COLUMN).drop_null().to_pylist():
            counts.update(counted)
    return asides
