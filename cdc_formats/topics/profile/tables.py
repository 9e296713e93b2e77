"""Profiles of a sample's tables: operations, schemas and before-images.

They also show whether the Kafka key is the primary key.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import chain
from typing import Any

import msgspec

from cdc_formats.errors import ChangelogError
from cdc_formats.events import SHORT_STRINGS, ChangelogMode, Event, Ignored, RowKind
from cdc_formats.format import Format
from cdc_formats.topics.inference import InferredSchema
from cdc_formats.topics.inference.infer import AnyColumns, Reading, case_note, infer_readings
from cdc_formats.topics.sampler import InspectedRecord, Sampler, value_at
from cdc_formats.values.schema import source_id


@dataclass(frozen=True)
class BeforeImages:
    """The before-images in a table's messages.

    Parameters
    ----------
    updates, updates_with : int
        The number of updates, and of those with a before-image.
    deletes, deletes_whole : int
        The number of deletes, and of those with a value in a column outside the key.
    changed_only : bool
        Whether the before-images of updates have only the changed columns.
    """

    updates: int = 0
    updates_with: int = 0
    deletes: int = 0
    deletes_whole: int = 0
    changed_only: bool = False


@dataclass(frozen=True)
class TableProfile:
    """A table of the topic.

    Parameters
    ----------
    name : str
        The name that `TableOptions` are for (``shop.orders``); empty when the messages name no table.
    records : int
        The number of records with rows of the table.
    kinds : mapping
        The number of changelog rows by kind: ``+I``, ``-U``, ``+U``, ``-D``.
    operations : mapping
        The number of records by the producer's operation.
    before : BeforeImages
    kafka_key : str
        Whether the Kafka key is the primary key, with the evidence.
    key_agrees : bool or None
        Whether the Kafka key is the primary key; None if unknown.
    schema : InferredSchema or None
    reason : str
        Why there is no schema.
    options : mapping
        The format options that read this table, without secrets.
    """

    name: str
    records: int
    kinds: Mapping[str, int]
    operations: Mapping[str, int]
    before: BeforeImages
    kafka_key: str
    key_agrees: bool | None
    schema: InferredSchema | None
    reason: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ddl(self) -> str:
        """The columns as DDL text; empty if unknown."""
        return "" if self.schema is None else self.schema.ddl

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key; empty if unknown."""
        return () if self.schema is None else self.schema.primary_key

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        schema = None if self.schema is None else self.schema.to_dict()
        options = {
            name: value if isinstance(value, (bool, int, str)) else repr(value)
            for name, value in self.options.items()
        }
        values = {
            **vars(self),
            "before_images": self.before,
            "ddl": self.ddl,
            "primary_key": self.primary_key,
        }
        del values["before"]
        return dict(msgspec.to_builtins({**values, "schema": schema, "options": options}))


def profiled_tables(
    readings: Sequence[Reading], reader: AnyColumns
) -> list[tuple[TableProfile, list[Reading]]]:
    """Return the tables of a sample with their records, the largest first.

    Parameters
    ----------
    readings : sequence of Reading
    reader : AnyColumns
        The reader that made the readings.
    """
    groups = _groups(readings, reader.sampler)
    named = [names for names in groups if names]
    made = [
        (_table(names, group, reader, _filters(names, named, reader.format)), group)
        for names, group in groups.items()
    ]
    return sorted(made, key=lambda each: -each[0].records)


def _groups(readings: Sequence[Reading], sampler: Sampler) -> dict[tuple[str, ...], list[Reading]]:
    """Return the records with rows or columns, by table.

    A single named table gets those that name none.
    """
    groups: dict[tuple[str, ...], list[Reading]] = {}
    for each in readings:
        declares = each.table is not None and each.ignored in sampler.declaring
        if each.events or declares or _is_tombstone(each, sampler):
            groups.setdefault(each.table or (), []).append(each)
    if () in groups and len(groups) == 2:
        nameless = groups.pop(())
        (names,) = groups
        groups[names] = sorted(
            groups[names] + nameless, key=lambda each: (each.record.partition, each.record.offset)
        )
    return groups


