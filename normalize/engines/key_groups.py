"""ChangelogNormalize on a stream: the keyed stage, by key groups, in ``applyInPandasWithState``.

Spark calls the function once for each key group that a micro-batch touches, with the blocks of its
changes and the key group's state as one value. A call costs about a millisecond even for one
change, and so a group has many keys. The cost is that a touched group's state is read and written
as a whole (`state.Layout`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Window, functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from normalize.core.arrow import encode, slices
from normalize.core.changes import Block, ChangeBatch, decode_block
from normalize.core.guard import GUARD, SourceTable, check, decode_summary
from normalize.core.key_group import KeyGroupResult, Stage, fold_changes
from normalize.core.output import Output, decode_side_outputs
from normalize.core.records import ALL_COUNTS, DECODE_COUNTS, STAGE_COUNTS
from normalize.kafka.dead_letter import send
from normalize.monitoring.watch import (
    COLUMN,
    COUNTS_DDL,
    Notice,
    Report,
    counts_row,
    log,
    observe_counts,
    read_counts,
    reporter,
    sums,
    with_counts_column,
)
from normalize.worker import prepare, worker

if TYPE_CHECKING:
    import pandas as pd

DDL = "result BINARY, counts ARRAY<BIGINT>"
STATE_DDL = "state BINARY"
LARGE_STATE = 32 << 20
"""The size in bytes from which the state of a key group is reported."""
LARGE_TABLE = 32 << 20
"""The size in bytes from which the state of all key groups may be reported."""
KEYS_A_CHANGE = 100
"""The keys of a group for each change of a micro-batch, from which the state of all key groups is
reported."""


_decode_result = msgspec.msgpack.Decoder(tuple[list[bytes], list[bytes]]).decode
"""A call's packed rows: record batches (`Shape.changelog_schema`), and side-output blocks."""


def normalize_group(
    key: Any,
    frames: Iterator[pd.DataFrame],
    state: GroupState,
    *,
    stage: Stage,
    report: Report = log,
) -> Iterator[pd.DataFrame]:
    """Turn a key group's packed changes and state into packed rows; for ``applyInPandasWithState``.

    The packed rows are those of the changelog.

    The key group `guard.GUARD` has no rows: it compares the whole query with the checkpoint's guard
    state (`guard.check`).

    Parameters
    ----------
    key : tuple
        The key group.
    frames : iterator of DataFrame
        Packed blocks (`collectors.Blocks`), in any order.
    state : GroupState
        One binary value (`state.Layout`).
    stage : Stage
    report : callable
        Receives notices (`notice.reporter`).
    """
    import pandas as pd

    prepare()
    if key[0] == GUARD:
        _guard(frames, state, stage)
        return
    blocks = [decode_block(block) for frame in frames for block in frame["block"]]
    stored = bytes(state.get[0]) if state.exists else None
    now_ms = state.getCurrentProcessingTimeMs()
    result, after = normalize(blocks, stored, stage, now_ms)
    if stage.dead_letters is not None:
        send(stage.dead_letters, result.letters)
    if after is not stored:
        _store(state, after, result, stage, report)
    if result.first_written is not None:
        # The timeout is when the first row expires; a duration must be positive.
        state.setTimeoutDuration(max(1, result.first_written + stage.state_ttl_ms - now_ms + 1))
    side_outputs = [block.side_outputs for block in blocks if block.side_outputs]
    side_outputs += [encode(result.side_outputs)] * bool(result.side_outputs)
    changelogs = [bytes(batch.serialize()) for batch in result.changelogs]
    yield pd.DataFrame(
        {
            "result": [encode((changelogs, side_outputs))],
            "counts": [list(result.counts.values())],
        }
    )


def _store(
    state: GroupState, after: bytes | None, result: KeyGroupResult, stage: Stage, report: Report
) -> None:
    if after is None:
        state.remove()
        return
    state.update((after,))
    _report_size(len(after), result, stage, report)


def _report_size(size: int, result: KeyGroupResult, stage: Stage, report: Report) -> None:
    """Report a large state."""
    if size >= LARGE_STATE:
        report([_large_state(size, stage)])
    if is_large_table(size, result, stage):
        report([_large_table(size, result, stage)])


def is_large_table(size: int, result: KeyGroupResult, stage: Stage) -> bool:
    """Return whether the native engine would read and write much less than a call does.

    Parameters
    ----------
    size : int
        The bytes of the key group's state.
    result : KeyGroupResult
        The result of the call.
    stage : Stage

    Notes
    -----
    A stored key takes about a microsecond of a call, in Python and in Spark. Spark's own
    aggregation takes 20 to 35 µs for a change. So the native engine is cheaper if fewer than one
    key in 35 changes; the limit is a third of that. Small tables are never reported: a micro-batch
    has a fixed cost too.
    """
    return (
        stage.native_possible
        and size * stage.layout.key_groups >= LARGE_TABLE
        and result.keys >= KEYS_A_CHANGE * result.counts["CHANGES"]
    )


def _large_table(size: int, result: KeyGroupResult, stage: Stage) -> Notice:
    groups = stage.layout.key_groups
    return Notice(
        ("large table",),
        f"the state of the query has about {size * groups >> 20} MB in {groups} key groups, and "
        f"this micro-batch read and wrote all {result.keys} keys of one group for "
        f"{result.counts['CHANGES']} changes. ChangelogNormalize(engine='native') reads and writes "
        "only the keys that change (Spark 4.2, from a new checkpoint); see 'Choose the engine' in "
        "docs/normalize.md",
    )


