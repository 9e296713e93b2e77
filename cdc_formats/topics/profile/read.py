"""Reads the records of a sample without declared columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cdc_formats.errors import (
    ChangelogError,
    DecodeError,
    FormatBugError,
    MalformedMessageError,
    SchemaRegistryError,
    excerpt_of,
)
from cdc_formats.events import Event, Ignored
from cdc_formats.format import Format
from cdc_formats.topics.encodings import InspectedRecord, SampledRecord, inspect_part
from cdc_formats.topics.inference.reading import AnyColumns


class Reading(NamedTuple):
    """The result of reading a record: events, a reason why it has none, or an error.

    Attributes
    ----------
    inspected : InspectedRecord
    events : tuple of Event
    table : tuple of str or None
        The names of the events' table.
    ignored : Ignored or None
    error : DecodeError or None
        Includes topic, partition and offset.
    """

    inspected: InspectedRecord
    events: tuple[Event, ...] = ()
    table: tuple[str, ...] | None = None
    ignored: Ignored | None = None
    error: DecodeError | None = None

    @property
    def record(self) -> SampledRecord:
        """The record."""
        return self.inspected.record


def inspect_all(records: Sequence[SampledRecord]) -> list[InspectedRecord]:
    """Return the records with their key and value encodings, sorted by partition and offset."""
    ordered = sorted(records, key=lambda each: (each.topic, each.partition, each.offset))
    return [
        InspectedRecord(
            each,
            inspect_part("key", each.key, each.headers),
            inspect_part("value", each.value, each.headers),
        )
        for each in ordered
    ]


def read_all(reader: AnyColumns, records: Sequence[InspectedRecord]) -> Iterator[Reading]:
    """Read each record.

    Raises
    ------
    SchemaRegistryError
        When a schema registry is required and does not answer.
    """
    for each in records:
        yield _read(reader, each)


def _read(reader: AnyColumns, inspected: InspectedRecord) -> Reading:
    record = inspected.record
    try:
        result = reader.events(record.key, record.value, record.headers)
        if isinstance(result, Ignored):
            return Reading(inspected, ignored=result)
        events = tuple(result)
        return Reading(inspected, events, reader.table(events[0].message) if events else None)
    except SchemaRegistryError:
        raise
    except DecodeError as error:
        return Reading(inspected, error=_placed(error, inspected, reader.format))
    except Exception as error:  # a format of another package may raise anything
        return Reading(inspected, error=_placed(_bug(error), inspected, reader.format))


def _bug(error: Exception) -> DecodeError:
    if isinstance(error, RecursionError):
        return MalformedMessageError("nested too deeply")
    what = (
        error.args[0]
        if isinstance(error, ChangelogError) and error.args
        else f"{type(error).__name__}: {error}"
    )
    return FormatBugError(
        f"the format failed: {what}", bare=f"the format failed: {type(error).__name__}"
    )


def _placed(error: DecodeError, inspected: InspectedRecord, format: Format) -> DecodeError:
    record = inspected.record
    if not format.error_excerpt:
        return error.without_data().at(where=record.where)
    return error.at(
        where=record.where, excerpt=excerpt_of(record.key if error.field == "key" else record.value)
    )
