"""The first pass: decodes Kafka records into changes, on Spark's workers, in ``mapInArrow``.

Each task compiles one decoder, and collects the decoded changes in a collector (`collectors`).

A record that cannot be decoded fails the task, is dropped, becomes a row, or is written to a
dead-letter topic. The same applies to any exception that a format raises for a record, also because
of a bug in the format. Infrastructure errors (an unreachable registry, a missing package) always
fail the task.

Records without rows are counted by reason (`monitoring.counts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from cdc_formats.decoder import decode_one, in_record
from cdc_formats.errors import ArgumentError, DecodeError, MissingFieldError, TruncateError
from cdc_formats.events import (
    Change,
    ControlEvent,
    Ignored,
    KeyedChange,
    Position,
    RowKind,
)
from cdc_formats.values.schema import quote
from normalize.core.changes import ChangeColumns
from normalize.core.guard import PartitionSummary, SourceTable
from normalize.core.order import is_ordered
from normalize.core.output import (
    Letter,
    control,
    corrupt,
)
from normalize.core.records import (
    DEAD_LETTERS,
    DECODE_COUNTS,
    WITHOUT_POSITION,
    KafkaRecord,
    Records,
    Values,
    header_lists,
    header_pairs,
)
from normalize.kafka.dead_letter import send
from normalize.kafka.topics import UNKNOWN_IDS, TopicIds
from normalize.monitoring.watch import Notice, Report, Watch, counts_row, log, with_counts_column
from normalize.worker import worker

from .collectors import Collector, CollectorMaker, update_before_changer
from .columnar import ColumnarDecoder, ColumnarMaker, Refused
from .compiled import Compiled, compiled
from .plan import DecodePlan

_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
_MOST_CHANGES = 65_536
_MOST_BYTES = 32 << 20
_MOST_SKIPPED = 15
_WITHOUT_VALUES = (Ignored.DDL, Ignored.TRANSACTION, Ignored.SNAPSHOT_MARK)
"""Control events whose statements have no values of rows."""


def decode_pass(
    batches: Iterator[pa.RecordBatch],
    *,
    plan: DecodePlan,
    collector: CollectorMaker,
    report: Report = log,
    columnar: ColumnarMaker = ColumnarDecoder.of,
    topics: TopicIds | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode a task's records into a collector's batches; for ``mapInArrow``.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        Kafka's records, with the columns of `needed_columns`.
    plan : DecodePlan
    collector : callable
        Returns the task's `Collector`; the result has its columns, and those of `counts`.
    report : callable
        Receives the notices of the task (`notice.reporter`).
    columnar : callable
        Returns the decoder of many messages together, or None (`columnar.one_by_one`): each message
        is then decoded alone.
    topics : TopicIds or None
        Compares the ids of Kafka's topics.
    """
    with worker():
        # A topic that was created again is an error of `check`.
        if topics is not None and (problem := topics.check()):
            report([Notice(("topic ids",), f"{UNKNOWN_IDS} {problem}")])
        with compiled(plan) as kept:
            made = collector(kept.output, plan.key_groups, kept.shape)
            yield from _Task(kept, made, report, columnar).run(batches)