def _large_state(size: int, stage: Stage) -> Notice:
    return Notice(
        ("large state",),
        f"the state of one key group has {size >> 20} MB. Each micro-batch that touches the group "
        "reads and writes all of it, and needs several copies in memory. Use the RocksDB state "
        "store, set spark.sql.execution.arrow.maxRecordsPerBatch to 16, and use more than "
        f"{stage.layout.key_groups} key groups, from a new checkpoint; see 'Memory' in "
        "docs/operations.md",
    )


def _guard(frames: Iterator[pd.DataFrame], state: GroupState, stage: Stage) -> None:
    seen = [decode_summary(block) for frame in frames for block in frame["block"]]
    stored = bytes(state.get[0]) if state.exists else None
    after = check(stored, seen, stage.layout, stage.expected, state.getCurrentProcessingTimeMs())
    if after != stored:
        state.update((after,))


def normalize(
    blocks: list[Block], stored: bytes | None, stage: Stage, now_ms: int
) -> tuple[KeyGroupResult, bytes | None]:
    """Return the result of folding a key group's packed changes into its stored state; pure.

    Parameters
    ----------
    blocks : list of Block
    stored : bytes or None
        The key group's state.
    stage : Stage
    now_ms : int
        Processing time of the micro-batch, in ms.

    Returns
    -------
    (result, stored) : (KeyGroupResult, bytes or None)
        The state is the same object if nothing changed, None if no key is left.
    """
    result, layout = KeyGroupResult(), stage.layout
    group = layout.decode(stored, now_ms) if stored is not None else layout.empty()
    changes, _ = ChangeBatch.of_blocks(
        [block for block in blocks if block.changes], stage.shape.schema, stage.row_order
    )
    after = fold_changes(changes, group, stage, now_ms, result)
    result.keys = len(after)
    if stage.retract_expired and len(after):
        result.first_written = int(after.extra("written").min())
    if after is group:
        return result, stored
    return result, layout.encode(after) if len(after) else None


def typed_pass(
    batches: Iterator[pa.RecordBatch], *, stage: Stage, output: Output
) -> Iterator[pa.RecordBatch]:
    """Turn the stage's packed rows into typed rows; for ``mapInArrow``."""
    with worker():
        for batch in batches:
            for data in batch.column("result").to_pylist():
                changelogs, blocks = _decode_result(data)
                for changelog in changelogs:
                    rows = pa.ipc.read_record_batch(
                        pa.py_buffer(changelog), stage.shape.changelog_schema
                    )
                    yield from map(output.of_stored, slices(rows))
                for side_outputs in blocks:
                    yield output.of_side_outputs(decode_side_outputs(side_outputs))


def normalize_stream(blocks: DataFrame, stage: Stage, output: Output, metrics: str) -> DataFrame:
    """Return the changelog that the keyed stage makes of packed blocks, as typed rows.

    Parameters
    ----------
    blocks : DataFrame
        The batches of `collectors.Blocks`.
    stage : Stage
    output : Output
    metrics : str
        The name of the stage's counts in the query's progress.
    """
    # With timeouts Spark scans the whole state in every micro-batch.
    timeout = (
        GroupStateTimeout.ProcessingTimeTimeout
        if stage.retract_expired
        else GroupStateTimeout.NoTimeout
    )
    each_group = partial(normalize_group, stage=stage, report=reporter(blocks.sparkSession))
    packed = blocks.groupBy("key_group").applyInPandasWithState(
        each_group, DDL, STATE_DDL, "append", timeout
    )
    # Counting typed rows instead would cost for each of them.
    counted = packed.observe(metrics, *sums("counts", STAGE_COUNTS))
    return counted.select("result").mapInArrow(
        partial(typed_pass, stage=stage, output=output), output.ddl
    )


# --------------------------------------------------------------------------------------------------
# ChangelogNormalize for a bounded read: the blocks and the fold of a stream, with an empty state.
#
# Spark sorts the blocks by key group and place (and spills to disk). One pass folds them in this
# order. It holds the changes of some key groups, and folds them together, since a fold has a fixed
# cost. A key group with more changes than that (a hot key) is folded in parts.

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
        The batches of `collectors.SortedBlocks`, with counts or without.
    stage : Stage
    output : Output
    split_partitions : bool
        Whether several tasks may read a Kafka partition: the timestamps, which are monotone in a
        task, are then made monotone across tasks.
    observation : Observation or None
        Receives `ALL_COUNTS`.
    """
    blocks = blocks.repartition("key_group")
    if split_partitions:
        of_partition = Window.partitionBy("key_group", "source").orderBy("offset", "seq")
        so_far = of_partition.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        blocks = blocks.withColumn("stamp", F.max("stamp").over(so_far))
    folded = blocks.sortWithinPartitions("key_group", *_PLACE).mapInArrow(
        partial(fold_pass, stage=stage, output=output), f"{output.ddl}, {COUNTS_DDL}"
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
                task.counts.update(read_counts(batch, DECODE_COUNTS))
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
                self.output.of_side_outputs(decode_side_outputs(block.side_outputs))
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
                yield with_counts_column(self.output.of_stored(rows))
        if result.side_outputs:
            yield with_counts_column(self.output.of_side_outputs(result.side_outputs))
