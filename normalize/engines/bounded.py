"""ChangelogNormalize for a bounded read: the blocks and the fold of a stream, with an empty state.

Spark sorts the blocks by key group and place (and spills to disk). One pass folds them in this
order. It holds the changes of some key groups, and folds them together, since a fold has a fixed
cost. A key group with more changes than that (a hot key) is folded in parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from normalize.core.arrow import slices
from normalize.core.changes import Block, ChangeBatch, decode_block
from normalize.core.counts import ALL_COUNTS
from normalize.core.guard import GUARD, SourceTable, decode_summary
from normalize.core.key_group import KeyGroupResult, Stage, fold_changes
from normalize.core.output import Output, decode_side_outputs
from normalize.kafka.dead_letter import send
from normalize.monitoring.counts import (
    COLUMN,
    counts_ddl,
    counts_row,
    observe_counts,
    with_counts_column,
)
from normalize.worker import worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = ("stamp", "source", "offset", "seq")
_NOW_MS = 1
"""The processing time: a delete's time must not be 0."""
_MOST_HELD = 8 << 20


def normalize_bounded(
    blocks: DataFrame,
    stage: Stage,
    output: Output,
    *,
    split_partitions: bool,
    observation: Any = None,
) -> DataFrame:
    """Return the changelog of packed blocks.

    Parameters
    ----------
    blocks : DataFrame
        The batches of `targets.SortedBlocks`, with counts or without.
    stage : Stage
    output : Output
    split_partitions : bool
        Whether several tasks may read a Kafka partition: the timestamps, which are monotone in a
        task, are then made monotone across tasks.
    observation : Observation or None
        Receives `ALL_COUNTS`.
    """
    from pyspark.sql import Window, functions as F

    blocks = blocks.repartition("key_group")
    if split_partitions:
        of_partition = Window.partitionBy("key_group", "source").orderBy("offset", "seq")
        so_far = of_partition.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        blocks = blocks.withColumn("stamp", F.max("stamp").over(so_far))
    folded = blocks.sortWithinPartitions("key_group", *_PLACE).mapInArrow(
        partial(fold_pass, stage=stage, output=output), f"{output.ddl}, {counts_ddl(ALL_COUNTS)}"
    )
    return observe_counts(folded, ALL_COUNTS, observation)


def fold_pass(
    batches: Iterator[pa.RecordBatch], *, stage: Stage, output: Output, most_held: int = _MOST_HELD
) -> Iterator[pa.RecordBatch]:
    """Fold sorted blocks into typed changelog rows, for ``mapInArrow``.

    A row of counts follows the changelog rows.
    """
    with worker():
        task = _Task(stage, output, most_held)
        for batch in batches:
            key_groups, stamps, sources = (
                batch.column(name).to_pylist() for name in ("key_group", "stamp", "source")
            )
            # A list of all blocks would be a second copy.
            blocks = (block.as_py() for block in batch.column("block"))
            for key_group, block, stamp, source in zip(
                key_groups, blocks, stamps, sources, strict=True
            ):
                if block is not None:
                    yield from task.take(key_group, block, (stamp, source))
            if COLUMN in batch.schema.names:
                for counts in batch.column(COLUMN).drop_null().to_pylist():
                    task.counts.update(counts)
        yield from task.fold_all()
        yield counts_row(output.arrow_schema, ALL_COUNTS, task.counts)


class _Task:
    """The blocks that are not folded yet, and the state of a partly folded key group."""

    def __init__(self, stage: Stage, output: Output, most_held: int) -> None:
        self.stage, self.output, self.most_held = stage, output, most_held
        # Only a log gives the order of a part, and only the end of a key group its last changes.
        self.in_parts = stage.row_order == "log" and not stage.mini_batch
        self.counts: Counter[str] = Counter()
        self.tables: list[SourceTable] = []
        self.key_group = GUARD
        self.complete: list[Block] = []
        self.blocks: list[Block] = []
        self.size = 0
        self.state = stage.layout.empty()

    def take(self, key_group: int, data: bytes, place: tuple[int, str]) -> Iterator[pa.RecordBatch]:
        """Add a block with its place, and fold those before it if enough are held."""
        if key_group == GUARD:
            # One task has the summaries of all tasks, and thus compares the tables of all
            # partitions.
            self.tables = self.stage.expected.identity.merged(
                self.tables, decode_summary(data).tables
            )
            return
        if key_group != self.key_group:
            self.key_group, self.complete, self.blocks = key_group, self.complete + self.blocks, []
            if not self.complete:
                self.state = self.stage.layout.empty()
            if self.size >= self.most_held:
                yield from self.fold_complete()
        elif self.in_parts and self.size >= self.most_held:
            yield from self.fold_complete()
            ready, self.blocks = ChangeBatch.of_blocks(
                self.blocks, self.stage.shape.schema, before=place
            )
            self.size = sum(len(block.changes) for block in self.blocks)
            yield from self._fold(ready)
        block = decode_block(data)
        if block.side_outputs:
            yield with_counts_column(
                self.output.of_side_outputs(decode_side_outputs(block.side_outputs)), ALL_COUNTS
            )
        else:
            self.blocks.append(block)
            self.size += len(data)

    def fold_all(self) -> Iterator[pa.RecordBatch]:
        """Fold the blocks of whole key groups, and of the last one, which has no more."""
        self.complete, self.blocks = self.complete + self.blocks, []
        yield from self.fold_complete()

    def fold_complete(self) -> Iterator[pa.RecordBatch]:
        """Fold the blocks of whole key groups; the state, if any, is that of the first one."""
        if self.complete:
            changes, _ = ChangeBatch.of_blocks(
                self.complete, self.stage.shape.schema, self.stage.row_order
            )
            self.complete, self.size = [], 0
            yield from self._fold(changes)
            self.state = self.stage.layout.empty()

    def _fold(self, changes: ChangeBatch) -> Iterator[pa.RecordBatch]:
        result = KeyGroupResult()
        self.state = fold_changes(changes, self.state, self.stage, _NOW_MS, result)
        self.counts.update(result.counts)
        if self.stage.dead_letters is not None:
            send(self.stage.dead_letters, result.letters)
        for changelog in result.changelogs:
            for rows in slices(changelog):
                yield with_counts_column(self.output.of_stored(rows), ALL_COUNTS)
        if result.side_outputs:
            yield with_counts_column(self.output.of_side_outputs(result.side_outputs), ALL_COUNTS)