class _Task:
    """One task's records, in the order of their partition."""

    def __init__(
        self, compiled: Compiled, collector: Collector, report: Report, columnar: ColumnarMaker
    ) -> None:
        self.plan, self.collector = compiled.plan, collector
        self.decoder = decoder = compiled.decoder
        self.watch = Watch(decoder, report)
        self.decode_record = decoder.upserts if collector.keyed else decoder.decode
        self.columnar = compiled.columnar(columnar, keyed=collector.keyed)
        self.skip = self.skipped = 0
        self.tables = list[SourceTable]()
        self.compared: tuple[str | None, int] = (None, 0)
        self.change = self._update_before_changer()
        self.merge = compiled.merge_metadata
        self.key_places = [list(self.plan.metadata).index(name) for name in self.plan.key_metadata]
        self.check = compiled.check_metadata
        self.counts: Counter[str] = Counter()
        self.letters: list[Letter] = []
        self.held = self.held_bytes = 0

    def _update_before_changer(self) -> Callable[[Sequence[Change]], list[Change]] | None:
        plan = self.plan
        drop, ignore_deletes = plan.drop_update_before, plan.ignore_deletes
        if self.collector.keyed or not (drop or (ignore_deletes and plan.unique_key)):
            return None
        return update_before_changer(
            plan.result_columns,
            plan.unique_key,
            drop=drop,
            ignore_deletes=ignore_deletes,
        )

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at, stamp = ("", -1), 0
        if self.plan.row_order != "log":
            batches = arranged(batches, self.plan, sort=self.collector.keyed)
        for batch in batches:
            for records, kafka in records_of(batch, self.plan, at, stamp):
                if self.collector.by_partition and at != (records.topic, records.partition):
                    # A block has the changes of one partition, and is ordered by its first offset.
                    yield from self.flush()
                at, stamp = (records.topic, records.partition), int(records.stamps[-1])
                self.watch.begin(records.topic)
                self.decode(records, kafka)
                first = int(records.stamps.min()), self.tables, int(records.offsets[0])
                self.collector.see(PartitionSummary(records.topic, records.partition, *first))
                self.held_bytes += batch.nbytes
                if self.held >= _MOST_CHANGES or self.held_bytes >= _MOST_BYTES:
                    yield from self.flush()
        self.watch.report_notices()
        yield from self.flush()
        for last in self.collector.finish():
            yield with_counts_column(last)

    def decode(self, records: Records, kafka: Sequence[tuple[Any, ...]]) -> None:
        records = records._replace(numbers=self.counts["RECORDS"] + np.arange(len(records.values)))
        self.counts["RECORDS"] += len(records.values)
        self.held += len(records.values)
        few = self.columnar is not None and len(records.values) < self.columnar.fewest
        if self.columnar is None or self.skip or few:
            self.skip = max(self.skip - 1, 0)
            with_rows: Any = self.decode_messages(records, kafka)
        else:
            with_rows = self.decode_columns(self.columnar, records, kafka)
        self.counts.update(self.watch.see(records, with_rows))

    def decode_columns(
        self, columnar: ColumnarDecoder, records: Records, kafka: Sequence[tuple[Any, ...]]
    ) -> Any:
        """Decode records together, doubtful ones one by one; return which of them have rows.

        The result has a value for each record, which is true if the record has rows.
        """
        decoded = columnar.decode(records, kafka)
        self.check_tables(records)
        with_rows, refused = np.zeros(len(records.values), bool), 0
        for step in decoded.steps:
            if isinstance(step, ChangeColumns):
                self.take_columns(records, step)
                with_rows[step.places] = True
            elif isinstance(step, Refused):
                of_refused = [kafka[index] for index in step.indexes] if kafka else kafka
                changes = self.decode_messages(records.only(step.indexes), of_refused)
                with_rows[step.indexes] = list(map(bool, changes))
                refused += len(step.indexes)
            else:
                self.add_table(records, step.first, step.names)
        self.counts.update(decoded.ignored)
        # Reading messages twice is in vain if the next ones are of the same kind.
        in_vain = 2 * refused > len(records.values)
        self.skipped = min(2 * self.skipped + 1, _MOST_SKIPPED) if in_vain else 0
        self.skip = self.skipped
        return with_rows

    def take_columns(self, records: Records, changes: ChangeColumns) -> None:
        """Collect changes, and count those without a position."""
        self.collector.take_columns(records, changes)
        if self.plan.positions:
            positions = [position for _, position in changes.changes.positions]
            self.count_positions(records, zip(changes.places.tolist(), positions, strict=True))

    def decode_messages(self, records: Records, kafka: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Decode records one by one, and return the changes of each.

        It handles bad and ignored records according to the mode.
        """
        decoded, identifier = list[list[Any]](), self.plan.format.identifier

        def decode(index: int, *arguments: Any) -> list[Any]:
            changes: Any = self.decode_record(*arguments)
            if type(changes) is Ignored:
                self.ignore(records, index, changes)
                changes = []
            return self.changes(changes, kafka[index] if kafka else ())

        for index, arguments in enumerate(zip(*self.arguments(records), strict=True)):
            changes = decode_one(identifier, decode, index, *arguments)
            # A record of another table is not a bad record: that error takes precedence.
            self.check_tables(records, index)
            if isinstance(changes, DecodeError):
                self.bad(records, index, changes)
                changes = []
            decoded.append(changes)
        self.collector.take(records, decoded)
        if self.plan.positions:
            each = ((place, change) for place, changes in enumerate(decoded) for change in changes)
            self.count_positions(records, ((place, change.position) for place, change in each))
        return decoded

    def count_positions(
        self, records: Records, positions: Iterable[tuple[int, Position | None]]
    ) -> None:
        """Count the changes of these records that have no position."""
        without = [place for place, position in positions if not is_ordered(position)]
        if without:
            self.counts[WITHOUT_POSITION] += len(without)
            self.watch.add_without_position(records.record(min(without)), len(without))

    def check_tables(self, records: Records, index: int = 0) -> None:
        """Raise an error for a record of a second table, whose rows would be merged by key."""
        if not self.plan.identity.compared:
            return
        # The decoder's tables only grow: if nothing was added, they were compared before.
        compared = (records.topic, len(self.decoder.tables))
        if compared == self.compared:
            return
        for names in islice(self.decoder.tables, self.compared[1], None):
            self.add_table(records, index, names)
        if not self.decoder.tables and (self.columnar is None or not self.columnar.tables):
            self.add_table(records, index, ())
        self.compared = compared

    def add_table(self, records: Records, index: int, names: tuple[Any, ...]) -> None:
        """Compare the table of a record with the one of all records before."""
        identity = self.plan.identity
        named = {
            name: str(value)
            for name, value in zip(identity.columns, names, strict=False)
            if value is not None
        }
        table = SourceTable(named, records.topic, f"{records.source}@{int(records.offsets[index])}")
        self.tables = identity.merged(self.tables, [table])

    def arguments(self, records: Records) -> list[Sequence[Any]]:
        if not self.plan.reads_headers:
            return [records.keys, records.values]
        return [
            records.keys,
            records.values,
            [()] * len(records.values)
            if records.headers is None
            else header_lists(records.headers),
        ]

    def changes(self, changes: list[Any], kafka: tuple[Any, ...]) -> list[Any]:
        """Return a record's changes that the plan asks for, with the Kafka record's metadata."""
        if self.check is not None:
            for change in changes:
                self.check(change.metadata)
        if self.plan.ignore_deletes:
            changes = [
                change
                for change in changes
                if change.row is not None and getattr(change, "kind", None) is not RowKind.DELETE
            ]
        if self.change is not None:
            changes = self.change(changes)
        if (merge := self.merge) is not None:
            changes = [
                replace(change, metadata=merge(change.metadata, kafka)) for change in changes
            ]
        return (
            [self.with_metadata_key(change) for change in changes] if self.key_places else changes
        )

    def with_metadata_key(self, change: KeyedChange) -> KeyedChange:
        """Return a change with the metadata columns of the primary key in its key."""
        values = tuple([change.metadata[place] for place in self.key_places])
        if None in values:
            name = self.plan.key_metadata[values.index(None)]
            raise MissingFieldError(
                f"metadata column {quote(name)} is part of the primary key and is null or missing",
                "$",
            )
        return replace(change, key=change.key + values)

    def ignore(self, records: Records, index: int, reason: Ignored) -> None:
        if reason in self.plan.control_events:
            record = records.record(index)
            # A tombstone did not reach the format.
            has_message = reason is not Ignored.TOMBSTONE
            report_notices = self.plan.format.control_event
            event = (
                report_notices(record.key, record.value, reason, record.headers)
                if has_message
                else ControlEvent(reason)
            )
            self.collector.add_side_output(
                records, index, control(*self.without_values(event, record))
            )
        elif reason is Ignored.TRUNCATE and self.plan.on_truncate == "fail":
            raise TruncateError(
                f"the source table was truncated - in {records.record(index).where}. A changelog "
                "has no row for that: start again from a snapshot, or set on_truncate='ignore' to "
                "count it and continue, or control_events=['TRUNCATE'] to get it as a row"
            )
        self.counts[reason.value] += 1

    def without_values(
        self, event: ControlEvent, record: KafkaRecord
    ) -> tuple[ControlEvent, KafkaRecord]:
        """Return a control event and its record without what may have values of masked columns."""
        if not self.plan.format.handling.masks:
            return event, record
        shown = event if event.type in _WITHOUT_VALUES else event._replace(statement=None)
        return shown, record.without_content()

    def bad(self, records: Records, index: int, error: DecodeError) -> None:
        record, plan = records.record(index), self.plan
        error = in_record(error, record, excerpt=plan.format.error_excerpt)
        if plan.mode == "FAILFAST" and plan.dead_letters is None:
            raise error from error.__cause__
        if plan.format.handling.masks:
            record = record.without_content()
        self.counts[
            error.condition if error.condition in DECODE_COUNTS else DecodeError.condition
        ] += 1
        if plan.permissive:
            self.collector.add_side_output(records, index, corrupt(error, record))
            return
        self.watch.add_bad(error)
        if plan.dead_letters is not None:
            self.counts[DEAD_LETTERS] += 1
            self.letters.append(Letter(error, record))

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self.plan.dead_letters is not None:
            send(self.plan.dead_letters, self.letters)
            self.letters.clear()
        for batch in self.collector.flush():
            yield with_counts_column(batch)
        if self.counts:
            yield counts_row(self.collector.schema, DECODE_COUNTS, self.counts)
        self.counts.clear()
        self.held = self.held_bytes = 0


def records_of(
    batch: pa.RecordBatch, plan: DecodePlan, at: tuple[str, int] = ("", -1), stamp: int = 0
) -> Iterator[tuple[Records, list[tuple[Any, ...]]]]:
    """Yield a batch's parts, split where the partition changes (rare), with Kafka metadata."""
    partitions = batch.column("partition").to_numpy()
    changed = partitions[1:] != partitions[:-1]
    if plan.topic is None:
        topics = batch.column("topic")
        changed |= pc.not_equal(topics[1:], topics[:-1]).to_numpy(zero_copy_only=False)
    for start, end in pairwise(
        [0, *(np.flatnonzero(changed) + 1), batch.num_rows] if batch.num_rows else []
    ):
        part = batch.slice(start, end - start)
        topic = part.column("topic")[0].as_py() if plan.topic is None else plan.topic
        place = (topic, int(partitions[start]))
        kafka = [_KAFKA_READERS[name](part, place) for name in plan.kafka_metadata]
        yield (
            _columns(part, plan, place, stamp if place == at else 0),
            list(zip(*kafka, strict=True)),
        )


def arranged(
    batches: Iterator[pa.RecordBatch], plan: DecodePlan, *, sort: bool
) -> Iterator[pa.RecordBatch]:
    """Yield non-Kafka batches with row numbers as offsets if they have none, or sorted by offset.

    Raises
    ------
    ArgumentError
        When a record has NULL in a column that gives the order of the records.
    """
    start = 0
    for batch in batches:
        if plan.row_order == "row":
            numbers = pa.array(np.arange(start, start + batch.num_rows))
            batch = pa.RecordBatch.from_arrays(
                [*batch.columns, numbers], names=[*batch.schema.names, "offset"]
            )
            start += batch.num_rows
        order = [
            name for name in ("topic", "partition", "offset", "stamp") if name in batch.schema.names
        ]
        for name in order:
            if batch.column(name).null_count:
                shown = "timestamp" if name == "stamp" else name
                raise ArgumentError(
                    f"the column {shown} of a record is NULL: filter such records out, or drop the "
                    f"column {shown}"
                )
        if sort and plan.row_order == "offset":
            batch = batch.take(
                pc.sort_indices(batch, sort_keys=[(name, "ascending") for name in order])
            )
        yield batch


def _columns(
    batch: pa.RecordBatch, plan: DecodePlan, place: tuple[str, int], stamp: int
) -> Records:
    keys = (
        batch.column("key").to_pylist() if "key" in batch.schema.names else [None] * batch.num_rows
    )
    times = batch.column("stamp").to_numpy()
    stamps = np.maximum(np.maximum.accumulate(times), stamp) if plan.in_order else times
    headers = batch.column("headers") if "headers" in batch.schema.names else None
    values, offsets = batch.column("value"), batch.column("offset")
    if not pa.types.is_binary(values.type):
        values = values.cast(pa.binary())
    milliseconds = times // 1000 if plan.row_order == "row" else times
    known_times = milliseconds if "timestamp" in plan.record_columns else None
    return Records(
        *place,
        offsets.to_numpy(),
        stamps,
        keys,
        Values(values),
        known_times,
        headers,
        placed=plan.row_order != "row",
    )


_KAFKA_READERS: dict[str, Callable[[pa.RecordBatch, tuple[str, int]], list[Any]]] = {
    "topic": lambda batch, place: [place[0]] * batch.num_rows,
    "partition": lambda batch, place: [place[1]] * batch.num_rows,
    "offset": lambda batch, place: batch.column("offset").to_pylist(),
    "timestamp": lambda batch, place: batch.column("timestamp").to_pylist(),
    "timestamp-type": lambda batch, place: [
        _TIMESTAMP_TYPES.get(kind, "NoTimestampType")
        for kind in batch.column("timestampType").to_pylist()
    ],
    # The last of several headers with one name wins, as in Flink.
    "headers": lambda batch, place: [
        sorted(map(list, dict(header_pairs(headers)).items()))
        for headers in batch.column("headers").to_pylist()
    ],
    "header-list": lambda batch, place: [
        [list(pair) for pair in header_pairs(headers)]
        for headers in batch.column("headers").to_pylist()
    ],
}
