"""Faults of a producer, each with a record of a topic that shows it and the setting that mends it.

Only what the records prove is a fault: a topic that could be right has none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from itertools import chain
from typing import Any, NamedTuple

from cdc_formats.errors import ArgumentError, DecodeError
from cdc_formats.events import Event, Ignored, RowKind
from cdc_formats.format import Format
from cdc_formats.topics.inference.infer import AnyColumns, Reading
from cdc_formats.topics.inference.observed import unavailable_forms
from cdc_formats.topics.sampler import JSON_OBJECT, SampledRecord, Sampler, inspect_all, value_at

from .profile import all_readings, chosen_format
from .topic_profile import TableProfile, profiled_tables

MISSED, INSERTED_TWICE, PARTIAL_ROWS, PLACEHOLDERS = (
    "missed change",
    "inserted twice",
    "partial rows",
    "unavailable values",
)
MOVED, OTHER_KEY, SHARED_KEYS = "several partitions", "other key", "shared keys"
NO_TOMBSTONES, COMPACTED, ABORTED = "no tombstones", "compacted", "aborted transactions"
CUT, QUESTIONS = "cut values", "types unknown"

FAULTS: Mapping[str, tuple[str, str]] = {
    MISSED: (
        "an update replaces a row that no earlier record wrote: changes are missing before it",
        "read the table again from a new snapshot. Causes: binlog_row_value_options=PARTIAL_JSON, "
        "whose updates Debezium drops; a position of the connector that was set forward",
    ),
    INSERTED_TWICE: (
        "a row is inserted that an earlier record inserted, and none deleted it",
        "Debezium: skipped.operations=none, so that a TRUNCATE is written; Maxwell never writes it. "
        "Read the table again from a new snapshot",
    ),
    PARTIAL_ROWS: (
        "rows lack columns that others have",
        "binlog_row_image=FULL in the database; GoldenGate: NOCOMPRESSUPDATES",
    ),
    PLACEHOLDERS: (
        "a placeholder stands for values that the log does not have",
        "PostgreSQL: ALTER TABLE ... REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL",
    ),
    MOVED: (
        "changes of one row are in several partitions, whose order Kafka does not keep",
        "let the producer use the primary key as the Kafka key; or one partition",
    ),
    OTHER_KEY: (
        "the Kafka key is not the primary key",
        "let the producer use the primary key as the Kafka key (Debezium: message.key.columns)",
    ),
    SHARED_KEYS: (
        "rows of several tables have the same Kafka key: a compaction keeps one of them",
        "a topic for each table; or Debezium's ByLogicalTableRouter with key.enforce.uniqueness",
    ),
    NO_TOMBSTONES: (
        "the topic is compacted, and a delete has no tombstone: its last record is never removed",
        "Debezium: tombstones.on.delete=true",
    ),
    COMPACTED: (
        "the topic is compacted, and a compaction removes changes that a reader has not read yet",
        "cleanup.policy=delete for this topic; or read it as a table only, never as a history",
    ),
    ABORTED: (
        "records are of transactions that were aborted",
        "isolation.level=read_committed in each reader of the topic, as this library has it",
    ),
    CUT: (
        "several different values of a column end at the same round length: they may be cut",
        "raise the limit of the producer (DMS: LobMaxSize or FullLobMode)",
    ),
    QUESTIONS: (
        "the messages do not have the types of columns whose values do not show them",
        "value.converter.schemas.enable=true, or a schema registry; or declare the columns",
    ),
}
"""What each fault is, and what mends it."""

_LEAST_CUT, _LIKELY_CUT = 1000, 3


class Fault(NamedTuple):
    """A fault of a producer.

    Attributes
    ----------
    name : str
        A key of `FAULTS`.
    table : str
        Empty for the whole topic.
    where : str
        ``topic[partition]@offset`` of the first record that shows it.
    records : int
        The number of records of the sample that show it.
    detail : str
        Columns or values; empty if there is nothing to name.
    """

    name: str
    table: str
    where: str
    records: int
    detail: str = ""

    def __str__(self) -> str:
        fault, remedy = FAULTS[self.name]
        detail = f" ({self.detail})" if self.detail else ""
        table = f"{self.table}: " if self.table else ""
        more = f" and {self.records - 1:,} more" if self.records > 1 else ""
        return f"{table}{fault}{detail}\n  seen: {self.where}{more}\n  mend: {remedy}"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values, with the sentences."""
        fault, remedy = FAULTS[self.name]
        return {**self._asdict(), "fault": fault, "remedy": remedy}