def _is_tombstone(reading: Reading, sampler: Sampler) -> bool:
    """Whether a record is a tombstone that deletes its key."""
    return sampler.plain_rows and reading.ignored is Ignored.TOMBSTONE


def _filters(
    names: Sequence[str], all_names: Sequence[tuple[str, ...]], format: Format
) -> dict[str, str]:
    """Return the options that filter out the other tables."""
    options = list(format.traits.table_identity.values())
    if len(all_names) < 2 or not names or not options:
        return {}
    filters = {options[-1]: re.escape(names[-1])}
    if len({each[0] for each in all_names if each[-1] == names[-1]}) > 1:
        filters.setdefault(options[0], re.escape(names[0]))
    return {option: pattern for option, pattern in filters.items() if option}


def _table(
    names: Sequence[str],
    readings: Sequence[Reading],
    reader: AnyColumns,
    filters: Mapping[str, str],
) -> TableProfile:
    format = replace(reader.format, **filters)  # type: ignore[arg-type]
    schema, reason = _schema(readings, format, single_key=reader.sampler.plain_rows)
    readings = [each for each in readings if each.ignored not in reader.sampler.declaring]
    key = schema.primary_key if schema else ()
    agrees, kafka_key = _key_agreement(readings, reader, key)
    detected = (
        {name: schema.format_options[name] for name in schema.option_reasons} if schema else {}
    )
    path = reader.sampler.operation_path
    values = [value_at(each.inspected.value.fields, path) for each in readings if path]
    operations = Counter(each for each in values if isinstance(each, str) and each)
    return TableProfile(
        name=source_id(format.traits.table_parts(names)),
        records=len(readings),
        kinds=_kinds(readings, reader.sampler),
        operations=dict(operations.most_common()),
        before=_before(readings, key),
        kafka_key=kafka_key,
        key_agrees=agrees,
        schema=schema,
        reason=reason,
        options={**detected, **set_options(format)},
    )


def set_options(format: Format) -> dict[str, Any]:
    """Return the options of a format that differ from their defaults; ``...`` replaces a secret."""
    return {
        option.name: value if option.repr else "..."
        for option, value in [(option, getattr(format, option.name)) for option in fields(format)]
        if value != option.default and (value or option.default is not MISSING)
    }


def _schema(
    readings: Sequence[Reading], format: Format, *, single_key: bool
) -> tuple[InferredSchema | None, str]:
    """Return the schema inferred from a table's records, or the reason why inference failed."""
    by_age = sorted(readings, key=lambda each: (each.record.timestamp, each.record.offset))
    single = _key_column([each.inspected for each in readings]) if single_key else None
    try:
        schema = infer_readings(
            by_age, AnyColumns(format), primary_key=() if single is None else (single,)
        )
    except ChangelogError as error:
        return None, str(error.args[0])
    return (None, case_note(schema.same_but_for_case)) if schema.same_but_for_case else (schema, "")


# --------------------------------------------------------------------------------------------------
# operations


def _kinds(readings: Sequence[Reading], sampler: Sampler) -> dict[str, int]:
    """Return the number of changelog rows by kind."""
    counts: Counter[RowKind] = Counter()
    for each in readings:
        for event in each.events:
            counts.update(_rows(event, sampler.format.changelog_mode))
        counts[RowKind.DELETE] += _is_tombstone(each, sampler)
    return {SHORT_STRINGS[kind]: counts[kind] for kind in RowKind if counts[kind]}


def _rows(event: Event, mode: ChangelogMode) -> list[RowKind]:
    if event.kind is RowKind.INSERT and not mode.contains(RowKind.INSERT):
        return [RowKind.UPDATE_AFTER]
    if (
        event.kind is RowKind.UPDATE_AFTER
        and mode.contains(RowKind.UPDATE_BEFORE)
        and not event.single
    ):
        return [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]
    return [event.kind]


