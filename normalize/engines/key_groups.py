"""ChangelogNormalize on a stream: the keyed stage, by key groups, in ``applyInPandasWithState``.

Spark calls the function once for each key group that a micro-batch touches, with the blocks of its
changes and the key group's state as one value. A call costs about a millisecond even for one
change, and so a group has many keys. The cost is that a touched group's state is read and written
as a whole (`state.Layout`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from normalize.core.arrow import slices
from normalize.core.changes import Block, ChangeBatch, decode_block
from normalize.core.counts import STAGE_COUNTS
from normalize.core.guard import GUARD, check, decode_summary
from normalize.core.key_group import KeyGroupResult, Stage, fold_changes
from normalize.core.output import Output, decode_side_outputs
from normalize.core.packing import encode
from normalize.kafka.dead_letter import send
from normalize.monitoring.notice import Notice, Report, log, reporter
from normalize.worker import prepare, worker

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

DDL = "result BINARY, counts ARRAY<BIGINT>"
STATE_DDL = "state BINARY"
LARGE_STATE = 32 << 20
"""The size in bytes from which the state of a key group is reported."""
LARGE_TABLE = 32 << 20
"""The size in bytes from which the state of all key groups may be reported."""
KEYS_A_CHANGE = 100
"""The keys of a group for each change of a micro-batch, from which the state of all key groups is
reported."""


class Normalized(msgspec.Struct, array_like=True, gc=False):
    """A call's packed rows: record batches (`Shape.changelog_schema`), and side-output blocks."""

    changelogs: list[bytes]
    side_outputs: list[bytes]


_decode_normalized = msgspec.msgpack.Decoder(Normalized).decode


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
        Packed blocks (`targets.Blocks`), in any order.
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
            "result": [encode(Normalized(changelogs, side_outputs))],
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
        "only the keys that change (Spark 4.2; carry_over moves a stopped query to it); see "
        "'Choose the engine' in docs/normalize.md",
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
                result = _decode_normalized(data)
                for changelog in result.changelogs:
                    rows = pa.ipc.read_record_batch(
                        pa.py_buffer(changelog), stage.shape.changelog_schema
                    )
                    yield from map(output.of_stored, slices(rows))
                for side_outputs in result.side_outputs:
                    yield output.of_side_outputs(decode_side_outputs(side_outputs))


def normalize_stream(blocks: DataFrame, stage: Stage, output: Output, metrics: str) -> DataFrame:
    """Return the changelog that the keyed stage makes of packed blocks, as typed rows.

    Parameters
    ----------
    blocks : DataFrame
        The batches of `targets.Blocks`.
    stage : Stage
    output : Output
    metrics : str
        The name of the stage's counts in the query's progress.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.state import GroupStateTimeout

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
    counted = packed.observe(
        metrics,
        *(F.sum(F.col("counts")[place]).alias(name) for place, name in enumerate(STAGE_COUNTS)),
    )
    return counted.select("result").mapInArrow(
        partial(typed_pass, stage=stage, output=output), output.ddl
    )