def diagnose(
    records: Sequence[SampledRecord],
    *,
    format: str | Format | None = None,
    compacted: bool = False,
    aborted: Sequence[SampledRecord] = (),
    **options: Any,
) -> list[Fault]:
    """Return the faults of a producer that a sample of its topic shows.

    Parameters
    ----------
    records : sequence of SampledRecord
        Committed records.
    format : str, Format or None
        None tries every registered format.
    compacted : bool
        Whether Kafka compacts the topic.
    aborted : sequence of SampledRecord
        Records between these, whose transactions were aborted.
    **options
        Options of the format.

    Returns
    -------
    list of Fault
        Empty if the sample shows none.

    Raises
    ------
    ArgumentError
        When no format reads the sample.
    """
    inspected = inspect_all(records)
    tried, chosen, reason = chosen_format(inspected, format, options)
    if chosen is None:
        raise ArgumentError(f"no format reads this topic ({reason}): pass its format")
    reader = AnyColumns(chosen)
    readings = all_readings(inspected, tried[0].readings, reader)
    without_rows = [
        each for each in readings if each.ignored in (Ignored.TRUNCATE, Ignored.TOMBSTONE)
    ]
    tables = profiled_tables(readings, reader)
    shown = chain(
        *(_table_faults(table, group, without_rows, reader) for table, group in tables),
        _topic_faults(readings, reader.sampler, compacted),
        ((ABORTED, "", record, "") for record in aborted),
    )
    faults: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, table, record, detail in shown:
        faults.setdefault((name, table), []).append((record.where, detail))
    return [
        Fault(name, table, records[0][0], len(records), records[0][1])
        for (name, table), records in faults.items()
    ]


_Shown = tuple[str, str, SampledRecord, str]
"""A fault's name, its table, a record that shows it, and a detail."""


def _topic_faults(
    readings: Sequence[Reading], sampler: Sampler, compacted: bool
) -> Iterator[_Shown]:
    """Yield what the Kafka keys and the compaction of the topic show."""
    tables = dict[bytes, tuple[str, ...]]()
    for each in readings:
        key = each.record.key
        if key is not None and each.table and tables.setdefault(key, each.table) != each.table:
            yield SHARED_KEYS, "", each.record, f"{'.'.join(tables[key])} and others"
    if not compacted or sampler.plain_rows:
        return
    changes = [each for each in readings if each.events]
    deletes = [each for each in changes if each.events[0].kind is RowKind.DELETE]
    if deletes and not any(each.record.value is None for each in readings):
        yield NO_TOMBSTONES, "", deletes[0].record, ""
    if changes:
        yield COMPACTED, "", changes[0].record, ""


def _table_faults(
    table: TableProfile,
    group: Sequence[Reading],
    without_rows: Sequence[Reading],
    reader: AnyColumns,
) -> Iterator[_Shown]:
    """Yield what the rows of one table show."""
    name, format = table.name, reader.format
    keyed = [each for each in group if each.record.key is not None]
    if table.key_agrees is False and keyed:
        yield OTHER_KEY, name, keyed[0].record, table.kafka_key.partition(": ")[2]
    evidence = table.schema.evidence if table.schema else ()
    questioned = [each.column.name for each in evidence if each.questions]
    untyped = [each for each in group if each.inspected.value.encoding == JSON_OBJECT]
    if questioned and untyped and "debezium" in format.identifier:
        yield QUESTIONS, name, untyped[0].record, ", ".join(questioned)
    yield from _row_faults(name, group, reader)
    yield from _cut_values(name, group)
    if table.primary_key and not reader.sampler.plain_rows:
        history = _History(name, table.primary_key, reader)
        for each in merge(
            group, without_rows, key=lambda each: (each.record.partition, each.record.offset)
        ):
            yield from history.add(each)


def _row_faults(name: str, group: Sequence[Reading], reader: AnyColumns) -> Iterator[_Shown]:
    """Yield rows with placeholders, and those that lack columns which come back later."""
    placeholder = reader.format.handling.placeholder
    forms = () if placeholder is None else unavailable_forms(placeholder)
    columns, absent, partition = set[str](), dict[str, list[SampledRecord]](), -1
    for record, message, row in _rows(group):
        if record.partition != partition:
            columns, absent, partition = set(), {}, record.partition
        for column in row.keys() & absent.keys():  # not dropped: it is there again
            for lacking in absent.pop(column):
                yield PARTIAL_ROWS, name, lacking, column
        for column in columns - row.keys():
            absent.setdefault(column, []).append(record)
        columns |= row.keys()
        # Where no connector is named, the text may be a value of the source.
        if reader.sampler.connector(message) and not reader.sampler.is_complete(message):
            for column, value in row.items():
                if isinstance(value, Hashable) and value in forms:
                    yield PLACEHOLDERS, name, record, str(column)


def _rows(group: Sequence[Reading]) -> Iterator[tuple[SampledRecord, Any, Mapping[str, Any]]]:
    return (
        (each.record, event.message, event.after)
        for each in group
        for event in each.events
        if isinstance(event.after, Mapping)
    )