def _before(readings: Sequence[Reading], key: Sequence[str]) -> BeforeImages:
    events = list(chain.from_iterable(each.events for each in readings))
    updates = [event for event in events if event.kind is RowKind.UPDATE_AFTER and not event.single]
    deletes = [event for event in events if event.kind is RowKind.DELETE]
    return BeforeImages(
        updates=len(updates),
        updates_with=sum(event.before is not None for event in updates),
        deletes=len(deletes),
        deletes_whole=sum(
            isinstance(event.before, Mapping)
            and any(value is not None for name, value in event.before.items() if name not in key)
            for event in deletes
        ),
        changed_only=any(event.changed_only for event in updates),
    )


# --------------------------------------------------------------------------------------------------
# keys


def _key_column(records: Sequence[InspectedRecord]) -> str | None:
    """Return the column that equals a single-value key in every record, None if no column does."""
    single = [
        each
        for each in records
        if each.value.fields and not each.key.fields and each.key.value is not None
    ]
    return next(
        (
            name
            for name in (single[0].value.fields if single else {})
            if all(
                (value := each.value.fields.get(name)) is not None
                and str(value) == str(each.key.value)
                for each in single
            )
        ),
        None,
    )


def _key_agreement(
    readings: Sequence[Reading], reader: AnyColumns, primary_key: Sequence[str]
) -> tuple[bool | None, str]:
    """Return whether the Kafka key is the primary key, with the evidence."""
    keyed = [each for each in readings if each.record.key is not None]
    if not keyed:
        return False, "no: the records have no key"
    if not primary_key:
        return None, "unknown: no primary key was found"
    shown = f"({', '.join(primary_key)})"
    parts = [_key_of(each, reader, primary_key) for each in keyed]
    names = Counter(map(tuple, filter(None, parts))).most_common(1)
    if not names:
        return False, f"no: the key is {keyed[0].inspected.key.encoding}, and not {shown}"
    if set(map(str.lower, names[0][0])) != set(map(str.lower, primary_key)):
        return False, f"no: the key has ({', '.join(names[0][0])}), the primary key is {shown}"
    pairs = zip(keyed, parts, strict=True)
    each = (_same(key, event) for reading, key in pairs for event in reading.events)
    compared = [same for same in each if same is not None]
    if not compared:
        return True, f"yes: {shown}; the values do not have these columns"
    if not all(compared):
        return (
            False,
            f"no: {shown} differs from the row in {compared.count(False)} of {len(compared)} events",
        )
    equal = f"{shown}, equal to the row's in {len(compared)} events"
    if len(keyed) < len(readings):
        return False, f"in part: {equal}; {len(readings) - len(keyed)} records have no key"
    return True, f"yes: {equal}"


def _key_of(reading: Reading, reader: AnyColumns, primary_key: Sequence[str]) -> Mapping[str, Any]:
    columns = reader.sampler.key_columns(reading.record.key, reading.record.headers)
    if columns or len(primary_key) > 1 or isinstance(reading.inspected.key.value, (dict, list)):
        return columns
    value = reading.inspected.key.value
    return {} if value is None else {primary_key[0]: value}


def _same(parts: Mapping[str, Any], event: Event) -> bool | None:
    """Whether a key's columns equal the row's, None when the row has none of them."""
    image = event.before if event.after is None else event.after
    if not isinstance(image, Mapping):
        return None
    by_lower = {str(name).lower(): value for name, value in image.items()}
    common = [
        (value, by_lower[name.lower()]) for name, value in parts.items() if name.lower() in by_lower
    ]
    return (
        all(of_key == of_row or str(of_key) == str(of_row) for of_key, of_row in common)
        if common
        else None
    )
