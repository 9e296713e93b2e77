"""ChangelogNormalize on a stream: the keyed stage, by key groups, in ``applyInPandasWithState``.

Spark calls the function once for each key group that a micro-batch touches, with the packed blocks of its changes and the key
group's state as one value. A call costs about 2 ms however little is in it, and so a group is many keys; its price is that a
touched group's state is read and written whole (`state.Layout`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from cdc_formats.errors import PartialImageError

from .dead_letter import DeadLetters, Letter, send
from .decode import DEAD_LETTERS, Mode
from .fold import FoldOptions, fold
from .packing import Changes, KafkaRecord, complete_packed, decode_changes, encode_block, join_rows, split_rows
from .state import KeyGroup, Layout
from .typed import Aside, Output, corrupt, decode_asides
from .worker import keep_archives, worker

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

COUNTS = ("CHANGES", "SUPPRESSED_EQUAL", "DELETES_OF_UNKNOWN_KEYS", "EXPIRED", PartialImageError.condition, DEAD_LETTERS)
"""What the stage counts: changes folded, rows equal to the stored, deletes of keys without a row, rows expired, rows that could not be
completed, and those of them that were written as dead letters."""

DDL = "kinds BINARY, rows BINARY, metadata BINARY, asides BINARY, " + ", ".join(f"{name} BIGINT" for name in COUNTS)
STATE_DDL = "state BINARY"
PACKED = ("kinds", "rows", "metadata", "asides")
_BLOCK = ("source", "first_offset", "changes", "asides")
_BATCH_ROWS = 10_000  # Spark's own default for Arrow


@dataclass(frozen=True)
class Stage:
    """What the stage has to know; made on the driver, sent to the workers.

    Parameters
    ----------
    layout : Layout
    options : FoldOptions
    mode : {"FAILFAST", "DROPMALFORMED", "PERMISSIVE"}
        For rows that cannot be completed.
    dead_letters : DeadLetters or None
        Where the records of such rows go; then there is no other mode.
    state_ttl_ms : int
        0: rows are kept for ever.
    mini_batch : bool
        Whether only the last change of a key in a micro-batch counts.
    """

    layout: Layout
    options: FoldOptions
    mode: Mode = "FAILFAST"
    dead_letters: DeadLetters | None = None
    state_ttl_ms: int = 0
    mini_batch: bool = False


class Change(NamedTuple):
    """A packed change: its key, the row after it (None: deleted), its metadata, and its record where the row lacks columns."""

    key: bytes
    row: bytes | None
    metadata: bytes | None
    partial: KafkaRecord | None


class Folded:
    """The result of folding changes: packed changelog rows, asides, dead letters to be written, counts."""

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.rows: list[bytes] = []
        self.metadata: list[bytes | None] = []
        self.asides: list[Aside] = []
        self.letters: list[Letter] = []
        self.counts = dict.fromkeys(COUNTS, 0)


def fold_changes(changes: Iterable[Change], rows: dict[bytes, bytes], stage: Stage, folded: Folded) -> set[bytes]:
    """Fold changes, in order, into the rows of their keys.

    Parameters
    ----------
    changes : iterable of Change
    rows : dict
        Packed key to packed row; changed in place.
    stage : Stage
    folded : Folded
        What comes out is added to it.

    Returns
    -------
    set of bytes
        The keys that were written or deleted.

    Raises
    ------
    PartialImageError
        In FAILFAST mode, when a row lacks columns and nothing is stored of its key.
    """
    options, touched = stage.options, set()
    kinds, out, out_metadata, counts = folded.kinds, folded.rows, folded.metadata, folded.counts
    for key, row, metadata, record in changes:
        stored = rows.get(key)
        if record is not None and row is not None:
            if stored is None:
                _incomplete(record, stage, folded)
                continue
            row = complete_packed(row, stored)
        output, after = fold(stored, row, options)
        if not output:
            counts["SUPPRESSED_EQUAL" if row is not None else "DELETES_OF_UNKNOWN_KEYS"] += 1
            continue
        touched.add(key)
        if after is None:
            del rows[key]
        else:
            rows[key] = after
        for kind, changed in output:
            kinds.append(kind)
            out.append(changed)
            out_metadata.append(metadata)
    return touched


def _incomplete(record: KafkaRecord, stage: Stage, folded: Folded) -> None:
    error = PartialImageError(
        "the row lacks columns that the producer left out as unchanged, and nothing is stored of its key. Begin where the row was "
        "inserted, or let the producer write all columns (PostgreSQL: REPLICA IDENTITY FULL; GoldenGate: NOCOMPRESSUPDATES)",
        "$.after",
        where=record.where,
    )
    if stage.mode == "FAILFAST" and stage.dead_letters is None:
        raise error
    folded.counts[PartialImageError.condition] += 1
    if stage.mode == "PERMISSIVE":
        folded.asides.append(corrupt(error, record))
    elif stage.dead_letters is not None:
        folded.counts[DEAD_LETTERS] += 1
        folded.letters.append(Letter(error, record))


def in_order(blocks: list[tuple[str, int, bytes]]) -> list[Change]:
    """Return the changes of a key group in their order.

    Parameters
    ----------
    blocks : list of (source, first_offset, changes)
        Packed blocks, each of one Kafka partition (``topic[partition]``), in any order.

    Returns
    -------
    list of Change
        In the order of offsets within a partition; partitions are merged by Kafka's timestamps, which is as near as Kafka comes to
        the order in which the records were written. Ties go by the partition's name.
    """
    changes: list[Change] = []
    stamps: list[int] = []
    sources: dict[str, list[Changes]] = {}
    for source, _, data in sorted(blocks, key=lambda block: block[:2]):
        sources.setdefault(source, []).append(decode_changes(data))
    for unpacked in sources.values():
        # Each block's stamps are monotone; a partition that was read by several tasks may fall back between two of them.
        stamps += accumulate((stamp for block in unpacked for stamp in block.stamps), max)
        for block in unpacked:
            changes += _changes(block)
    if len(sources) == 1:
        return changes
    return [changes[index] for index in sorted(range(len(changes)), key=stamps.__getitem__)]


def _changes(block: Changes) -> Iterator[Change]:
    partials = {partial.change: partial.record for partial in block.partials}
    metadata: Sequence[bytes | None] = block.metadata or [None] * len(block.keys)
    for index, (key, row, extra) in enumerate(zip(block.keys, block.rows, metadata, strict=True)):
        yield Change(key, row, extra, partials.get(index))


def keep_last(changes: Iterable[Change]) -> list[Change]:
    """Keep the last change of each key (Flink's mini-batch), in the order in which the keys last changed.

    A row that lacks columns is completed from the change before it, where that is a row.
    """
    last: dict[bytes, Change] = {}
    for change in changes:
        before = last.pop(change.key, None)
        if change.partial is not None and change.row is not None and before is not None and before.row is not None:
            change = change._replace(row=complete_packed(change.row, before.row), partial=before.partial)
        last[change.key] = change
    return list(last.values())


def normalize_group(key: Any, frames: Iterator[pd.DataFrame], state: GroupState, *, stage: Stage) -> Iterator[pd.DataFrame]:
    """Turn one key group's packed changes and state into packed changelog rows; for ``applyInPandasWithState``.

    Parameters
    ----------
    key : tuple
        The key group.
    frames : iterator of DataFrame
        Packed blocks (`targets.Blocks`), in no order.
    state : GroupState
        One binary value (`state.Layout`).
    stage : Stage
    """
    import pandas as pd

    keep_archives()
    blocks, asides = [], []
    for frame in frames:
        for source, first, changes, aside in zip(*(frame[name] for name in _BLOCK), strict=True):
            if changes is not None:
                blocks.append((source, first, changes))
            else:
                asides.append(aside)
    stored = bytes(state.get[0]) if state.exists else None
    folded, after = normalize(blocks, stored, stage, state.getCurrentProcessingTimeMs())
    if stage.dead_letters is not None:
        send(stage.dead_letters, folded.letters)
    if after is None and stored is not None:
        state.remove()
    elif after is not None and after != stored:
        state.update((after,))
    yield pd.DataFrame(_output(folded, asides))


def normalize(blocks: list[tuple[str, int, bytes]], stored: bytes | None, stage: Stage, now_ms: int) -> tuple[Folded, bytes | None]:
    """Fold a key group's packed changes into its stored state; pure.

    Parameters
    ----------
    blocks : list of (source, first_offset, changes)
    stored : bytes or None
        The key group's state.
    stage : Stage
    now_ms : int
        Processing time of the micro-batch, in ms.

    Returns
    -------
    (folded, stored) : (Folded, bytes or None)
        The state is the same object where nothing changed, None where no key is left.
    """
    folded = Folded()
    group = stage.layout.decode(stored, now_ms) if stored is not None else KeyGroup()
    changes = in_order(blocks)
    folded.counts["CHANGES"] = len(changes)
    if stage.mini_batch:
        changes = keep_last(changes)
    if stage.state_ttl_ms:
        folded.counts["EXPIRED"] = group.expire(now_ms - stage.state_ttl_ms)
    touched = fold_changes(changes, group.rows, stage, folded)
    if stage.state_ttl_ms:
        for key in touched:
            if key in group.rows:
                group.written[key] = now_ms
            else:
                group.written.pop(key, None)
    if not touched and not folded.counts["EXPIRED"]:
        return folded, stored
    return folded, stage.layout.encode(group) if group.rows else None


def _output(folded: Folded, asides: list[bytes]) -> dict[str, list[Any]]:
    with_metadata = any(extra is not None for extra in folded.metadata)
    columns: dict[str, list[Any]] = {
        "kinds": [bytes(folded.kinds)],
        "rows": [join_rows(folded.rows)],
        "metadata": [join_rows([extra for extra in folded.metadata if extra is not None]) if with_metadata else None],
        "asides": [encode_block(folded.asides) if folded.asides else None],
    }
    columns.update({name: [count] for name, count in folded.counts.items()})
    for block in asides:
        for name, values in columns.items():
            values.append(block if name == "asides" else 0 if name in COUNTS else None)
    return columns


def typed_pass(batches: Iterator[pa.RecordBatch], *, output: Output) -> Iterator[pa.RecordBatch]:
    """Turn the stage's packed rows into typed rows; for ``mapInArrow``."""
    with worker():
        for batch in batches:
            for kinds, rows, metadata, asides in zip(*(batch.column(name).to_pylist() for name in PACKED), strict=True):
                if kinds:
                    yield from _typed(kinds, split_rows(rows), split_rows(metadata) if metadata else [], output)
                if asides:
                    yield output.batch([], [], [], decode_asides(asides))


def _typed(kinds: bytes, rows: list[list[Any]], metadata: list[list[Any]], output: Output) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(kinds), _BATCH_ROWS):
        part = slice(start, start + _BATCH_ROWS)
        yield output.batch(kinds[part], rows[part], metadata[part], [])


def normalized(blocks: DataFrame, stage: Stage, output: Output, metrics: str) -> DataFrame:
    """Return the changelog of packed blocks: the keyed stage, and the typed rows after it.

    Parameters
    ----------
    blocks : DataFrame
        Of `targets.Blocks`.
    stage : Stage
    output : Output
    metrics : str
        The name of the stage's counts in the query's progress.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.state import GroupStateTimeout

    packed = blocks.groupBy("key_group").applyInPandasWithState(
        partial(normalize_group, stage=stage), DDL, STATE_DDL, "append", GroupStateTimeout.NoTimeout
    )
    counted = packed.observe(metrics, *(F.sum(name).alias(name) for name in COUNTS))
    return counted.select(*PACKED).mapInArrow(partial(typed_pass, output=output), output.ddl)
