"""The keyed stage of a key group: pure functions on Arrow columns, no Python code for each change.

The steps: drop redeliveries (`order`), complete partial rows, find equal rows, fold
(`fold_columns.Predecessors`), and take the emitted and the stored rows from the columns by their
indexes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.decoding.rows import key_indices
from cdc_formats.errors import PartialImageError
from cdc_formats.events import RowKind
from cdc_formats.fold import FoldOptions

from .arrow import by_cost, equal_at
from .changes import ChangeBatch, Partial, Shape, concatenated
from .fold_columns import Bools, FoldResult, Ints, Predecessors
from .guard import NOTHING_EXPECTED, Expected
from .order import RowOrder, first_deliveries, renumbered
from .output import Destination, Letter, Mode, SideOutput, corrupt
from .records import DEAD_LETTERS, STAGE_COUNTS
from .state import POSITION, KeyGroup, Layout

_MOST_EPOCHS = 2**16
"""When an epoch has this number, the epochs are numbered again (`order.renumbered`)."""


@dataclass(frozen=True)
class Stage:
    """The arguments of the stage; built on the driver, sent to the workers.

    Parameters
    ----------
    layout : Layout
    shape : Shape
    options : FoldOptions
    mode : {"FAILFAST", "DROPMALFORMED", "PERMISSIVE"}
        The handling of partial rows that cannot be completed.
    dead_letters : Destination or None
        The destination of the records of such rows; it replaces `mode`.
    state_ttl_ms : int
        0: rows never expire.
    retract_expired : bool
        Whether a row that expires is also deleted from the result.
    mini_batch : bool
        Whether only the last change of a key in a micro-batch is kept.
    delete_retention_ms : int
        How long the position of a delete is kept.
    expected : Expected
        The guard compares it in every micro-batch.
    row_order : {"log", "offset", "row"}
        The order of the records (`order.RowOrder`).
    native_possible : bool
        Whether the native engine could run the stage.
    """

    layout: Layout
    shape: Shape
    options: FoldOptions
    mode: Mode = "FAILFAST"
    dead_letters: Destination | None = None
    state_ttl_ms: int = 0
    retract_expired: bool = False
    mini_batch: bool = False
    delete_retention_ms: int = 0
    expected: Expected = NOTHING_EXPECTED
    row_order: RowOrder = "log"
    native_possible: bool = False

    @cached_property
    def compared(self) -> tuple[int, ...]:
        """The columns in which two rows of a key are compared: numbers first, and the last first.

        Columns that change often (times, counters) tend to be last.
        """
        names = {column.name for column in self.shape.columns}
        key = key_indices(
            self.shape.columns, [name for name in self.layout.unique_key if name in names]
        )
        compared = [
            index
            for index in reversed(range(len(self.shape.columns)))
            if index not in (*key, *self.shape.ignored)
        ]
        order = by_cost([self.shape.columns[index].type for index in compared])
        return tuple(compared[index] for index in order)


@dataclass
class KeyGroupResult:
    """The result of folding a key group: changelog rows, side outputs, new dead letters, counts.

    If expired rows are deleted, `first_written` is the time of the oldest stored row, in ms of
    processing time. `keys` is how many keys are stored afterwards.
    """

    changelogs: list[pa.RecordBatch] = field(default_factory=list)
    side_outputs: list[SideOutput] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STAGE_COUNTS, 0))
    first_written: int | None = None
    keys: int = 0


def fold_changes(
    changes: ChangeBatch, group: KeyGroup, stage: Stage, now_ms: int, result: KeyGroupResult
) -> KeyGroup:
    """Return the key group after its changes, which are folded in order.

    Parameters
    ----------
    changes : Changes
    group : KeyGroup
    stage : Stage
    now_ms : int
        Processing time, in ms.
    result : KeyGroupResult
        The results are added to it.

    Returns
    -------
    KeyGroup
        The same object if nothing changed.

    Raises
    ------
    PartialImageError
        In FAILFAST mode, when a row lacks columns and no row is stored for its key.
    """
    return _Fold(changes, group, stage, now_ms, result).run()


class _Fold:
    """One run; it names rows by their indexes in `Predecessors`."""

    def __init__(
        self,
        changes: ChangeBatch,
        group: KeyGroup,
        stage: Stage,
        now_ms: int,
        result: KeyGroupResult,
    ) -> None:
        self.changes, self.group, self.stage, self.now_ms, self.result = (
            changes,
            group,
            stage,
            now_ms,
            result,
        )
        self.counts = result.counts
        self.counts["CHANGES"] += len(changes)
        self.positions: dict[int, tuple[int, int, int]] = {}
        self.epochs = group.epochs
        self.codes = self._codes()
        self.expired = self._expired()
        self.without_row: Bools = (group.extra("deleted_at") != 0) | self.expired

    def run(self) -> KeyGroup:
        if self.stage.layout.with_positions:
            self._refuse_redeliveries()
        if self.expired.any():
            self._expire()
        self.predecessors = Predecessors(
            self.codes, self.changes.flags("deleted"), self.without_row
        )
        self.silent = np.zeros(len(self.changes), bool)
        self.rows = self._rows()
        if self.changes.partials:
            self._complete()
        if self.stage.mini_batch:
            self._keep_last()
        self.suppressed = self._suppressed()
        folded = self.predecessors.fold(self.suppressed, self.stage.options.generate_update_before)
        self.counts["SUPPRESSED_EQUAL"] += int(self.suppressed.sum())
        unknown = self.predecessors.deleted & ~self.predecessors.has_before & ~self.silent
        self.counts["DELETES_OF_UNKNOWN_KEYS"] += int(unknown.sum())
        if not len(folded.kinds) and not self.expired.any() and not self.positions:
            return self.group
        indexes = self._stored_indexes(folded)
        # A call of Arrow costs more than the rows of a small micro-batch.
        taken = self.rows.take(pa.array(np.concatenate([folded.rows, indexes])))
        if len(folded.kinds):
            changed = taken.slice(0, len(folded.kinds))
            self.result.changelogs.append(self._changelog(folded, changed.columns[1:]))
        return self._stored(indexes, taken.slice(len(folded.kinds)).columns)

    def _codes(self) -> Ints:
        changed = self.changes.batch.column(0).dictionary_encode()
        # The many stored keys are only looked up: each is unique, so that its index is its code.
        stored_at = pc.index_in(self.group.rows.column(0), value_set=changed.dictionary)
        stored_at = stored_at.fill_null(-1).to_numpy()
        indexes = np.flatnonzero(stored_at >= 0)
        codes = len(self.group) + np.arange(len(changed.dictionary))
        codes[stored_at[indexes]] = indexes
        of_changes: Ints = codes[changed.indices.to_numpy()]
        return of_changes

    def _rows(self) -> pa.RecordBatch:
        """Return the keys and columns of the stored rows, followed by those of the changes."""
        width, batch = len(self.stage.shape.columns), self.changes.batch
        first = batch.schema.get_field_index("c0")
        stored = self.group.rows.select(range(1 + width))
        changed = batch.select([0, *range(first, first + width)])
        return concatenated([stored, changed], stored.schema)

    # ----------------------------------------------------------------------------------------------
    # before the fold

    def _refuse_redeliveries(self) -> None:
        epoch, high, low = (self.group.extra(name) for name in POSITION)

        def stored(code: int) -> tuple[int, int, int] | None:
            return (
                (int(epoch[code]), int(high[code]), int(low[code])) if code < len(epoch) else None
            )

        changes = [
            (code, *position)
            for code, position in zip(self.codes.tolist(), self.changes.positions, strict=True)
        ]
        accepted, self.positions, self.epochs = first_deliveries(changes, self.epochs, stored)
        indexes = np.flatnonzero(accepted)
        self.counts["REDELIVERIES"] += len(accepted) - len(indexes)
        if len(indexes) < len(accepted):
            self.changes, self.codes = self.changes.take(indexes), self.codes[indexes]

    def _expired(self) -> Bools:
        if not self.stage.state_ttl_ms:
            return np.zeros(len(self.group), bool)
        expired: Bools = self.group.extra("written") < self.now_ms - self.stage.state_ttl_ms
        return expired

    def _expire(self) -> None:
        indexes = np.flatnonzero(self.expired & (self.group.extra("deleted_at") == 0))
        self.counts["EXPIRED"] += len(indexes)
        if self.stage.retract_expired and len(indexes):
            schema, width = self.stage.shape.changelog_schema, len(self.stage.shape.columns)
            rows = self.group.rows.take(pa.array(indexes))
            metadata = [pa.nulls(len(indexes), each.type) for each in list(schema)[1 + width :]]
            kinds = pa.array(np.full(len(indexes), RowKind.DELETE, np.int8))
            self.result.changelogs.append(
                pa.RecordBatch.from_arrays(
                    [kinds, *rows.columns[1 : 1 + width], *metadata], schema=schema
                )
            )

    def _complete(self) -> None:
        """Fill in the missing columns of partial rows from the row before them, in order."""
        predecessors, before = self.predecessors, self.predecessors.before
        sources: dict[int, Ints] = {}
        for partial in self.changes.partials:
            at = predecessors.stored + partial.change
            previous = before[partial.change]
            if previous < 0 or predecessors.without_row[previous]:
                # It is treated as a missing row by the changes after it.
                predecessors.without_row[at] = predecessors.deleted[partial.change] = self.silent[
                    partial.change
                ] = True
                _incomplete(partial, self.stage, self.result)
                continue
            for column in partial.absent:
                source = sources.setdefault(column, np.arange(len(predecessors.without_row)))
                source[at] = source[previous]
        columns = self.rows.columns
        for column, source in sources.items():
            columns[1 + column] = columns[1 + column].take(pa.array(source))
        self.rows = pa.RecordBatch.from_arrays(columns, schema=self.rows.schema)

    def _keep_last(self) -> None:
        """Keep each key's last change (Flink's mini-batch), in the order of the last changes."""
        predecessors = self.predecessors
        indexes = np.flatnonzero(predecessors.last)
        whole = np.concatenate([np.arange(predecessors.stored), predecessors.stored + indexes])
        self.rows = self.rows.take(pa.array(whole))
        self.silent, deleted = self.silent[indexes], predecessors.deleted[indexes]
        self.changes, self.codes = self.changes.take(indexes), self.codes[indexes]
        self.predecessors = Predecessors(self.codes, deleted, self.without_row)

    def _suppressed(self) -> Bools:
        predecessors = self.predecessors
        suppressed = np.zeros(len(predecessors.codes), bool)
        if not self.stage.options.suppress_equal:
            return suppressed
        candidates = np.flatnonzero(predecessors.has_before & ~predecessors.deleted)
        compared = self.stage.compared
        same = equal_at(
            [self.stage.shape.columns[index].type for index in compared],
            self.rows.select([1 + index for index in compared]),
            predecessors.stored + candidates,
            predecessors.before[candidates],
        )
        suppressed[candidates[same]] = True
        return suppressed

    # ----------------------------------------------------------------------------------------------
    # after the fold

    def _changelog(self, folded: FoldResult, rows: list[pa.Array]) -> pa.RecordBatch:
        shape, causes = self.stage.shape, pa.array(folded.causes)
        metadata = [
            column.take(causes) for column in self.changes.columns("m", len(shape.metadata))
        ]
        return pa.RecordBatch.from_arrays(
            [pa.array(folded.kinds), *rows, *metadata], schema=shape.changelog_schema
        )

    def _stored_indexes(self, folded: FoldResult) -> Ints:
        """Return the indexes of the rows and remembered deletes to store."""
        predecessors, with_positions = self.predecessors, self.stage.layout.with_positions
        untouched = self._remembered() if with_positions else ~self.without_row
        untouched[self.codes[self.codes < predecessors.stored]] = False
        kept = (
            folded.kept if with_positions else folded.kept[~predecessors.without_row[folded.kept]]
        )
        indexes: Ints = np.concatenate([np.flatnonzero(untouched), kept])
        return indexes

    def _stored(self, indexes: Ints, arrays: list[pa.Array]) -> KeyGroup:
        """Return the key group of rows with their keys, which are in these indexes."""
        predecessors, group, layout = self.predecessors, self.group, self.stage.layout
        if layout.with_ttl:
            written = np.concatenate(
                [group.extra("written"), np.full(len(self.changes), self.now_ms)]
            )
            arrays.append(pa.array(written[indexes]))
        deleted_at = np.concatenate(
            [group.extra("deleted_at"), predecessors.deleted * np.int64(self.now_ms)]
        )[indexes]
        if layout.with_positions:
            arrays += self._new_positions(indexes)
        return KeyGroup(
            pa.RecordBatch.from_arrays([*arrays, pa.array(deleted_at)], schema=layout.schema),
            self.epochs,
        )

    def _remembered(self) -> Bools:
        deleted_at = self.group.extra("deleted_at")
        remembered: Bools = ~self.expired & (
            (deleted_at == 0) | (deleted_at >= self.now_ms - self.stage.delete_retention_ms)
        )
        return remembered

    def _new_positions(self, indexes: Ints) -> list[pa.Array]:
        codes = np.concatenate([np.arange(self.predecessors.stored), self.codes])
        stored = [self.group.extra(name) for name in POSITION]
        columns = [
            np.append(values, np.zeros(int(codes.max(initial=0)) + 1, values.dtype))
            for values in stored
        ]
        for code, position in self.positions.items():
            for column, value in zip(columns, position, strict=True):
                column[code] = value
        epoch, high, low = (column[codes[indexes]] for column in columns)
        if max((each.number for each in self.epochs), default=0) >= _MOST_EPOCHS:
            self.epochs, numbers = renumbered(self.epochs)
            epoch = (
                np.searchsorted(numbers, epoch, "left")
                + np.searchsorted(numbers, epoch, "right")
                - 1
            )
        return [
            pa.array(epoch, pa.int32()),
            pa.array(high, pa.uint64()),
            pa.array(low, pa.uint64()),
        ]


_ALL_COLUMNS = (
    "PostgreSQL: REPLICA IDENTITY FULL; GoldenGate: NOCOMPRESSUPDATES; MySQL: binlog_row_image=FULL"
)


def _incomplete(partial: Partial, stage: Stage, result: KeyGroupResult) -> None:
    error = PartialImageError(
        "the row lacks columns that the producer left out as unchanged, and no row is stored for "
        "its key: start where the row was inserted, or configure the producer to write all "
        f"columns ({_ALL_COLUMNS})",
        "$.after",
        where=partial.record.where,
    )
    if stage.mode == "FAILFAST" and stage.dead_letters is None:
        raise error
    result.counts[PartialImageError.condition] += 1
    if stage.mode == "PERMISSIVE":
        result.side_outputs.append(corrupt(error, partial.record))
    elif stage.dead_letters is not None:
        result.counts[DEAD_LETTERS] += 1
        result.letters.append(Letter(error, partial.record))