def _cut_values(name: str, group: Sequence[Reading]) -> Iterator[_Shown]:
    """Yield columns of many lengths with several values of the longest, which is a round number."""
    lengths = defaultdict[str, dict[int, dict[str, SampledRecord]]](dict)
    for record, _, row in _rows(group):
        for column, value in row.items():
            if isinstance(value, str):
                lengths[column].setdefault(len(value), {}).setdefault(value, record)
    for column, values in lengths.items():
        longest = max(values)
        sizes = (longest, longest * 3 // 4)  # text, and bytes in base64
        is_round = longest >= _LEAST_CUT and any(not x % 1000 or not x % 1024 for x in sizes)
        near = [length for length in values if length > longest / 2]
        if is_round and len(near) > _LIKELY_CUT and len(values[longest]) >= _LIKELY_CUT:
            for record in values[longest].values():
                yield CUT, name, record, f"{column} of {longest:,} characters"


_Key = tuple[str, ...]


class _History:
    """The last row of each key, and what contradicts it."""

    def __init__(self, name: str, key: Sequence[str], reader: AnyColumns) -> None:
        self.name, self.key, self.reader = name, key, reader
        self.rows: dict[_Key, Mapping[str, Any]] = {}
        self.partitions: dict[_Key, int] = {}
        self.positions: dict[tuple[_Key, str], tuple[Any, Any]] = {}
        self.repeated: set[tuple[bytes | None, bytes | None]] = set()
        self.last: SampledRecord | None = None

    def add(self, reading: Reading) -> Iterator[_Shown]:
        """Compare a record with those before it; yield what it contradicts."""
        record, last = reading.record, self.last
        if (
            last is None
            or record.partition != last.partition
            # More offsets than those of transaction markers: another end of the topic follows.
            or record.offset - last.offset > 10
            or reading.ignored is Ignored.TRUNCATE
        ):
            self.rows.clear()
        self.last = record
        columns = self.reader.sampler.key_columns(record.key, record.headers)
        if reading.ignored is Ignored.TOMBSTONE:
            self.rows.pop(self._key(columns) or (), None)
        contents = record.key, record.value
        is_repeated = contents in self.repeated
        self.repeated.add(contents)
        operation = value_at(reading.inspected.value.fields, self.reader.sampler.operation_path)
        for event in reading.events:
            before, key = self._keys(event, columns)
            if key is None:
                continue
            if self.partitions.setdefault(key, record.partition) != record.partition:
                yield MOVED, self.name, record, f"key {', '.join(key)}"
            if event.kind is RowKind.DELETE or operation in (
                "r",
                "read",
                "bootstrap-insert",
                "bootstrap-start",
                "INIT",
            ):
                # A snapshot may have a row before its insert, which is read from the log.
                self.rows.pop(key, None)
            elif not is_repeated and not self._is_redelivered(event, key):
                yield from self._add(event, before, key, record)

    def _add(
        self, event: Event, before: _Key | None, key: _Key, record: SampledRecord
    ) -> Iterator[_Shown]:
        """Compare an insert or an update with the row before it."""
        row = self.rows.get(before or key)
        if event.kind is RowKind.INSERT and key in self.rows:
            yield INSERTED_TWICE, self.name, record, f"key {', '.join(key)}"
        if (
            event.kind is RowKind.UPDATE_AFTER
            and row is not None
            and isinstance(event.before, Mapping)
        ):
            names = row.keys() & event.before.keys()
            if other := sorted(name for name in names if _differ(row[name], event.before[name])):
                yield MISSED, self.name, record, f"{other[0]} of key {', '.join(key)}"
        if before is not None:
            self.rows.pop(before, None)
        self.rows[key] = event.after if isinstance(event.after, Mapping) else {}

    def _is_redelivered(self, event: Event, key: _Key) -> bool:
        """Whether the log has the event before another one of the key, which is kept."""
        position = None
        if not self.reader.format.traits.positions:
            with suppress(DecodeError):
                position = self.reader.format.traits.position(event.message)
        if position is None or position.high is None:
            return False
        at, last = (position.high, position.low), self.positions.get((key, position.history))
        if last is None or at > last:
            self.positions[key, position.history] = at
        return last is not None and at <= last

    def _keys(self, event: Event, columns: Mapping[str, Any]) -> tuple[_Key | None, _Key | None]:
        """Return the key of the row before an event, and of the row that it changes."""
        is_delete = event.kind is RowKind.DELETE
        of_record = columns if is_delete else None
        before = self._key(event.before, event.after if event.changed_only else of_record)
        return before, before if is_delete else self._key(event.after)

    def _key(self, image: Any, other: Any = None) -> _Key | None:
        """Return the values of the key in a row, or else in another one; None without all of them."""
        rows = [each for each in (image, other) if isinstance(each, Mapping)]
        values = [next((each[name] for each in rows if name in each), None) for name in self.key]
        return None if None in values or not rows else tuple(map(str, values))


def _differ(of_row: Any, of_before: Any) -> bool:
    """Whether a value that is surely in the before-image is another one.

    A log that lacks a value has NULL or a default in its place; a FLOAT may be spelled otherwise.
    """
    return (
        isinstance(of_before, (str, int))
        and isinstance(of_row, type(of_before))
        and bool(of_before)
        and of_row != of_before
    )
