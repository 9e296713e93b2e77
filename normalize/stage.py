"""ChangelogNormalize on a stream: the keyed stage, by key groups, in ``applyInPandasWithState``.

Spark calls the function once for each key group that a micro-batch touches, with the blocks of its changes and the key group's state
as one value. A call costs about a millisecond even for one change, and so a group has many keys. The cost is that a touched group's state
is read and written as a whole (`state.Layout`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from .arrow import slices
from .changes import Block, Changes, decode_block
from .counts import beside, counts_ddl, counts_row, observed
from .dead_letter import send
from .group import COUNTS, Stage, Told, fold_changes
from .guard import GUARD, check, decode_seen
from .notice import Notice, Report, log, reporter
from .packing import encode
from .typed import Output, decode_asides
from .worker import keep_archives, worker

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

DDL = "told BINARY"
STATE_DDL = "state BINARY"
LARGE_STATE = 32 << 20
"""The size in bytes from which the state of a key group is reported."""


class Normalized(msgspec.Struct, array_like=True, gc=False):
    """The packed result of a call: record batches of `Stage.changelog_schema`, blocks of side outputs, and the values of `COUNTS`."""

    changelogs: list[bytes]
    asides: list[bytes]
    counts: list[int]


_decode_normalized = msgspec.msgpack.Decoder(Normalized).decode


def normalize_group(
    key: Any, frames: Iterator[pd.DataFrame], state: GroupState, *, stage: Stage, report: Report = log
) -> Iterator[pd.DataFrame]:
    """Turn one key group's packed changes and state into packed changelog rows; for ``applyInPandasWithState``.

    The key group `guard.GUARD` has no rows: it compares the whole query with the checkpoint's guard state (`guard.check`).

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

    keep_archives()
    if key[0] == GUARD:
        _guard(frames, state, stage)
        return
    blocks = [decode_block(block) for frame in frames for block in frame["block"]]
    stored = bytes(state.get[0]) if state.exists else None
    now_ms = state.getCurrentProcessingTimeMs()
    told, after = normalize(blocks, stored, stage, now_ms)
    if stage.dead_letters is not None:
        send(stage.dead_letters, told.letters)
    if after is None and stored is not None:
        state.remove()
    elif after is not None and after is not stored:
        state.update((after,))
        if len(after) >= LARGE_STATE:
            report([_large_state(len(after), stage)])
    if told.first_written is not None:
        # The timeout is when the first row expires; a duration must be positive.
        state.setTimeoutDuration(max(1, told.first_written + stage.state_ttl_ms - now_ms + 1))
    asides = [block.asides for block in blocks if block.asides]
    if told.asides:
        asides.append(encode(told.asides))
    changelogs = [bytes(batch.serialize()) for batch in told.changelogs]
    yield pd.DataFrame({"told": [encode(Normalized(changelogs, asides, list(told.counts.values())))]})


def _large_state(size: int, stage: Stage) -> Notice:
    return Notice(
        ("large state",),
        f"the state of one key group has {size >> 20} MB. Each micro-batch that touches the group reads and writes all of it, and needs "
        f"several copies in memory. Use the RocksDB state store, set spark.sql.execution.arrow.maxRecordsPerBatch to 16, and use more than "
        f"{stage.layout.key_groups} key groups (python -m normalize.rescale changes a checkpoint); see 'Memory' in docs/normalize.md",
    )


def _guard(frames: Iterator[pd.DataFrame], state: GroupState, stage: Stage) -> None:
    seen = [decode_seen(block) for frame in frames for block in frame["block"]]
    stored = bytes(state.get[0]) if state.exists else None
    after = check(stored, seen, stage.layout, stage.expected, state.getCurrentProcessingTimeMs())
    if after != stored:
        state.update((after,))


def normalize(blocks: list[Block], stored: bytes | None, stage: Stage, now_ms: int) -> tuple[Told, bytes | None]:
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
    (told, stored) : (Told, bytes or None)
        The state is the same object if nothing changed, None if no key is left.
    """
    told, layout = Told(), stage.layout
    group = layout.decode(stored, now_ms) if stored is not None else layout.empty()
    changes = Changes.of_blocks([block for block in blocks if block.changes], stage.shape.schema)
    after = fold_changes(changes, group, stage, now_ms, told)
    if stage.retract_expired and len(after):
        told.first_written = int(after.extra("written").min())
    if after is group:
        return told, stored
    return told, layout.encode(after) if len(after) else None


def typed_pass(batches: Iterator[pa.RecordBatch], *, stage: Stage, output: Output) -> Iterator[pa.RecordBatch]:
    """Turn the stage's packed results into typed rows, with separate rows for counts; for ``mapInArrow``."""
    with worker():
        for batch in batches:
            for data in batch.column("told").to_pylist():
                told = _decode_normalized(data)
                for changelog in told.changelogs:
                    rows = pa.ipc.read_record_batch(pa.py_buffer(changelog), stage.changelog_schema)
                    for part in slices(rows):
                        yield beside(output.of_stored(part), COUNTS)
                for asides in told.asides:
                    yield beside(output.batch([], [], [], decode_asides(asides)), COUNTS)
                yield counts_row(output.arrow_schema, COUNTS, dict(zip(COUNTS, told.counts, strict=True)))


def normalized(blocks: DataFrame, stage: Stage, output: Output, metrics: str) -> DataFrame:
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
    from pyspark.sql.streaming.state import GroupStateTimeout

    # With timeouts Spark scans the whole state in every micro-batch.
    timeout = GroupStateTimeout.ProcessingTimeTimeout if stage.retract_expired else GroupStateTimeout.NoTimeout
    each_group = partial(normalize_group, stage=stage, report=reporter(blocks.sparkSession))
    packed = blocks.groupBy("key_group").applyInPandasWithState(each_group, DDL, STATE_DDL, "append", timeout)
    typed = packed.mapInArrow(partial(typed_pass, stage=stage, output=output), f"{output.ddl}, {counts_ddl(COUNTS)}")
    return observed(typed, COUNTS, metrics)
