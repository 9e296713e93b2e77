"""Reads the records of a sample without declared columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base import Event, Format, Ignored
from ..errors import ChangelogError, DecodeError, FormatBugError, MalformedMessageError, SchemaRegistryError, excerpt_of
from ..inference.reading import AnyColumns
from ..upsert import UpsertKafka
from .encodings import Look, look

if TYPE_CHECKING:
    from ..kafka import SampledRecord


class Looked(NamedTuple):
    """A record with the encodings of its key and value."""

    record: SampledRecord
    key: Look
    value: Look


class Reading(NamedTuple):
    """The result of reading a record: events, a reason why it has none, or an error.

    Attributes
    ----------
    looked : Looked
    events : tuple of Event
    table : tuple of str or None
        The names of the events' table.
    ignored : Ignored or None
    error : DecodeError or None
        Includes topic, partition and offset.
    """

    looked: Looked
    events: tuple[Event, ...] = ()
    table: tuple[str, ...] | None = None
    ignored: Ignored | None = None
    error: DecodeError | None = None

    @property
    def record(self) -> SampledRecord:
        """The record."""
        return self.looked.record


def look_at(records: Sequence[SampledRecord]) -> list[Looked]:
    """Return the records with the encodings of their keys and values, sorted by partition and offset."""
    ordered = sorted(records, key=lambda each: (each.topic, each.partition, each.offset))
    return [Looked(each, look("key", each.key, each.headers), look("value", each.value, each.headers)) for each in ordered]


def read_all(reader: AnyColumns, records: Sequence[Looked]) -> Iterator[Reading]:
    """Read each record.

    Raises
    ------
    SchemaRegistryError
        When a schema registry is required and does not answer.
    """
    for each in records:
        yield _read(reader, each)


def _read(reader: AnyColumns, looked: Looked) -> Reading:
    record = looked.record
    try:
        found = reader.events(record.key, record.value, record.headers)
        if isinstance(found, Ignored):
            return Reading(looked, ignored=found)
        events = tuple(found)
        return Reading(looked, events, reader.table(events[0].message) if events else None)
    except SchemaRegistryError:
        raise
    except DecodeError as error:
        return Reading(looked, error=_placed(error, looked, reader.format))
    except Exception as error:  # a format of another package may raise anything
        return Reading(looked, error=_placed(_bug(error), looked, reader.format))


def _bug(error: Exception) -> DecodeError:
    if isinstance(error, RecursionError):
        return MalformedMessageError("nested too deeply")
    what = error.args[0] if isinstance(error, ChangelogError) and error.args else f"{type(error).__name__}: {error}"
    return FormatBugError(f"the format failed: {what}", bare=f"the format failed: {type(error).__name__}")


def _placed(error: DecodeError, looked: Looked, format: Format) -> DecodeError:
    record = looked.record
    place = f"{record.topic}[{record.partition}]@{record.offset}"
    if not format.error_excerpt:
        return error.without_data().at(where=place)
    return error.at(where=place, excerpt=excerpt_of(record.key if error.field == "key" else record.value))


def key_parts(looked: Looked, reader: AnyColumns) -> Mapping[str, Any]:
    """Return the columns of a Kafka key; empty when the key is a single value or cannot be read.

    Raises
    ------
    SchemaRegistryError
        When a schema registry is required and does not answer.
    """
    record, value, format = looked.record, looked.key.value, reader.format
    if reader.avro is not None:
        return reader.avro.key_fields(record.key, record.headers)
    if format.identifier == "maxwell-json":
        return _maxwell(value)
    if format.identifier == "debezium-mongodb-json":
        found = look("key", str(looked.key.fields["id"]).encode()) if "id" in looked.key.fields else None
        return {} if found is None else {"_id": found.value}
    prefix = format.key_fields_prefix if isinstance(format, UpsertKafka) else ""
    return {prefix + name: part for name, part in looked.key.fields.items()}


def _maxwell(value: Any) -> dict[str, Any]:
    """Return the columns of ``{"pk.id": 1}`` or of ``["shop", "parts", [{"id": 1}]]``."""
    if isinstance(value, dict):
        return {name[3:]: part for name, part in value.items() if name.startswith("pk.")}
    if isinstance(value, list) and len(value) == 3 and isinstance(value[2], list):
        return {name: part for each in value[2] if isinstance(each, dict) for name, part in each.items()}
    return {}
